"""The training loop against what it cannot do without, on scikit-learn's digits; ratios interleaved within one run.

    python benchmarks/training.py loop                    our loop / a bare nnabla loop of the same work
    mpirun -n 2 python benchmarks/training.py ranks       N ranks' throughput / N independent runs side by side
    python benchmarks/training.py batch                   a change of batch size, beyond its graph
    python benchmarks/training.py checkpoint [--wide]     what a checkpoint holds up, in steps

Work is done in short blocks in turns, so that whatever else the machine does meets both sides: medians over blocks, and
the ratio of the fastest blocks, which were disturbed least.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

logging.getLogger("nnabla").setLevel(logging.WARNING)

import nnabla as nn  # noqa: E402
import nnabla.functions as F  # noqa: E402
import nnabla.solvers as S  # noqa: E402
from mpi4py import MPI  # noqa: E402

from nnabla_torus.communicators import create_communicator  # noqa: E402
from nnabla_torus.data.digits import Digits  # noqa: E402
from nnabla_torus.data.stream import SampleStream  # noqa: E402
from nnabla_torus.models.resnet import ResNet  # noqa: E402
from nnabla_torus.schedules.value import constant  # noqa: E402
from nnabla_torus.training import solver  # noqa: E402
from nnabla_torus.training.callbacks import BatchSizeControl, Callback  # noqa: E402
from nnabla_torus.training.saving import Saving  # noqa: E402
from nnabla_torus.training.trainer import Trainer  # noqa: E402
from nnabla_torus.training.watchers import JsonLog  # noqa: E402

WORLD = MPI.COMM_WORLD
WIDTHS = (16, 32, 64)  # of configs/digits.yaml: 78 thousand parameters
WIDE = (256, 512, 1024)  # 20 million


def make_trainer(
    comm: MPI.Comm, batch: int, folder: Path, callbacks: Sequence[Callback] = (), widths: tuple[int, ...] = WIDTHS
) -> Trainer:
    """Return a trainer as `nnabla-torus train` makes it, with its log."""
    return Trainer(
        communicator=create_communicator(nn.get_current_context(), comm=comm),
        source=Digits(),
        network=ResNet(10, (1, 1, 1), widths, True, seed=0),
        recipe=solver.momentum_sgd(1e-4),
        learning_rate=constant(0.01),
        momentum=constant(0.9),
        epochs=1,
        seed=0,
        callbacks=[BatchSizeControl(lambda seen: batch), JsonLog(folder / "log.jsonl"), *callbacks],
    )


def ours(trainer: Trainer, steps: int, batch: int) -> float:
    """Return the seconds that so many further steps take."""
    trainer.total = trainer.seen + steps * batch
    begin = time.perf_counter()
    trainer.train()
    return time.perf_counter() - begin


def bare_loop(batch: int) -> Callable[[int], float]:
    """Return a function that takes so many steps of the same work with nnabla alone, and returns their seconds."""
    source, network = Digits(), ResNet(10, (1, 1, 1), WIDTHS, True, seed=0)
    images, labels = nn.Variable((batch, *source.image_shape)), nn.Variable((batch, 1))
    loss = F.mean(F.softmax_cross_entropy(network(images, True), labels))
    loss.persistent = True
    parameters = nn.get_parameters()
    weights, others = S.Momentum(0.01, 0.9), S.Momentum(0.01, 0.9)
    weights.set_parameters({name: value for name, value in parameters.items() if name.endswith("W")})
    others.set_parameters({name: value for name, value in parameters.items() if not name.endswith("W")})
    stream, position = SampleStream(source.train_samples, seed=0), 0

    def take(steps: int) -> float:
        nonlocal position
        begin = time.perf_counter()
        for _ in range(steps):
            taken = stream.take(position, position + batch).indices
            position += batch
            images.d, labels.d = source.train_set.images[taken], source.train_set.labels[taken][:, None]
            loss.forward(clear_no_need_grad=True)
            weights.zero_grad()
            others.zero_grad()
            loss.backward(clear_buffer=True)
            weights.weight_decay(1e-4)
            weights.update()
            others.update()
            float(loss.d)
        return time.perf_counter() - begin

    return take


def loop(folder: Path, blocks: int, steps: int, batch: int) -> None:
    """One rank."""
    trainer, bare = make_trainer(MPI.COMM_SELF, batch, folder), bare_loop(batch)
    ours(trainer, 3, batch)
    bare(3)
    pairs = [(ours(trainer, steps, batch), bare(steps)) for _ in range(blocks)]
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    each = [statistics.median(block) / steps * 1e3 for block in zip(*pairs)]
    fastest = min(mine for mine, _ in pairs) / min(theirs for _, theirs in pairs)
    print(
        f"loop: ours {each[0]:.2f} ms, bare {each[1]:.2f} ms a step of {batch}; "
        f"ours / bare {ratio:.3f}, of the fastest blocks {fastest:.3f}"
    )


def ranks(folder: Path, blocks: int, steps: int, batch: int) -> None:
    """Ranks that train together, against the same ranks each on its own."""
    size, rank = WORLD.Get_size(), WORLD.Get_rank()
    own = folder / str(rank)
    own.mkdir()
    together, alone = make_trainer(WORLD, batch * size, own), make_trainer(MPI.COMM_SELF, batch, own)
    found = []
    for _ in range(blocks + 1):
        WORLD.Barrier()
        seconds = ours(together, steps, batch * size)
        joint = batch * size * steps / WORLD.allreduce(seconds, MPI.MAX)
        WORLD.Barrier()
        separate = WORLD.allreduce(batch * steps / ours(alone, steps, batch))
        found.append((joint, separate))
    found = found[1:]  # the first one built graphs
    ratio = statistics.median(joint / separate for joint, separate in found)
    if rank == 0:
        joint, separate = (statistics.median(side) for side in zip(*found))
        fastest = max(joint for joint, _ in found) / max(separate for _, separate in found)
        print(
            f"ranks: {size} together {joint:,.0f}, side by side {separate:,.0f} images/s, {batch} a rank and step; "
            f"together / side by side {ratio:.3f}, of the fastest blocks {fastest:.3f}"
        )


def batch_change(folder: Path, blocks: int, steps: int, batch: int) -> None:
    """The first step at a new size, less its graph and less a later step at that size."""
    size = batch
    trainer = make_trainer(MPI.COMM_SELF, batch, folder)
    trainer.callbacks[0] = BatchSizeControl(lambda seen: size)
    ours(trainer, steps, size)
    graphs, beyond = [], []
    for _ in range(blocks):
        size += 1
        begin = time.perf_counter()
        trainer.graphs.training(size)
        graphs.append(time.perf_counter() - begin)
        first = ours(trainer, 1, size)
        beyond.append(first - statistics.median(ours(trainer, 1, size) for _ in range(steps)))
    print(
        f"batch: graph {statistics.median(graphs) * 1e3:.1f} ms; beyond it {statistics.median(beyond) * 1e3:.1f} ms, "
        f"at most {max(beyond) * 1e3:.1f} ms"
    )


def checkpoint(folder: Path, blocks: int, steps: int, batch: int, widths: tuple[int, ...]) -> None:
    """Steps with one checkpoint among them, until it is written, against as many without."""

    class Once(Saving):
        wanted = False

        def after_step(self, trainer: Trainer) -> None:
            every, self.wanted = (1e-9 if self.wanted else 1e9), False
            self.every = every
            super().after_step(trainer)

    saving = Once(folder / "checkpoints", every=1e9, keep=2, about={"config": {}})
    trainer = make_trainer(WORLD, batch, folder, [saving], widths)
    trainer.passed = lambda epochs: epochs < 1  # type: ignore[method-assign]  # the end of a block is no end of a run
    ours(trainer, 3, batch)
    stalls, ordinary = [], []
    for _ in range(blocks):
        WORLD.Barrier()
        without = ours(trainer, steps, batch)
        saving.wanted = True
        WORLD.Barrier()
        stalls.append(ours(trainer, steps, batch) - without)
        ordinary.append(without / steps)
    if WORLD.Get_rank() == 0:
        step = statistics.median(ordinary)
        parameters = sum(parameter.size for parameter in trainer.graphs.trainable.values())
        print(
            f"checkpoint: {parameters:,} parameters on {WORLD.Get_size()} ranks: a step of {step * 1e3:.1f} ms; "
            f"with a checkpoint {steps} steps take {statistics.median(stalls) / step:.2f} steps longer"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["loop", "ranks", "batch", "checkpoint"])
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--wide", action="store_true", help="20 million parameters instead of 78 thousand")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(WORLD.bcast(name))
        arguments = (folder, given.blocks, given.steps, given.batch)
        if given.what == "checkpoint":
            checkpoint(*arguments, widths=WIDE if given.wide else WIDTHS)
        else:
            {"loop": loop, "ranks": ranks, "batch": batch_change}[given.what](*arguments)
        WORLD.Barrier()


if __name__ == "__main__":
    main()
