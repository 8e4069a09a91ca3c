"""`secondguess score` and `secondguess answer`: pair models of sequences on JSON lines."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from secondguess.cli.errors import OverwriteOption, say, user_errors
from secondguess.cli.fit import fit
from secondguess.cli.inspection import check
from secondguess.cli.recalibrate import recalibrate
from secondguess.cli.rows import (
    BatchSizeOption,
    EngineOption,
    FailureOption,
    LabelledOption,
    MaxErrorOption,
    MeaningOption,
    ModelArgument,
    SkipOption,
    WindowOption,
    heed_check,
    open_engine,
    quiet_state,
    run_job,
)
from secondguess.cli.show import show

WINDOW_SIZE = 64


class StrategyName(StrEnum):
    """The decoders."""

    selective = "selective"
    rejection = "rejection"
    top1 = "top1"


class GapName(StrEnum):
    """How confidences above 1 are treated."""

    absolute = "absolute"
    one_minus = "one_minus"
    clipped = "clipped"
    reciprocal = "reciprocal"


def register(app: typer.Typer) -> None:
    """Add all commands on language models."""
    for command in (fit, check, recalibrate, score, answer, show):
        app.command(rich_help_panel="Language models")(command)


def score(
    model: ModelArgument,
    file: Annotated[
        Path, typer.Argument(help='JSON lines {"prompt": "...", "responses": ["...", ...]}.')
    ],
    out: Annotated[
        Path | None, typer.Option(help="Default: the input's name with .scores.jsonl.")
    ] = None,
    engine: EngineOption = None,
    batch_size: BatchSizeOption = 32,
    skip_bad: SkipOption = False,
    window_size: WindowOption = WINDOW_SIZE,
    overwrite: OverwriteOption = False,
) -> None:
    """Score responses: how likely each is at first sight and after peeking, token by token.

    The output has, for each response, log p(y|x), log p(y|y,x) and the epistemic confidence, which
    is their ratio, and the line as it came under 'input'; print it with 'secondguess show'.
    """
    with user_errors():
        from secondguess.language.windows import scoring_work

        state = quiet_state()
        opened = open_engine(model, engine, state, batch_size)
        settings = {
            "command": "score",
            "model": opened.identity,
            "batch_size": batch_size,
            "skip_bad": skip_bad,
        }
        run_job(
            state,
            file,
            out or file.with_suffix(".scores.jsonl"),
            settings,
            window_size,
            scoring_work(opened, skip_bad=skip_bad),
            model=model,
            overwrite=overwrite,
        )


def answer(
    model: ModelArgument,
    file: Annotated[Path, typer.Argument(help='JSON lines {"prompt": "..."}.')],
    max_hallucination_rate: Annotated[
        float | None, typer.Option(help="The largest bound that is still answered.")
    ] = None,
    labelled: LabelledOption = None,
    max_error_rate: MaxErrorOption = 0.05,
    failure_rate: FailureOption = 0.05,
    out: Annotated[
        Path | None, typer.Option(help="Default: the input's name with .answers.jsonl.")
    ] = None,
    strategy: Annotated[
        StrategyName,
        typer.Option(
            help="selective: one sample, kept if its bound is small enough. rejection: sample "
            "until one is. top1: the most probable of those that are."
        ),
    ] = StrategyName.selective,
    num_candidates: Annotated[
        int, typer.Option(min=1, help="Most samples per prompt (rejection, top1).")
    ] = 10,
    temperature: Annotated[
        float, typer.Option(help="Temperature of the sampling; scores use 1.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Only the k most likely tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Only tokens up to this mass.")] = None,
    min_probability: Annotated[
        float | None, typer.Option(help="No token less likely than this.")
    ] = None,
    meaning: MeaningOption = None,
    gap: Annotated[
        GapName, typer.Option(help="How confidences above 1 are treated.")
    ] = GapName.absolute,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples.")] = 0,
    ignore_check: Annotated[
        bool,
        typer.Option(
            "--ignore-check", help="Answer even where 'secondguess check' speaks against it."
        ),
    ] = False,
    engine: EngineOption = None,
    batch_size: BatchSizeOption = 32,
    skip_bad: SkipOption = False,
    window_size: WindowOption = WINDOW_SIZE,
    overwrite: OverwriteOption = False,
) -> None:
    """Answer prompts, or abstain where the bound on hallucination is too weak.

    An answer whose bound is b is made up with a probability of at most b, if the model is
    calibrated on pairs. What 'secondguess check' found about the model is heeded: a rate finer than
    its noise, and a model with signs against it, are refused.

    With --labelled, the rate is chosen so that at most --max-error-rate of the answers are wrong,
    whatever the model is: guaranteed by the marked answers, for prompts like theirs. Answer with
    --max-hallucination-rate 0.99, mark a few hundred answers, then repeat with the same options.
    """
    with user_errors():
        from dataclasses import replace

        from secondguess._arrays import check_rate
        from secondguess._files import manifest_digest
        from secondguess.language.engines import LocalEngine
        from secondguess.language.generation import Sampling
        from secondguess.language.marked import read_marked
        from secondguess.language.windows import AnswerSettings, answering_work

        if (labelled is None) == (max_hallucination_rate is None):
            raise ValueError("expected either --max-hallucination-rate or --labelled.")
        rate = check_rate(
            # Marked answers bring the rate at which they were chosen.
            "max_hallucination_rate",
            0.5 if max_hallucination_rate is None else max_hallucination_rate,
        )
        answers = AnswerSettings(
            max_hallucination_rate=rate,
            strategy=strategy.value,
            num_candidates=num_candidates,
            sampling=Sampling(
                temperature=temperature, top_k=top_k, top_p=top_p, min_probability=min_probability
            ),
            gap=gap.value,
            meaning=meaning,
            model=manifest_digest(model),
            seed=seed,
        )
        marked = None
        if labelled is not None:
            marked = read_marked(
                labelled, answers, max_error_rate=max_error_rate, failure_rate=failure_rate
            )
            answers = replace(
                answers, max_hallucination_rate=marked.chosen_at, max_gap=marked.max_gap
            )
        state = quiet_state()
        opened = open_engine(model, engine, state, batch_size)
        pair_model = opened.model if isinstance(opened, LocalEngine) else None
        if marked is None:
            heed_check(model, pair_model, rate, ignore=ignore_check, tell=state.is_main_process)
        elif state.is_main_process:  # it holds for any model, checked or not
            say(f"{labelled}: {marked.threshold}; the score is minus the gap")
        settings = {
            "command": "answer",
            "model": opened.identity,
            **answers.as_record(),
            "batch_size": batch_size,
            "skip_bad": skip_bad,
        }
        run_job(
            state,
            file,
            out or file.with_suffix(".answers.jsonl"),
            settings,
            window_size,
            answering_work(opened, answers, skip_bad=skip_bad),
            model=model,
            overwrite=overwrite,
        )
