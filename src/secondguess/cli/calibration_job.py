"""One calibration of a file: what to read, how to number its rows, and who reads which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import check_rate
from secondguess._processes import worker_pool
from secondguess.cli.calibration_set import CalibrationSet
from secondguess.theory.calibration.cutoff import (
    choosing_rows,
    select_min_variance,
    selection_share,
)
from secondguess.theory.calibration.inflation import InflationStream, VarianceInflation
from secondguess.theory.calibration.means import MeanMethod
from secondguess.theory.calibration.products import check_rows
from secondguess.theory.calibration.raters import self_pair_share
from secondguess.training.progress import progress


@dataclass(frozen=True, slots=True)
class _Plan:
    """What every process must know.

    Attributes:
        min_variance: the cutoff.
        share: of the rows that chose it, and are not used again.
        self_pairs: see `InflationStream`.
    """

    min_variance: float
    share: float
    self_pairs: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationJob:
    """One calibration: how to read the rows of a table into a stream.

    Attributes:
        table: the columns to read.
        method: how the mean is bounded.
        annotators: the columns that say who gave each response, in the order of `table.responses`.
        fixed_annotators: whether each column of responses is one person.
    """

    table: CalibrationSet
    method: MeanMethod
    annotators: list[str] | None = None
    fixed_annotators: bool = False

    def run(
        self, min_variance: float | None, failure_rate: float, miss_rate: float, workers: int
    ) -> VarianceInflation:
        """Read the file, by one process or several, and bound the inflation."""
        check_rate("failure rate", failure_rate)
        check_rate("miss rate", miss_rate)
        self_pairs = self._self_pairs()
        share = 0.0
        if min_variance is None:
            min_variance, share = self._select(failure_rate, miss_rate)
        plan = _Plan(min_variance, share, self_pairs)
        with reading_progress(self.table.path.name) as advance:
            if workers == 1:
                stream = self.read(plan, 0, None, advance)
            else:
                total = self.table.columns.count_rows()
                stream = read_by_workers(self.read, plan, total, workers, advance)
        if not stream.num_rows:
            raise ValueError(f"{self.table.path} has no rows to calibrate on.")
        return stream.result(failure_rate)

    def read(
        self,
        plan: _Plan,
        start: int,
        stop: int | None,
        advance: Callable[[int], None] = lambda rows: None,
    ) -> InflationStream:
        """Rows start to stop, as part of the stream of all rows."""
        stream = InflationStream(
            min_variance=plan.min_variance,
            num_responses=len(self.table.responses),
            method=self.method,
            self_pairs=plan.self_pairs,
        )
        row = start
        for probs, variance, responses, groups in self._rows(start, stop):
            used = None
            if plan.share:
                used = ~choosing_rows(row, len(probs), plan.share, groups)
            with self.table.naming_columns():
                stream.update(probs, variance, responses, start=row, groups=groups, used=used)
            row += len(probs)
            advance(len(probs))
        return stream

    def _rows(
        self, start: int, stop: int | None
    ) -> Iterator[tuple[NDArray, NDArray, NDArray, NDArray | None]]:
        table = self.table
        for chunk in table.chunks(start, stop, grouped=True):
            groups = chunk[table.group] if table.group else None
            yield chunk[table.probs], chunk[table.variance], table.responses_of(chunk), groups

    def _self_pairs(self) -> float | None:
        """From one reading of the columns of annotators, whose identities are kept in memory."""
        if self.fixed_annotators:
            return 1 / len(self.table.responses)
        if self.annotators is None:
            return None
        names = self.annotators
        parts = [
            np.stack([chunk[name] for name in names], axis=1)
            for chunk in self.table.columns.chunks([], labels=names)
        ]
        return self_pair_share(np.concatenate(parts)) if parts else 0.0

    def _select(self, failure_rate: float, miss_rate: float) -> tuple[float, float]:
        total = self.table.columns.count_rows()
        share = selection_share(total)
        kept, row = [], 0
        for probs, variance, responses, groups in self._rows(0, None):
            with self.table.naming_columns():
                check_rows(probs, variance, responses, row)
            chosen = choosing_rows(row, len(probs), share, groups)
            kept.append((probs[chosen], variance[chosen], responses[chosen]))
            row += len(probs)
        size = sum(len(part[0]) for part in kept)
        if not 0 < size < total:
            raise ValueError(
                f"{self.table.path} has {total} rows, too few to choose a min-variance on a "
                f"fifth of them; give --min-variance."
            )
        probs, variance, responses = (np.concatenate(p) for p in zip(*kept, strict=True))
        chosen_variance = select_min_variance(
            probs,
            variance,
            responses,
            num_calibration_rows=total - size,
            failure_rate=failure_rate,
            miss_rate=miss_rate,
            method=self.method,
        )
        return chosen_variance, share


class _Merging(Protocol):
    def merge(self, other: Any, /) -> None:
        """Join what another process read."""
        ...


_Plans = TypeVar("_Plans")
_Streams = TypeVar("_Streams", bound=_Merging)


def read_by_workers(
    read: Callable[[_Plans, int, int], _Streams],
    plan: _Plans,
    total: int,
    workers: int,
    advance: Callable[[int], None],
) -> _Streams:
    """What several processes read, each its share of the rows, joined."""
    cuts = [total * i // workers for i in range(workers + 1)]
    with worker_pool(workers) as pool:
        tasks = [pool.submit(read, plan, start, stop) for start, stop in pairwise(cuts)]
        streams = [task.result() for task in tasks]
    for stream in streams[1:]:
        streams[0].merge(stream)
    advance(total)
    return streams[0]


@contextmanager
def reading_progress(name: str) -> Iterator[Callable[[int], None]]:
    """Progress by rows; yields `advance(rows)`."""
    done = 0
    with progress(name) as show:

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            show(done, None, "rows")

        yield advance
