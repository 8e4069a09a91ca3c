"""`secondguess reproduce EXPERIMENT`: the paper's experiments, from data to figures."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from secondguess.cli.errors import user_errors


class Preset(StrEnum):
    """How large a run is."""

    quick = "quick"
    cpu = "cpu"
    paper = "paper"


class Function(StrEnum):
    """Which one-dimensional world."""

    sinusoid = "sinusoid"
    piecewise = "piecewise"


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Reproduce an experiment of the paper.", no_args_is_help=True)
    # The callback keeps a group of one command a group.
    group.callback()(lambda: None)
    group.command()(regression)
    app.add_typer(group, name="reproduce")


def regression(
    preset: Annotated[Preset, typer.Option(help="quick: minutes. cpu, paper: as published.")] = (
        Preset.quick
    ),
    function: Annotated[Function, typer.Option(help="The true p(Y=1|x).")] = Function.sinusoid,
    methods: Annotated[
        str | None, typer.Option(help="Some of the methods, with commas. Default: all.")
    ] = None,
    extras: Annotated[
        str | None,
        typer.Option(
            help="Some of intervals,sweeps,early_stopping, or none. Default: all but for quick, "
            "which has intervals alone."
        ),
    ] = None,
    members: Annotated[
        int | None, typer.Option(help="Networks of the ensemble. Default: the preset's.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of data, initial weights and batches.")] = 0,
    out: Annotated[Path, typer.Option(help="Where results go; a stopped run goes on.")] = Path(
        "out"
    ),
) -> None:
    """One-dimensional regression (section 4.2, appendices B and F.1)."""
    with user_errors():
        from secondguess.experiments.regression.run import EXTRAS, METHODS, run_regression

        default_extras = ("intervals",) if preset == Preset.quick else EXTRAS
        directory = run_regression(
            preset=preset.value,
            out=out,
            function=function.value,
            seed=seed,
            methods=METHODS if methods is None else _names(methods),
            extras=default_extras if extras is None else _names(extras),
            num_members=members,
        )
    _print_result(directory)


def _names(text: str) -> list[str]:
    return [] if text == "none" else [name.strip() for name in text.split(",")]


def _print_result(directory: Path) -> None:
    """The claims of a run, and where it is."""
    result = json.loads((directory / "result.json").read_text())
    for claim in result["claims"]:
        verdict = "holds" if claim["holds"] else "FAILS"
        typer.echo(f"{verdict}  {claim['name']}: {claim['value']:.4g} ({claim['bound']:.4g})")
    typer.echo(f"{directory / 'result.json'}, figures in {directory / 'figures'}")
