"""What `secondguess reproduce` shows while all experiments run, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from secondguess.experiments.reproduction import Listener, Outcome, reproduce_all
from secondguess.experiments.worker import EXPERIMENTS
from secondguess.report.page import write_report

_EFFORT = {"regression": 2.0, "digits-of-pi": 3.0, "frozen-lake": 4.0, "cifar10h": 5.0}
"""How long experiments take beside each other, roughly; only the overall bar uses it."""


def reproduce_everything(*, preset: str, data_dir: Path | None, out: Path, strict: bool) -> None:
    """Run all experiments, write the page, and exit as the command promises."""
    from secondguess.experiments.cifar10h.data import find_data_dir

    names = list(EXPERIMENTS)
    try:
        data_dir = find_data_dir(data_dir)
    except FileNotFoundError as error:
        names.remove("cifar10h")
        typer.echo(f"cifar10h is left out: {error}\n")
    try:
        with _progress(names) as listener:
            outcomes = reproduce_all(
                names, preset=preset, out=out, data_dir=data_dir, listener=listener
            )
    except KeyboardInterrupt:
        typer.echo(
            f"\nStopped. What was finished is kept in {out}; the same command goes on from there:\n"
            f"    secondguess reproduce --preset {preset} --out {out}",
            err=True,
        )
        raise typer.Exit(130) from None
    _print_verdicts(outcomes)
    if any(outcome.directories for outcome in outcomes):
        typer.echo(f"The page: {write_report(out)}")
    if any(outcome.error is not None for outcome in outcomes):
        raise typer.Exit(1)
    if strict and not all(claim["holds"] for each in outcomes for claim in each.claims):
        raise typer.Exit(3)


def _print_verdicts(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            typer.echo(
                f"{outcome.experiment} CRASHED: {outcome.error} (all of it is in {outcome.log})",
                err=True,
            )
            continue
        holds = sum(claim["holds"] for claim in outcome.claims)
        typer.echo(f"{outcome.experiment}: {holds} of {len(outcome.claims)} claims hold")
        for claim in outcome.claims:
            if not claim["holds"]:
                typer.echo(
                    f"    does not hold: {claim['name']}: {claim['value']:.4g} "
                    f"({claim['bound']:.4g})"
                )


@contextmanager
def _progress(names: Sequence[str]) -> Iterator[Listener]:
    """A bar for everything and one for the experiment at work; lines where there is no terminal."""
    console = Console()
    if not console.is_terminal:
        yield _line_listener()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    efforts = {name: _EFFORT.get(name, 1.0) for name in names}
    with Progress(*columns, console=console) as bars:
        overall = bars.add_task("everything", total=sum(efforts.values()))
        tasks: dict[str, TaskID] = {}

        def listener(name: str, part: str, share_done: float) -> None:
            if name not in tasks:
                for other in tasks.values():
                    bars.update(other, completed=1.0)
                tasks[name] = bars.add_task(name, total=1.0)
            before = sum(efforts[each] for each in list(tasks)[:-1])
            bars.update(overall, completed=before + efforts[name] * share_done)
            bars.update(
                tasks[name],
                completed=share_done,
                description=f"{name}: {part}",
            )

        yield listener


def _line_listener() -> Listener:
    last: list[str] = []

    def listener(name: str, part: str, share_done: float) -> None:
        line = f"{name}: {part}"
        if last != [line]:
            last[:] = [line]
            typer.echo(f"{line} ({share_done:.0%} of it done)")
            sys.stdout.flush()

    return listener
