"""Carrying out a plan: rows read in chunks, by one process or several, to certified intervals.

The plan was made by `interval_plan.py` on rows set aside. Everything that is kept is a histogram or
a tally: memory does not grow with the number of rows, and their order does not matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import check_at_least
from secondguess.theory.calibration.count_stream import CountIntervals, CountStream
from secondguess.theory.calibration.inflation import VarianceInflation
from secondguess.theory.calibration.interval_plan import CountRows, IntervalPlan
from secondguess.theory.calibration.pair_counts import PairCountStream
from secondguess.theory.calibration.scatter import sampled
from secondguess.theory.records import Interval

Parts = tuple[CountIntervals | VarianceInflation, ...]


class IntervalStream:
    """Counts of responses read in chunks, certified as planned.

    >>> from secondguess.theory.calibration.interval_plan import plan_intervals
    >>> rng = np.random.default_rng(0)
    >>> truths = rng.beta(2, 2, 1500)
    >>> rows = CountRows(truths, np.full(1500, 0.01), rng.binomial(50, truths), np.full(1500, 50))
    >>> plan = plan_intervals(
    ...     rows.take(np.arange(300)), num_certifying=1200, fewest_responses=50, miss_rate=0.1,
    ...     failure_rate=0.05, method="counts",
    ... )
    >>> stream = IntervalStream(plan, fewest_responses=50)
    >>> stream.update(rows, used=np.arange(1500) >= 300)
    >>> [part.num_rows for part in stream.result()]
    [1200]

    Args:
        plan: what to certify.
        fewest_responses: no row has fewer.
    """

    def __init__(self, plan: IntervalPlan, *, fewest_responses: int) -> None:
        self.plan = plan
        self._end = 0
        self._counts: CountStream | None = None
        if plan.counts:
            self._counts = CountStream(
                plan.counts.family, detection_rate=plan.counts.detection_rate, seed=plan.seed
            )
        self._pairs = [
            PairCountStream(min_variance=cutoff, fewest_responses=fewest_responses, seed=plan.seed)
            for cutoff in plan.cutoffs or ()
        ]

    def update(
        self, rows: CountRows, start: int | None = None, *, used: NDArray[np.bool_] | None = None
    ) -> None:
        """Read rows that `check_count_rows` has seen.

        Args:
            rows: of one event, or of all classes.
            start: the position of the first of them in the whole calibration set; by default they
                follow those read so far.
            used: which of them certify; by default all. It must not depend on responses.
        """
        position = self._end if start is None else check_at_least("start", start, 0)
        if self._counts and self.plan.counts:
            chosen, share = used, self.plan.counts.share
            if share < 1:
                chosen = sampled(position, len(rows.probs), share, self.plan.seed)
                chosen = chosen if used is None else chosen & used
            self._counts.update(*rows, position, used=chosen)
        if self._pairs:
            for stream, column in zip(self._pairs, rows.columns(), strict=True):
                stream.update(*column, position, used=used)
        self._end = max(self._end, position + len(rows.probs))

    def merge(self, other: IntervalStream) -> None:
        """Join the rows that another process read."""
        if self._counts and other._counts:
            self._counts.merge(other._counts)
        for mine, theirs in zip(self._pairs, other._pairs, strict=True):
            mine.merge(theirs)
        self._end = max(self._end, other._end)

    def result(self) -> Parts:
        """One certificate by counts, or by pairs one per class: whichever is narrower.

        Both hold together, so the choice between them may look at anything.
        """
        plan, found = self.plan, []
        of_counts, of_pairs = plan.failure_rates
        if self._counts:
            by_counts = self._counts.result(miss_rate=plan.miss_rate, failure_rate=of_counts)
            width = by_counts.interval(plan.probs, plan.variance).width.mean()
            found.append((float(width), (by_counts,)))
        if self._pairs:
            parts = tuple(s.result(of_pairs / len(self._pairs)) for s in self._pairs)
            found.append((self._width_by_pairs(parts), parts))
        return min(found, key=lambda pair: pair[0])[1]

    def _width_by_pairs(self, parts: tuple[VarianceInflation, ...]) -> float:
        num_classes = len(parts)
        columns = (a.reshape(len(a), num_classes).T for a in (self.plan.probs, self.plan.variance))
        intervals: list[Interval] = [
            part.interval(p, v, self.plan.miss_rate / num_classes)
            for part, p, v in zip(parts, *columns, strict=True)
        ]
        return float(np.mean([interval.width.mean() for interval in intervals]))
