"""Files beyond one machine: `score`, `answer` and `calibrate` as Ray Data, with the same results.

Work is cut where one process cuts it (windows of lines, row groups of Parquet files), every piece
knows its place, and a worker computes it as one process would; so results equal those of one
process, to the last bit where workers have its kind of processor and its number of threads. Every
machine must see the files under the same paths. It needs `ray[data]` (extra `ray`); for several
GPUs in one machine, `accelerate launch` does without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data

from secondguess._arrays import check_at_least
from secondguess._files import Line, manifest_digest, only_writer_of
from secondguess.language.engines import LocalEngine
from secondguess.language.jsonl import Window, WindowedJob, as_text, read_windows
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import DEFAULT_BATCH_SIZE
from secondguess.language.windows import AnswerSettings, answering_work, scoring_work
from secondguess.theory.calibration.inflation import InflationStream, VarianceInflation
from secondguess.theory.calibration.means import MeanMethod

WINDOW_SIZE = 64
"""Lines per window, as the commands have it."""
WINDOWS_IN_FLIGHT = 4096
"""How many windows are handed to the cluster at a time; their lines are in memory."""


def score_file(
    folder: Path | str,
    source: Path | str,
    out: Path | str,
    *,
    num_workers: int,
    num_gpus: float = 0,
    batch_size: int = DEFAULT_BATCH_SIZE,
    window_size: int = WINDOW_SIZE,
    skip_bad: bool = False,
) -> tuple[int, int]:
    """`secondguess score` by the workers of a Ray cluster: the same bytes in `out`.

    A run that was stopped resumes where it was, with Ray or with the command.

    Args:
        folder: of the pair model.
        source: JSON lines `{"prompt": ..., "responses": [...]}`.
        out: the output; it appears when everything is done.
        num_workers: how many workers hold the model.
        num_gpus: of each worker; 0 for processors only.
        batch_size: sequences in one pass.
        window_size: lines worked on together.
        skip_bad: whether lines that cannot be used are skipped.

    Returns:
        How many rows `out` has, and how many lines were skipped.
    """
    settings = {"command": "score", "batch_size": batch_size, "skip_bad": skip_bad}
    return _run(folder, source, out, settings, None, num_workers, num_gpus, window_size)


def answer_file(
    folder: Path | str,
    source: Path | str,
    out: Path | str,
    answers: AnswerSettings,
    *,
    num_workers: int,
    num_gpus: float = 0,
    batch_size: int = DEFAULT_BATCH_SIZE,
    window_size: int = WINDOW_SIZE,
    skip_bad: bool = False,
) -> tuple[int, int]:
    """`secondguess answer` by the workers of a Ray cluster: the same bytes in `out`.

    Args:
        folder: of the pair model. What `secondguess check` found about it is not looked at here.
        source: JSON lines `{"prompt": ...}`.
        out: as in `score_file`.
        answers: how prompts are answered.
        num_workers: as in `score_file`.
        num_gpus: as in `score_file`.
        batch_size: as in `score_file`.
        window_size: as in `score_file`.
        skip_bad: as in `score_file`.

    Returns:
        How many rows `out` has, and how many lines were skipped.
    """
    answers = replace(answers, model=manifest_digest(Path(folder)))
    settings = {
        "command": "answer",
        **answers.as_record(),
        "batch_size": batch_size,
        "skip_bad": skip_bad,
    }
    return _run(folder, source, out, settings, answers, num_workers, num_gpus, window_size)


def calibrate_files(
    paths: Sequence[Path | str],
    *,
    min_variance: float,
    failure_rate: float,
    num_workers: int,
    probs: str = "probs",
    variance: str = "variance",
    responses: Sequence[str] = ("y1", "y2"),
    group: str | None = None,
    self_pairs: float | None = None,
    method: MeanMethod = "betting",
    seed: int = 0,
) -> VarianceInflation:
    """Algorithm 1 over Parquet files, whose rows are numbered in the order of `paths`.

    Every row group is read by some worker into an `InflationStream` that knows its positions, and
    the streams are merged: the result is that of `fit_variance_inflation` on all rows, to the last
    bit.

    Args:
        paths: the files, each named once.
        min_variance: see `fit_variance_inflation`.
        failure_rate: see `fit_variance_inflation`.
        num_workers: how many row groups are read at the same time.
        probs: the column of predicted probabilities.
        variance: the column of their variances.
        responses: the columns of responses.
        group: the column that says which rows belong together, if there is one.
        self_pairs: see `InflationStream`.
        method: how the mean is bounded.
        seed: of the random order.
    """
    check_at_least("num_workers", num_workers, 1)
    pieces = list(_row_groups(paths))
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise ValueError("a file is named twice; expected every row once.")
    if not pieces:
        raise ValueError(f"there are {len(paths)} files without a row; expected rows.")
    options: dict[str, Any] = {
        "min_variance": min_variance,
        "num_responses": len(responses),
        "method": method,
        "self_pairs": self_pairs,
        "seed": seed,
    }
    names = [probs, variance, *responses, *([group] if group else [])]

    def read(batch: dict[str, Any]) -> dict[str, Any]:
        from pyarrow import parquet

        stream = InflationStream(**options)
        for path, row_group, start in zip(
            batch["path"], batch["row_group"], batch["start"], strict=True
        ):
            with parquet.ParquetFile(path) as file:
                table = file.read_row_group(int(row_group), columns=names)
            columns = {name: table[name].to_numpy() for name in names}
            stream.update(
                columns[probs],
                columns[variance],
                np.stack([columns[name] for name in responses], axis=1),
                start=int(start),
                groups=columns[group] if group else None,
            )
        return {"stream": np.array([stream], dtype=object)}

    per_batch = -(-len(pieces) // (4 * num_workers))
    dataset: Any = ray.data.from_items(
        pieces, override_num_blocks=min(len(pieces), 4 * num_workers)
    )
    merged = InflationStream(**options)
    read_by = dataset.map_batches(read, batch_size=per_batch, concurrency=num_workers)
    for row in read_by.iter_rows():
        merged.merge(row["stream"])
    return merged.result(failure_rate)


def _row_groups(paths: Iterable[Path | str]) -> Iterator[dict[str, Any]]:
    """All row groups, with the position of their first row among all rows."""
    from pyarrow import parquet

    start = 0
    for path in paths:
        metadata = parquet.read_metadata(path)
        for row_group in range(metadata.num_row_groups):
            yield {"path": str(Path(path).resolve()), "row_group": row_group, "start": start}
            start += metadata.row_group(row_group).num_rows


class _Worker:
    """A model, loaded once, and what it does with windows."""

    def __init__(
        self, folder: str, settings: dict[str, Any], answers: AnswerSettings | None, device: str
    ) -> None:
        model = PairLanguageModel.load(folder, device=device)
        engine = LocalEngine(model, batch_size=settings["batch_size"])
        skip_bad = settings["skip_bad"]
        if answers is None:
            self._work = scoring_work(engine, skip_bad=skip_bad)
        else:
            self._work = answering_work(engine, answers, skip_bad=skip_bad)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The output of windows, as the text of their parts."""
        texts = []
        names = ("path", "index", "first_line", "lines", "sizes")
        for path, index, first, joined, sizes in zip(*(batch[name] for name in names), strict=True):
            sized = zip(bytes(joined).split(b"\n"), json.loads(sizes), strict=True)
            lines = tuple(
                Line(number, 0, text, size) for number, (text, size) in enumerate(sized, int(first))
            )
            rows = self._work(Window(Path(path), int(index), int(first), lines))
            texts.append(as_text(rows))
        return {"index": batch["index"], "text": np.array(texts, dtype=object)}


def _run(
    folder: Path | str,
    source: Path | str,
    out: Path | str,
    settings: dict[str, Any],
    answers: AnswerSettings | None,
    num_workers: int,
    num_gpus: float,
    window_size: int,
) -> tuple[int, int]:
    check_at_least("num_workers", num_workers, 1)
    identity = PairLanguageModel.load(folder).identity
    job = WindowedJob(
        source=Path(source),
        out=Path(out),
        settings={"model": identity, **settings},
        window_size=window_size,
    )
    arguments = (str(Path(folder).resolve()), settings, answers, "cuda" if num_gpus else "cpu")
    with only_writer_of(job.out):
        job.prepare()
        left = (
            window
            for window in read_windows(job.source, window_size)
            if not job.is_finished(window)
        )
        while windows := {window.index: window for window in islice(left, WINDOWS_IN_FLIGHT)}:
            items = [
                {
                    "path": str(window.path),
                    "index": window.index,
                    "first_line": window.first_line,
                    "lines": b"\n".join(line.text for line in window.lines),
                    "sizes": json.dumps([line.size for line in window.lines]),
                }
                for window in windows.values()
            ]
            dataset: Any = ray.data.from_items(
                items, override_num_blocks=min(len(items), 8 * num_workers)
            )
            done = dataset.map_batches(
                _Worker,
                fn_constructor_args=arguments,
                batch_size=1,
                concurrency=num_workers,
                **({"num_gpus": num_gpus} if num_gpus else {}),
            )
            for row in done.iter_rows():
                job.keep(windows[int(row["index"])], row["text"])
        return job.join()
