"""What the commands on JSON lines share: windows, progress, a scored response as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess._files import only_writer_of
from secondguess.cli.errors import say

if TYPE_CHECKING:
    from accelerate import PartialState

    from secondguess.language.engines import Engine
    from secondguess.language.findings import CheckFinding
    from secondguess.language.jsonl import Row, Window, WindowedJob
    from secondguess.language.model import PairLanguageModel

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
LabelledOption = Annotated[
    Path | None,
    typer.Option(
        help="Answers of 'secondguess answer', each with \"right\": true or false added: they "
        "choose the rate, for --max-error-rate."
    ),
]
MaxErrorOption = Annotated[
    float, typer.Option(help="Share of wrong answers that --labelled guarantees.")
]
FailureOption = Annotated[
    float, typer.Option(help="How often the guarantee of --labelled may fail.")
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
    *,
    model: Path,
    overwrite: bool,
) -> None:
    """Work through a file of JSON lines in windows, as the only one to write `out`."""
    from secondguess.language.jsonl import WindowedJob

    job = WindowedJob(
        source=source,
        out=out,
        settings=settings,
        window_size=window_size,
        inputs=[model],
        overwrite=overwrite,
        process_index=state.process_index,
        num_processes=state.num_processes,
    )
    is_main = state.is_main_process
    with only_writer_of(out) if is_main else nullcontext():
        state.wait_for_everyone()
        job.prepare()
        state.wait_for_everyone()
        try:
            with job_progress(job, shown=is_main) as on_window:
                job.run(work, on_window)
        except BaseException:
            if is_main:
                job.forget_if_unused()
            raise
        state.wait_for_everyone()
        if is_main:
            num_rows, num_skipped = job.join()
            skipped = f", {num_skipped:,} lines skipped" if num_skipped else ""
            say(f"wrote {out}: {num_rows:,} rows{skipped}; bounds hold {_rests_on()}")


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
) -> CheckFinding | None:
    """Refuse a rate that the last check of this model speaks against, unless told otherwise.

    Without a model, because its weights are elsewhere, the check of the folder counts. Returns what
    is to be heeded.
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
    return None if ignore else finding


def _rests_on() -> str:
    from secondguess.theory.records import RestsOn

    return str(RestsOn.CALIBRATED_PAIRS)
