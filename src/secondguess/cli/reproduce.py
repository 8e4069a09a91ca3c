"""`secondguess reproduce`: the paper's experiments, from data to figures, one or all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
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


Seed = Annotated[int, typer.Option(help="The first seed: of weights, data and samples.")]
Seeds = Annotated[int | None, typer.Option(help="How many seeds. Default: the preset's.", min=1)]
Out = Annotated[Path, typer.Option(help="Where results go; a stopped run goes on.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the CIFAR-10H data. Default: SECONDGUESS_DATA.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 when a claim does not hold.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(
        help="Reproduce the experiments of the paper: all of them, or the one that is named."
    )
    group.callback(invoke_without_command=True)(everything)
    group.command()(regression)
    group.command()(digits_of_pi)
    group.command()(frozen_lake)
    group.command()(cifar10h)
    app.add_typer(group, name="reproduce")


def everything(
    context: typer.Context,
    preset: Annotated[
        Preset,
        typer.Option(help="quick: minutes. cpu: hours. paper: for a GPU, but for regression."),
    ] = Preset.quick,
    data_dir: DataDir = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """Reproduce the experiments of the paper: all of them, or the one that is named.

    Without a name: one after the other, then a page with the verdicts, OUT/report.html. The exit
    code is 0 when every experiment finished, and 1 when one crashed. CIFAR-10H needs its data and
    is left out without it.
    """
    if context.invoked_subcommand is None:
        from secondguess.cli.reproduce_all import reproduce_everything

        reproduce_everything(preset=preset.value, data_dir=data_dir, out=out, strict=strict)


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
    seed: Seed = 0,
    seeds: Seeds = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """One-dimensional regression (section 4.2, appendices B and F.1)."""
    directories = _run_seeds(
        "regression",
        preset,
        seed,
        seeds,
        out,
        function=function.value,
        methods=_names(methods),
        extras=_names(extras),
        num_members=members,
    )
    _conclude(directories, strict=strict)


def digits_of_pi(
    preset: Annotated[
        Preset, typer.Option(help="quick: minutes. cpu: longer, three seeds. paper: for a GPU.")
    ] = Preset.quick,
    seed: Seed = 0,
    seeds: Seeds = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """Statements about digits of pi (section 5.2, appendices A and F.3)."""
    _conclude(_run_seeds("digits-of-pi", preset, seed, seeds, out), strict=strict)


def frozen_lake(
    preset: Annotated[
        Preset, typer.Option(help="quick: minutes. cpu: longer, two seeds. paper: for a GPU.")
    ] = Preset.quick,
    seed: Seed = 0,
    seeds: Seeds = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """Imitation with an unseen danger (section 5.3, appendices A and F.4)."""
    _conclude(_run_seeds("frozen-lake", preset, seed, seeds, out), strict=strict)


def cifar10h(
    preset: Annotated[
        ImagePreset,
        typer.Option(help="quick, cpu: frozen features. cpu-wrn, paper: wide ResNets."),
    ] = ImagePreset.quick,
    data_dir: DataDir = None,
    methods: Annotated[
        str | None, typer.Option(help="Some of the methods, with commas. Default: the preset's.")
    ] = None,
    variants: Annotated[
        str | None, typer.Option(help="Some of the variants, with commas. Default: the preset's.")
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(
            help="Augmented copies of each image for frozen features. Default: the preset's.", min=0
        ),
    ] = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """Ambiguous images (section 5.1, appendix F.2); prints the tables of the paper."""
    directories = _run_seeds(
        "cifar10h",
        preset,
        seed,
        seeds,
        out,
        data_dir=data_dir,
        methods=_names(methods),
        variants=_names(variants),
        num_copies=copies,
    )
    from secondguess.experiments.cifar10h.tables import tables

    # Every seed ends with the summary of all seeds so far; the last one is of all.
    summary = directories[-1]
    typer.echo(tables(json.loads((summary / "result.json").read_text())["metrics"]))
    _conclude([summary], strict=strict)


def _run_seeds(
    experiment: str, preset: StrEnum, seed: int, seeds: int | None, out: Path, **options: object
) -> list[Path]:
    """Run one seed after the other, and print the claims of each."""
    from secondguess.experiments.worker import EXPERIMENTS, num_seeds, run_seed

    run, directories = EXPERIMENTS[experiment], []
    with user_errors():
        count = num_seeds(run, preset.value) if seeds is None else seeds
        for each in range(seed, seed + count):
            directory = run_seed(run, preset=preset.value, out=out, seed=each, **options)
            _print_result(directory)
            directories.append(directory)
    return directories


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text == "none" else [name.strip() for name in text.split(",")]


def _print_result(directory: Path) -> None:
    """The claims of a run, and where it is."""
    for claim in _claims(directory):
        verdict = "holds" if claim["holds"] else "FAILS"
        typer.echo(f"{verdict}  {claim['name']}: {claim['value']:.4g} ({claim['bound']:.4g})")
    typer.echo(f"{directory / 'result.json'}, figures in {directory / 'figures'}")


def _conclude(directories: Sequence[Path], *, strict: bool) -> None:
    if strict and not all(claim["holds"] for each in directories for claim in _claims(each)):
        raise typer.Exit(3)


def _claims(directory: Path) -> list[dict]:
    return json.loads((directory / "result.json").read_text())["claims"]
