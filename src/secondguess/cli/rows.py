"""What the commands on JSON lines share: windows, progress, a scored response as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess._files import only_writer_of

if TYPE_CHECKING:
    from accelerate import PartialState

    from secondguess.language.engines import Engine
    from secondguess.language.formatting import EncodedRow, PairFormatter
    from secondguess.language.jsonl import Row, Window, WindowedJob
    from secondguess.language.meanings import ScoredMeaning
    from secondguess.language.model import PairLanguageModel
    from secondguess.language.scoring import ScoredResponse
    from secondguess.theory.records import Decision

ModelArgument = Annotated[
    Path, typer.Argument(help="Folder that 'secondguess fit' wrote, or PairLanguageModel.save.")
]
BatchSizeOption = Annotated[int, typer.Option(min=1, help="Sequences in one pass.")]
SkipOption = Annotated[
    bool, typer.Option("--skip-bad", help="Skip lines that cannot be used, and count them.")
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        help="Address of a vLLM server that holds the model, such as http://127.0.0.1:8001. MODEL "
        "then only gives tokenizer and format. Default: the model runs in this process."
    ),
]
MeaningOption = Annotated[
    str | None,
    typer.Option(
        help="Judge what answers mean, not how they are worded: words (no case, no punctuation), "
        "field:NAME (of a JSON object), or a regular expression with a group."
    ),
]
WindowOption = Annotated[
    int, typer.Option(min=1, help="Lines worked on together, written whole or not at all.")
]


def run_job(
    state: PartialState,
    source: Path,
    out: Path,
    settings: dict[str, Any],
    window_size: int,
    work: Callable[[Window], list[Row]],
) -> None:
    """Work through a file of JSON lines in windows, as the only one to write `out`."""
    from secondguess.language.jsonl import WindowedJob

    job = WindowedJob(
        source=source,
        out=out,
        settings=settings,
        window_size=window_size,
        process_index=state.process_index,
        num_processes=state.num_processes,
    )
    is_main = state.is_main_process
    with only_writer_of(out) if is_main else nullcontext():
        state.wait_for_everyone()
        job.prepare()
        state.wait_for_everyone()
        with job_progress(job, shown=is_main) as on_window:
            job.run(work, on_window)
        state.wait_for_everyone()
        if is_main:
            num_rows, num_skipped = job.join()
            skipped = f", {num_skipped:,} lines skipped" if num_skipped else ""
            say(f"wrote {out}: {num_rows:,} rows{skipped}; bounds hold {_rests_on()}")


def by_window(
    encode: Callable[[Row], EncodedRow],
    work: Callable[[list[EncodedRow], Window], list[Row]],
    *,
    skip_bad: bool,
) -> Callable[[Window], list[Row]]:
    """Output rows of a window: its line number, the row as it came, and what `work` adds to it.

    Args:
        encode: turns a row into tokens; a row that it refuses is a bad line.
        work: one dictionary per row, for all good rows of a window at once.
        skip_bad: whether a bad line becomes a row with the reason.
    """
    from secondguess.language.jsonl import SKIPPED, parse_rows

    def rows_of(window: Window) -> list[Row]:
        parsed = list(parse_rows(window, encode, skip_bad=skip_bad))
        good = [encoded for _, _, encoded in parsed if not isinstance(encoded, str)]
        added = iter(work(good, window))
        return [
            {"line": line, SKIPPED: encoded}
            if isinstance(encoded, str)
            else {"line": line, **row, **next(added)}
            for line, row, encoded in parsed
        ]

    return rows_of


@contextmanager
def job_progress(job: WindowedJob, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Progress, and a function that moves it by a number of lines."""
    from secondguess.language.jsonl import count_lines
    from secondguess.training.progress import progress

    total = count_lines(job.source) if shown else None
    done = 0
    with progress("lines" if shown else None) as show:

        def advance(lines: int) -> None:
            nonlocal done
            # The other processes are as far as this one, give or take a window.
            done += lines * job.num_processes
            show(done if total is None else min(done, total), total)

        yield advance


def describe(formatter: PairFormatter, response: ScoredResponse) -> Row:
    """A scored response as JSON: totals, then one entry per token."""
    scores = response.scores
    pieces = [formatter.tokenizer.decode([token]) for token in response.tokens]
    return {
        "text": response.text,
        "cut_off": response.cut_off,
        "log_marginal": float(scores.log_marginal),
        "log_self_conditional": float(scores.log_self_conditional),
        "epistemic_confidence": number(float(scores.epistemic_confidence)),
        "epistemic_variance": number(float(scores.epistemic_variance)),
        "tokens": pieces,
        "token_log_marginal": response.log_marginal.tolist(),
        "token_log_self_conditional": response.log_self_conditional.tolist(),
        "cheating": response.cheating.tolist(),
    }


def describe_decision(formatter: PairFormatter, decision: Decision[ScoredResponse]) -> Row:
    """An answer, or an abstention, as JSON."""
    given, bound = decision.response, decision.bound
    return {
        "answer": None if given is None else given.text,
        "abstained": decision.abstained,
        "gap": number(decision.gap),
        # A gap outside the theorem is not called a bound.
        "bound": None if bound is None else number(float(bound.value)),
        "rests_on": None if bound is None else str(bound.rests_on),
        "outside_theorem": bound is not None and bool(bound.outside_theorem),
        "cut_off": decision.cut_off,
        "num_candidates": decision.num_candidates,
        "response": None if given is None else describe(formatter, given),
    }


def describe_meaning(decision: Decision[ScoredMeaning]) -> Row:
    """An answer that was judged by its meaning, or an abstention, as JSON."""
    given, bound = decision.response, decision.bound
    estimate = None if given is None else float(given.scores.epistemic_confidence)
    return {
        "answer": None if given is None else given.text,
        "meaning": None if given is None else str(given.meaning),
        "abstained": decision.abstained,
        "gap": number(decision.gap),
        "bound": None if bound is None else number(float(bound.value)),
        "rests_on": None if bound is None else str(bound.rests_on),
        "outside_theorem": bound is not None and bool(bound.outside_theorem),
        "epistemic_confidence": number(estimate),
        "cut_off": decision.cut_off,
        "num_candidates": decision.num_candidates,
    }


def number(value: float | None) -> float | None:
    """JSON has no infinity; the logarithms beside it say the same."""
    return value if value is not None and math.isfinite(value) else None


def quiet_state() -> PartialState:
    """Which process this is; `transformers` keeps its bars and notes to itself."""
    from accelerate import PartialState
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    return PartialState()


def load_model(model: Path, state: PartialState) -> PairLanguageModel:
    """The pair model on the device of this process."""
    from secondguess.language.model import PairLanguageModel

    return PairLanguageModel.load(model, device=state.device or "cpu")


def open_engine(folder: Path, address: str | None, state: PartialState, batch_size: int) -> Engine:
    """The model of a folder in this process, or as a server elsewhere holds it."""
    if address is not None:
        from secondguess.language.engines_vllm import VllmEngine

        return VllmEngine.connect(address, folder, batch_size=batch_size)
    from secondguess.language.engines import LocalEngine

    return LocalEngine(load_model(folder, state), batch_size=batch_size)


def heed_check(
    folder: Path, model: PairLanguageModel | None, rate: float, *, ignore: bool, tell: bool
) -> None:
    """Refuse a rate that the last check of this model speaks against, unless told otherwise.

    Without a model, because its weights are elsewhere, the check of the folder counts.
    """
    from secondguess.language.findings import CheckFinding

    finding = CheckFinding.load_beside(folder, model)
    objection = None if finding is None else finding.objection(rate)
    if objection and not ignore:
        raise ValueError(f"{objection}; raise the rate, train it further, or pass --ignore-check.")
    if tell and finding is None:
        say(f"{folder} was not checked: how fine its bounds are is unknown (secondguess check)")
    if tell and objection:
        say(f"ignored: {objection}")


def _rests_on() -> str:
    from secondguess.theory.records import RestsOn

    return str(RestsOn.CALIBRATED_PAIRS)


def say(text: str) -> None:
    """A line on standard error: standard output is for results."""
    typer.echo(text, err=True)
