"""`secondguess reproduce`: the paper's experiments, from data to figures, one or all of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from secondguess.cli.errors import say, tell, user_errors
from secondguess.cli.outcomes import announce, conclude, print_result, print_verdict
from secondguess.cli.sizes import (
    FactFamily,
    FactsPreset,
    Function,
    ImagePreset,
    LakePreset,
    LanguagePreset,
    Preset,
)
from secondguess.experiments.jobs import Job, jobs_of
from secondguess.experiments.processes import Outcome, run_side_by_side
from secondguess.experiments.registry import EXPERIMENTS
from secondguess.report.files import read_result

Seed = Annotated[
    int, typer.Option(min=0, max=10**9, help="The first seed: of weights, data and samples.")
]
Seeds = Annotated[
    int | None, typer.Option(min=1, max=10**4, help="How many seeds. Default: the preset's.")
]
Out = Annotated[Path, typer.Option(help="Where results go; a stopped run resumes.")]
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
    group.command("digits-of-pi")(digits_of_pi)
    group.command("frozen-lake")(frozen_lake)
    group.command()(cifar10h)
    group.command()(facts)
    group.command()(associations)
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

    Without a name: all of them, side by side on the cores there are, then a page with the verdicts,
    OUT/report.html. The exit code is 0 when every experiment finished, and 1 when one crashed.
    CIFAR-10H needs its data and is left out without it.
    """
    if context.invoked_subcommand is not None:
        return
    options: dict[str, dict[str, Any]] = {name: {} for name in EXPERIMENTS}
    for name in ("facts", "associations"):
        if options.pop(name, None) is not None:
            tell(f"{name} is left out: it needs a pretrained model (reproduce {name} --model)\n")
    with user_errors():
        from secondguess.experiments.cifar10h.data import find_data_dir

        try:
            options["cifar10h"] = {"data_dir": find_data_dir(data_dir)}
        except FileNotFoundError as error:
            options.pop("cifar10h")
            tell(f"cifar10h is left out: {error}\n")
        for name in options:
            announce(name, preset.value)
        jobs = [
            job
            for name, more in options.items()
            for job in jobs_of(name, EXPERIMENTS[name], preset=preset.value, out=out, **more)
        ]
        outcomes = _run(jobs)
        for outcome in outcomes:
            print_verdict(outcome)
        if any(outcome.directories for outcome in outcomes):
            from secondguess.report.page import write_report

            tell(f"The page: {write_report(out)}")
    conclude(outcomes, strict=strict)


def regression(
    preset: Annotated[Preset, typer.Option(help="quick: minutes. cpu, paper: as published.")] = (
        Preset.quick
    ),
    function: Annotated[Function, typer.Option(help="The true p(Y=1|x).")] = Function.sinusoid,
    methods: Annotated[
        str | None, typer.Option(help="Some of the methods, comma-separated. Default: all.")
    ] = None,
    extras: Annotated[
        str | None,
        typer.Option(
            help="Some of intervals,sweeps,early_stopping,recalibration,signed_head, or none. "
            "Default: the preset's."
        ),
    ] = None,
    members: Annotated[
        int | None, typer.Option(min=1, help="Networks in the ensemble. Default: the preset's.")
    ] = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """One-dimensional regression (section 4.2, appendices B and F.1)."""
    outcomes = _reproduce(
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
    conclude(outcomes, strict=strict)


def digits_of_pi(
    preset: Annotated[
        Preset, typer.Option(help="quick: minutes. cpu: longer, several seeds. paper: for a GPU.")
    ] = Preset.quick,
    seed: Seed = 0,
    seeds: Seeds = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """Statements about digits of pi (section 5.2, appendices A and F.3)."""
    conclude(_reproduce("digits-of-pi", preset, seed, seeds, out), strict=strict)


def frozen_lake(
    preset: Annotated[
        LakePreset,
        typer.Option(
            help="quick: minutes. cpu: longer, several seeds; both are taught by the experts' "
            "action probabilities, with -sampled by their actions alone. paper: for a GPU."
        ),
    ] = LakePreset.quick,
    seed: Seed = 0,
    seeds: Seeds = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """Imitation with an unseen danger (section 5.3, appendices A and F.4)."""
    conclude(_reproduce("frozen-lake", preset, seed, seeds, out), strict=strict)


def cifar10h(
    preset: Annotated[
        ImagePreset,
        typer.Option(help="quick, cpu: frozen features. cpu-pixels, paper: from images."),
    ] = ImagePreset.quick,
    data_dir: DataDir = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Some of the methods, comma-separated. Default: the preset's."),
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(help="Some of the variants, comma-separated. Default: the preset's."),
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
    outcomes = _reproduce(
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
    # Every seed ends with the summary of all seeds so far; they are one directory.
    with user_errors():
        for summary in outcomes[0].directories[-1:]:
            from secondguess.experiments.cifar10h.tables import tables

            tell(tables(read_result(summary)["metrics"]))
    conclude(outcomes, strict=strict)


def facts(
    model: Annotated[str, typer.Option(help="Pretrained causal model: folder, name or GGUF file.")],
    preset: Annotated[
        FactsPreset,
        typer.Option(
            help="quick: a tiny slice. cpu: hours, three seeds. cpu-large: for larger models."
        ),
    ] = FactsPreset.quick,
    family: Annotated[FactFamily, typer.Option(help="What is asked about.")] = FactFamily.cities,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="For german-articles nouns.csv, for word-kinds data.noun, or a folder that it is "
            "in. Default: SECONDGUESS_DATA."
        ),
    ] = None,
    num_wordings: Annotated[
        int, typer.Option(help="Ways to word an answer: 3, or, of cities, 12.")
    ] = 3,
    costly_rivals: Annotated[
        bool, typer.Option(help="Ask rivals that need more draws or prompts too.")
    ] = True,
    seed: Seed = 0,
    seeds: Seeds = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """Facts that a pretrained language model was not asked in training: what it knows."""
    if num_wordings not in (3, 12):
        raise typer.BadParameter("expected 3 or 12.", param_hint="--num-wordings")
    options: Any = {
        "family": family.value,
        "data_dir": data_dir,
        "num_wordings": num_wordings,
        "costly_rivals": costly_rivals,
    }
    outcomes = _reproduce("facts", preset, seed, seeds, out, model=model, **options)
    conclude(outcomes, strict=strict)


def associations(
    model: Annotated[str, typer.Option(help="Pretrained causal model: folder, name or GGUF file.")],
    preset: Annotated[
        LanguagePreset, typer.Option(help="quick: a tiny slice. cpu: about an hour.")
    ] = LanguagePreset.quick,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="The file usf-free-association.jsonl, or its folder. Default: SECONDGUESS_DATA."
        ),
    ] = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    out: Out = Path("out"),
    strict: Strict = False,
) -> None:
    """First words that come to people's minds: how far a model knows their shares."""
    outcomes = _reproduce("associations", preset, seed, seeds, out, model=model, data_dir=data_dir)
    conclude(outcomes, strict=strict)


def _reproduce(
    name: str, preset: StrEnum, seed: int, seeds: int | None, out: Path, **options: object
) -> list[Outcome]:
    """Run the seeds of one experiment, and print the claims of each."""
    with user_errors():
        jobs = jobs_of(
            name,
            EXPERIMENTS[name],
            preset=preset.value,
            out=out,
            first_seed=seed,
            num_seeds=seeds,
            **options,
        )
        announce(name, preset.value)
        outcomes = _run(jobs)
        for outcome in outcomes:
            if outcome.mistake is not None:
                raise ValueError(outcome.mistake)
        for outcome in outcomes:
            print_result(outcome)
    return outcomes


def _run(jobs: Sequence[Job]) -> list[Outcome]:
    """How the runs ended: what happened to a part of one, its own job finds out."""
    from secondguess.training.progress import progress_side_by_side

    try:
        with progress_side_by_side({job.title: job.effort for job in jobs}) as tell:
            outcomes = run_side_by_side(jobs, tell)
    except KeyboardInterrupt:
        say(
            f"\nStopped. What was finished is kept in {jobs[0].out}; the same command resumes:\n"
            f"    {shlex.join(['secondguess', *sys.argv[1:]])}"
        )
        raise typer.Exit(130) from None
    return [outcome for outcome in outcomes if outcome.job.parts is None]


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text == "none" else [name.strip() for name in text.split(",")]
