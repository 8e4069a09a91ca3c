"""One calibration of a file: what to read, how to number its rows, and who reads which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import check_rate
from secondguess.cli.columns import Columns
from secondguess.theory.calibration.cutoff import select_min_variance
from secondguess.theory.calibration.inflation import BadRowError, InflationStream, VarianceInflation
from secondguess.theory.calibration.means import MeanMethod
from secondguess.training.progress import progress

# Without a min_variance the first rows choose it: a fifth of them, and no more than fit in memory.
SELECTION_SHARE = 0.2
MAX_SELECTION_ROWS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationJob:
    """One calibration: the columns to read, and how to read rows of them into a stream.

    Attributes:
        columns: the file.
        probs: the column of predicted probabilities.
        variance: the column of their variances.
        responses: the columns of responses.
        method: how the mean is bounded.
    """

    columns: Columns
    probs: str
    variance: str
    responses: list[str]
    method: MeanMethod

    def run(
        self, min_variance: float | None, failure_rate: float, miss_rate: float, workers: int
    ) -> VarianceInflation:
        """Read the file, by one process or several, and bound the inflation."""
        check_rate("failure rate", failure_rate)
        check_rate("miss rate", miss_rate)
        first = 0
        if min_variance is None:
            min_variance, first = self._select(failure_rate, miss_rate)
        with _progress(self.columns.path.name) as advance:
            if workers == 1:
                stream = self.read(min_variance, first, None, first, advance)
            else:
                stream = self._read_in_processes(min_variance, first, workers, advance)
        if not stream.products.num_rows:
            raise ValueError(f"{self.columns.path} has no rows to calibrate on.")
        return stream.result(failure_rate)

    def read(
        self,
        min_variance: float,
        start: int,
        stop: int | None,
        first: int,
        advance: Callable[[int], None] = lambda rows: None,
    ) -> InflationStream:
        """Rows start to stop, as part of a stream that begins at row `first` of the file."""
        stream = InflationStream(
            min_variance=min_variance, num_responses=len(self.responses), method=self.method
        )
        row = start
        for probs, variance, responses in self._rows(start, stop):
            with self._naming_columns(first):
                stream.update(probs, variance, responses, start=row - first)
            row += len(probs)
            advance(len(probs))
        return stream

    def _rows(self, start: int, stop: int | None) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
        names = [self.probs, self.variance, *self.responses]
        for chunk in self.columns.chunks(names, start, stop):
            # Stacked by column, so that each stays contiguous.
            responses = np.stack([chunk[name] for name in self.responses]).T
            yield chunk[self.probs], chunk[self.variance], responses

    def _select(self, failure_rate: float, miss_rate: float) -> tuple[float, int]:
        total = self.columns.count_rows()
        size = min(int(SELECTION_SHARE * total), MAX_SELECTION_ROWS)
        if not size:
            raise ValueError(
                f"{self.columns.path} has {total} rows, too few to choose a min-variance on a "
                f"fifth of them; give --min-variance."
            )
        parts = zip(*self._rows(0, size), strict=True)
        probs, variance, responses = (np.concatenate(part) for part in parts)
        with self._naming_columns(0):
            chosen = select_min_variance(
                probs,
                variance,
                responses,
                num_calibration_rows=total - size,
                failure_rate=failure_rate,
                miss_rate=miss_rate,
                method=self.method,
            )
        return chosen, size

    def _read_in_processes(
        self, min_variance: float, first: int, workers: int, advance: Callable[[int], None]
    ) -> InflationStream:
        total = self.columns.count_rows()
        cuts = [first + (total - first) * i // workers for i in range(workers + 1)]
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            tasks = [
                pool.submit(self.read, min_variance, start, stop, first)
                for start, stop in pairwise(cuts)
            ]
            streams = [task.result() for task in tasks]
        for stream in streams[1:]:
            streams[0].merge(stream)
        advance(total - first)
        return streams[0]

    @contextmanager
    def _naming_columns(self, first: int) -> Iterator[None]:
        """Say file, column and row of the file where the library says argument and position."""
        try:
            yield
        except BadRowError as error:
            name = {"probs": self.probs, "variance": self.variance}.get(error.argument)
            name = self.responses[error.column or 0] if name is None else name
            raise ValueError(
                f"{self.columns.path}: column {name!r}, row {first + error.row} {error.problem}"
            ) from None


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int], None]]:
    """Progress by rows; yields `advance(rows)`."""
    done = 0
    with progress(name) as show:

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            show(done, None, "rows")

        yield advance
