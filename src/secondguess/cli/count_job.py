"""One calibration of a file by counts of responses: which rows choose, which certify, who reads.

The rows are those of `fit_intervals` on the whole file in memory, and so is the result, to the last
bit. Memory does not grow with the file, but for one bit of bookkeeping per row where rows are
grouped. The file is read twice, and once more for the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import check_rate
from secondguess.cli.calibration_job import read_by_workers, reading_progress
from secondguess.cli.calibration_set import CalibrationSet
from secondguess.theory.calibration.count_stream import CountIntervals, check_count_rows
from secondguess.theory.calibration.fit_intervals import (
    check_fewest,
    choosing_threshold,
    divided,
)
from secondguess.theory.calibration.inflation import VarianceInflation
from secondguess.theory.calibration.interval_plan import (
    CountRows,
    IntervalMethod,
    IntervalPlan,
    plan_intervals,
)
from secondguess.theory.calibration.interval_stream import IntervalStream
from secondguess.theory.calibration.products import check_rows
from secondguess.theory.calibration.raters import check_leaning_counts, discordant_counts
from secondguess.theory.calibration.scatter import keys_of

Masks = tuple[NDArray[np.bool_], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class _Work:
    """What every process must know.

    Attributes:
        plan: what to certify.
        fewest: the fewest responses of any row.
        threshold: rows with a key up to this one chose the plan.
        masks: with groups, which rows chose and which certify.
    """

    plan: IntervalPlan
    fewest: int
    threshold: np.uint64
    masks: Masks | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CountJob:
    """One calibration: how to read the rows of a table.

    Attributes:
        table: the columns to read.
        method: `auto` or `counts`.
    """

    table: CalibrationSet
    method: IntervalMethod

    def run(
        self, failure_rate: float, miss_rate: float, workers: int
    ) -> CountIntervals | VarianceInflation:
        """Read the file, by one process or several, and certify intervals."""
        check_rate("failure rate", failure_rate)
        check_rate("miss rate", miss_rate)
        total = self.table.columns.count_rows()
        masks = None
        if group := self.table.group:
            parts = [chunk[group] for chunk in self.table.columns.chunks([], labels=[group])]
            masks = divided(total, np.concatenate(parts) if parts else [])
        threshold = np.uint64(0) if masks else choosing_threshold(total)
        rows, fewest, discordant = self._choosing(threshold, masks)
        if self.table.responses:
            check_leaning_counts(discordant)
        plan = plan_intervals(
            rows,
            num_certifying=total - len(rows.probs) if masks is None else int(masks[1].sum()),
            fewest_responses=check_fewest(fewest, self.method),
            miss_rate=miss_rate,
            failure_rate=failure_rate,
            method=self.method,
        )
        work = _Work(plan, fewest, threshold, masks)
        with reading_progress(self.table.path.name) as advance:
            if workers == 1:
                stream = self.read(work, 0, None, advance)
            else:
                stream = read_by_workers(self.read, work, total, workers, advance)
        (part,) = stream.result()
        if isinstance(part, CountIntervals) and np.isinf(part.radius):
            raise ValueError(
                f"{self.table.path}: {part.num_rows} rows are too few to certify a miss rate of "
                f"{miss_rate:g} at a failure rate of {failure_rate:g} by counts; expected more "
                f"rows, a larger rate, or --method auto."
            )
        return part

    def read(
        self,
        work: _Work,
        start: int,
        stop: int | None,
        advance: Callable[[int], None] = lambda rows: None,
    ) -> IntervalStream:
        """Rows start to stop, as part of the stream of all rows."""
        stream, row = IntervalStream(work.plan, fewest_responses=work.fewest), start
        for rows, _ in self._rows(start, stop):
            size = len(rows.probs)
            used = keys_of(row, size) > work.threshold
            if work.masks:
                used = work.masks[1][row : row + size]
            stream.update(rows, row, used=used)
            row += size
            advance(size)
        return stream

    def _choosing(
        self, threshold: np.uint64, masks: Masks | None
    ) -> tuple[CountRows, int, NDArray[np.int64]]:
        """The rows that choose, the fewest responses of any, and how the columns differ."""
        kept, fewest, row = [], np.iinfo(np.int64).max, 0
        num_columns = len(self.table.responses)
        discordant = np.zeros((num_columns, num_columns), dtype=np.int64)
        for rows, responses in self._rows(0, None):
            size = len(rows.probs)
            chosen = keys_of(row, size) <= threshold
            if masks:
                chosen = masks[0][row : row + size]
            kept.append(rows.take(chosen))
            fewest = min(fewest, int(rows.num_responses.min()))
            if responses is not None:
                # Of each group the one row that is drawn: rows of a group are not independent.
                drawn = slice(None) if masks is None else chosen | masks[1][row : row + size]
                discordant += discordant_counts(responses[drawn])
            row += size
        joined = CountRows(*(np.concatenate(arrays) for arrays in zip(*kept, strict=True)))
        return joined, fewest, discordant

    def _rows(self, start: int, stop: int | None) -> Iterator[tuple[CountRows, NDArray | None]]:
        table, row = self.table, start
        for chunk in table.chunks(start, stop):
            probs, variance, responses = chunk[table.probs], chunk[table.variance], None
            with table.naming_columns():
                if table.responses:
                    given = table.responses_of(chunk)
                    _, _, responses = check_rows(probs, variance, given, row)
                    ones, total = np.count_nonzero(responses, axis=1), len(table.responses)
                else:
                    ones, total = (chunk[name] for name in table.counts)
                rows = CountRows(*check_count_rows(probs, variance, ones, total, row))
            yield rows, responses
            row += len(probs)
