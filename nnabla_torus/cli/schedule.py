"""`nnabla-torus schedule`: what a run would do, without running it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from nnabla_torus.course import Course, Stage


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--ranks", type=click.IntRange(1), required=True, help="Ranks that it would run on.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def schedule(config: Path, overrides: tuple[str, ...], ranks: int, as_json: bool) -> None:
    """Print what a run would do, without running it: stages with their epochs, batch, rate, momentum and steps.

    A stage is a range of steps between which neither the batch size changes nor a schedule turns; rate and momentum
    are those of its first and of its last step.
    """
    from nnabla_torus.config_file import load
    from nnabla_torus.course import make_course, stages
    from nnabla_torus.run import check_fits, make_source

    wanted = load(config, overrides)
    check_fits(wanted, ranks)
    source = make_source(wanted)
    course = make_course(wanted, source.train_samples, ranks)
    source.close()
    found = list(stages(course))
    print(json.dumps(_document(course, found), indent=1) if as_json else _table(course, found))


def _document(course: Course, stages: list[Stage]) -> dict[str, Any]:
    return {
        "ranks": course.ranks,
        "epochs": course.epochs,
        "samples_per_epoch": course.samples_per_epoch,
        "samples": course.total,
        "steps": sum(stage.steps for stage in stages),
        "stages": [asdict(stage) for stage in stages],
    }


def _table(course: Course, stages: list[Stage]) -> str:
    lines = [
        f"# {course.epochs} epochs of {course.samples_per_epoch:,} samples on {course.ranks} ranks: "
        f"{sum(stage.steps for stage in stages):,} steps",
        f"{'epochs':>16} {'steps':>8} {'global_batch':>12} {'batch_per_rank':>14} {'learning_rate':>21} "
        f"{'momentum':>15}",
    ]
    for stage in stages:
        lines.append(
            f"{stage.epochs[0]:7.2f} - {stage.epochs[1]:6.2f} {stage.steps:8} {stage.global_batch:12} "
            f"{_range(stage.batch_per_rank, 'd'):>14} {_range(stage.learning_rate, '.6g'):>21} "
            f"{_range(stage.momentum, '.4g'):>15}"
        )
    return "\n".join(lines)


def _range(ends: tuple[float, float], form: str) -> str:
    first, last = (format(end, form) for end in ends)
    return first if first == last else f"{first} - {last}"
