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


class ImagePreset(StrEnum):
    """How large a run on images is."""

    quick = "quick"
    cpu = "cpu"
    cpu_wrn = "cpu-wrn"
    paper = "paper"


class Function(StrEnum):
    """Which one-dimensional world."""

    sinusoid = "sinusoid"
    piecewise = "piecewise"


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Reproduce an experiment of the paper.", no_args_is_help=True)
    group.command()(regression)
    group.command()(cifar10h)
    group.command()(digits_of_pi)
    group.command()(frozen_lake)
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


Seed = Annotated[int, typer.Option(help="The first seed: of weights, data and samples.")]
Seeds = Annotated[int, typer.Option(help="How many seeds, one after the other.", min=1)]
Out = Annotated[Path, typer.Option(help="Where results go; a stopped run goes on.")]


def cifar10h(
    preset: Annotated[
        ImagePreset,
        typer.Option(help="quick, cpu: frozen features. cpu-wrn, paper: wide ResNets."),
    ] = ImagePreset.quick,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data. Default: SECONDGUESS_DATA.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Some of the methods, with commas. Default: the preset's.")
    ] = None,
    variants: Annotated[
        str | None, typer.Option(help="Some of the variants, with commas. Default: the preset's.")
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds. Default: the preset's.", min=1)
    ] = None,
    out: Out = Path("out"),
) -> None:
    """Ambiguous images (section 5.1, appendix F.2); prints the tables of the paper."""
    with user_errors():
        from secondguess.experiments.cifar10h.run import PRESETS, run_cifar10h
        from secondguess.experiments.cifar10h.tables import tables

        number = PRESETS[preset.value].num_seeds if seeds is None else seeds
        directories = [
            run_cifar10h(
                preset=preset.value,
                out=out,
                data_dir=data_dir,
                seed=each,
                methods=None if methods is None else _names(methods),
                variants=None if variants is None else _names(variants),
            )
            for each in range(seed, seed + number)
        ]
    for directory in directories:
        _print_result(directory)
    typer.echo(tables(directories))


def digits_of_pi(
    preset: Annotated[
        Preset, typer.Option(help="quick: minutes. cpu: longer, for three seeds. paper: for a GPU.")
    ] = Preset.quick,
    seed: Seed = 0,
    seeds: Seeds = 1,
    out: Out = Path("out"),
) -> None:
    """Statements about digits of pi (section 5.2, appendices A and F.3)."""
    for each in range(seed, seed + seeds):
        with user_errors():
            from secondguess.experiments.digits_of_pi.run import run_digits_of_pi

            directory = run_digits_of_pi(preset=preset.value, out=out, seed=each)
        _print_result(directory)


def frozen_lake(
    preset: Annotated[
        Preset, typer.Option(help="quick: minutes. cpu: longer, for two seeds. paper: for a GPU.")
    ] = Preset.quick,
    seed: Seed = 0,
    seeds: Seeds = 1,
    out: Out = Path("out"),
) -> None:
    """Imitation with an unseen danger (section 5.3, appendices A and F.4)."""
    for each in range(seed, seed + seeds):
        with user_errors():
            from secondguess.experiments.frozen_lake.run import run_frozen_lake

            directory = run_frozen_lake(preset=preset.value, out=out, seed=each)
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
