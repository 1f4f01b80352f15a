"""What a run does when: the schedules that its configuration describes, for a data set and a number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nnabla_torus import config
from nnabla_torus.config import Config
from nnabla_torus.failure import UserError
from nnabla_torus.schedules import batch_size, value
from nnabla_torus.schedules.batch_size import BatchSchedule
from nnabla_torus.schedules.value import Schedule


@dataclass(frozen=True)
class Course:
    """The schedules of a run, all functions of the samples seen, and the samples at which one of them turns."""

    ranks: int
    epochs: int
    samples_per_epoch: int
    batch_size: BatchSchedule
    learning_rate: Schedule
    momentum: Schedule
    turns: tuple[float, ...]

    @property
    def total(self) -> int:
        """Samples of the whole run."""
        return self.epochs * self.samples_per_epoch


@dataclass(frozen=True)
class Stage:
    """Steps with one batch size between two turns; rate and momentum of the first and of the last step.

    `batch_per_rank` is the fewest and the most samples that a rank takes in a step.
    """

    epochs: tuple[float, float]
    steps: int
    global_batch: int
    batch_per_rank: tuple[int, int]
    learning_rate: tuple[float, float]
    momentum: tuple[float, float]


def make_course(run: Config, samples_per_epoch: int, ranks: int) -> Course:
    """Return a run's schedules; raises UserError for a batch size that does not fit the ranks."""
    epoch, total = samples_per_epoch, run.epochs * samples_per_epoch
    learning_rate, rate_turns = _schedule(run.learning_rate, epoch, total)
    momentum, momentum_turns = _schedule(run.solver.momentum, epoch, total)
    sizes = run.batch_size
    edges = [rung.begins(epoch) for rung in sizes.ladder]
    if edges != sorted(edges):
        raise UserError(f"batch_size.ladder begins at samples {edges}; its entries must ascend")
    ladder = batch_size.ladder(sizes.samples(ranks), edges, [rung.samples(ranks) for rung in sizes.ladder])
    turns = tuple(sorted({*rate_turns, *momentum_turns, *edges}))
    return Course(ranks, run.epochs, epoch, ladder, learning_rate, momentum, turns)


def stages(course: Course) -> Iterator[Stage]:
    """Yield the stages of a run, one after the other."""
    steps: list[tuple[int, int]] = []
    for start, stop in batch_size.steps(course.batch_size, course.total):
        if steps and _turned(course, steps[-1], (start, stop)):
            yield _stage(course, steps)
            steps = []
        steps.append((start, stop))
    yield _stage(course, steps)


def _turned(course: Course, before: tuple[int, int], now: tuple[int, int]) -> bool:
    size = before[1] - before[0]
    return now[1] - now[0] != size or any(before[0] < turn <= now[0] for turn in course.turns)


def _stage(course: Course, steps: list[tuple[int, int]]) -> Stage:
    (first, end), (last, stop) = steps[0], steps[-1]
    batch = end - first
    return Stage(
        epochs=(first / course.samples_per_epoch, stop / course.samples_per_epoch),
        steps=len(steps),
        global_batch=batch,
        batch_per_rank=(batch // course.ranks, -(-batch // course.ranks)),
        learning_rate=(course.learning_rate(first), course.learning_rate(last)),
        momentum=(course.momentum(first), course.momentum(last)),
    )


def _schedule(wanted: config.Value, epoch: int, total: int) -> tuple[Schedule, list[float]]:
    """Return a value's schedule, and the samples at which it turns."""
    begin = wanted.warm_up.epochs * epoch if wanted.warm_up else 0.0
    pieces, edges, current = [value.constant(wanted.base)], [], wanted.base
    start = begin
    for piece in wanted.decay:
        stop = total if piece.until is None else piece.until * epoch
        schedule = _piece(piece, start, stop, current, epoch)
        pieces.append(schedule)
        edges.append(start)
        start, current = stop, schedule(stop)
    whole = value.composed(pieces, edges)
    turns = [edge for edge in edges if edge] + [
        at * epoch for piece in wanted.decay if isinstance(piece, config.Step) for at in piece.at
    ]
    if wanted.warm_up:
        return value.warm_up(begin, wanted.warm_up.start, whole), [begin, *turns]
    return whole, turns


def _piece(piece: config.Piece, start: float, stop: float, current: float, epoch: int) -> Schedule:
    """Return the schedule of one piece of decay, from `current` on."""
    if isinstance(piece, config.Polynomial):
        return value.polynomial(start, stop, current, piece.end, piece.power)
    if isinstance(piece, config.Cosine):
        return value.cosine(start, stop, current, piece.end)
    if isinstance(piece, config.Step):
        return value.step(current, [at * epoch for at in piece.at], piece.values)
    if isinstance(piece, config.Piecewise):
        return value.piecewise([(at * epoch, point) for at, point in piece.points])
    return value.constant(current)
