"""The narrowest certified intervals for a predictor's probabilities, by pairs or by counts.

A random subset of the calibration rows chooses how to certify (Algorithm 1 or counts, the family of
intervals, its cutoff and the detection rate) and the rest certify; conditionally on the choice the
rest is a calibration set like any other. Rows are taken in an order drawn from a seed, never in the
order in which they came.

Arrays have one row per input: `probs` and `variance` of shape `(n,)` with `ones` among
`num_responses`, or `(n, num_classes)` with counts per class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, IntArray, check_rate
from secondguess.theory.calibration.count_stream import (
    CountIntervals,
    CountStream,
    allowed_misses,
    check_count_rows,
)
from secondguess.theory.calibration.counts import count_scores, uniform_slots
from secondguess.theory.calibration.fitted_intervals import FittedIntervals
from secondguess.theory.calibration.inflation import VarianceInflation
from secondguess.theory.calibration.nested import NestedFamily
from secondguess.theory.calibration.pair_counts import pair_inflation, pair_products

IntervalMethod = Literal["auto", "pairs", "counts"]

CHOOSING_SHARE = 0.2
"""Share of the rows that choose; never more than `MAX_CHOOSING_ROWS`."""

MAX_CHOOSING_ROWS = 2000
_MAX_REPEATED_ROWS = 10_000

MAX_BETA_ROWS = 30_000
"""Rows that certify a Beta family, at most: its scores cost fifty times as much as the others."""

CLEAR_RATIO = 0.7
"""Where the better of pairs and counts promises less than this share of the other's width, `auto`
takes it; else it certifies both, each with half of the failure rate, and takes the narrower."""

MAX_BETA_ROWS = 30_000
"""Rows that certify a Beta family, at most: its scores cost fifty times as much as the others."""

COUNTS_ADVANTAGE = 0.97
"""Counts have more settings to choose from than pairs, and so more luck on the rows that choose:
`auto` takes them where they promise to be narrower by this factor."""

DETECTION_RATES = (0.9, 0.75, 0.5, 0.25, 0.1)
_ROOTS = (0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2)
FAMILIES = tuple(NestedFamily(kind, root**2) for kind in ("symmetric", "beta") for root in _ROOTS)
PAIR_CUTOFFS = tuple(root**2 for root in (*_ROOTS, 0.5))


class _Rows(NamedTuple):
    """Rows of one event, or of all classes together where the arrays have a second axis."""

    probs: FloatArray
    variance: FloatArray
    ones: IntArray
    num_responses: IntArray

    def take(self, index: IntArray) -> _Rows:
        return _Rows(
            self.probs[index], self.variance[index], self.ones[index], self.num_responses[index]
        )

    def column(self, number: int) -> _Rows:
        return _Rows(self.probs[:, number], self.variance[:, number], self.ones[:, number], self[3])


class _Choice(NamedTuple):
    """A way to certify, and the mean width that it promises."""

    width: float
    family: NestedFamily
    detection_rate: float | None  # None: Algorithm 1, with the family's cutoff


def fit_intervals(
    probs: ArrayLike,
    variance: ArrayLike,
    ones: ArrayLike,
    num_responses: ArrayLike | None = None,
    *,
    miss_rate: float = 0.1,
    failure_rate: float = 0.05,
    method: IntervalMethod = "auto",
    jointly: bool = False,
    groups: ArrayLike | None = None,
    seed: int = 0,
) -> FittedIntervals:
    """Certified intervals, as narrow as pairs or counts of responses allow.

    >>> rng = np.random.default_rng(0)
    >>> true_probs = rng.beta(2, 2, size=2000)
    >>> probs, variance = np.clip(true_probs + rng.normal(0, 0.05, 2000), 0, 1), np.full(2000, 0.01)
    >>> ones = rng.binomial(50, true_probs)
    >>> rows = slice(0, 1500)
    >>> for method in ("pairs", "counts"):
    ...     fitted = fit_intervals(probs[rows], variance[rows], ones[rows], 50, method=method)
    ...     interval = fitted.interval(probs[1500:], variance[1500:])
    ...     held = interval.contains(true_probs[1500:])
    ...     print(f"{method}: width {interval.width.mean():.2f}, {held.mean():.1%} held")
    pairs: width 0.43, 100.0% held
    counts: width 0.29, 99.0% held

    Args:
        probs: predicted probability of response 1, shape `(n,)`; or of every class,
            `(n, num_classes)`.
        variance: the stated variances, of the same shape; may be negative.
        ones: how many responses are 1, or of each class; of the same shape.
        num_responses: how many responses each row has, shape `(n,)` or one number; by default the
            sums of `ones` over the classes. It may depend on the input, but not on what the
            responses were.
        miss_rate: the share of inputs whose p(y|x) may lie outside.
        failure_rate: how often, over calibration sets, that may not hold; divided among the classes
            where each has a certificate of its own.
        method: `pairs` is Algorithm 1, `counts` the test on counts; `auto` takes the narrower (see
            `CLEAR_RATIO`).
        jointly: with classes, whether all classes of an input are to be held together.
        groups: one entry per row; rows of one group may depend on each other. One row of each
            group, drawn at random, is used: the guarantee is about a random row of a random group.
        seed: of the order of the rows, of the draw from groups and of the tests.
    """
    if method not in get_args(IntervalMethod):
        raise ValueError(
            f"method is {method!r}; expected one of {', '.join(get_args(IntervalMethod))}."
        )
    for name, rate in (("miss_rate", miss_rate), ("failure_rate", failure_rate)):
        check_rate(name, rate)
    if num_responses is None and np.ndim(ones) != 2:
        raise ValueError(
            "num_responses is missing; expected how many responses each row has (it is the sum "
            "over classes only where `ones` has one column per class)."
        )
    totals = np.sum(ones, axis=1) if num_responses is None else num_responses
    rows = _Rows(*check_count_rows(probs, variance, ones, totals))
    if method == "pairs" and rows.num_responses.min() < 2:
        raise ValueError('method="pairs" needs two responses per row; use "counts", or drop rows.')
    if len(rows.probs) < 2:
        raise ValueError(f"{len(rows.probs)} row(s) came; expected at least 2.")
    order = _order(len(rows.probs), groups, np.random.default_rng(seed))
    num_choosing = min(max(int(CHOOSING_SHARE * len(order)), 1), MAX_CHOOSING_ROWS)
    choosing, certifying = rows.take(order[:num_choosing]), rows.take(order[num_choosing:])
    num_classes = 1 if rows.probs.ndim == 1 else rows.probs.shape[1]
    certificate = _Certificate(method, miss_rate, failure_rate, seed)
    if num_classes == 1 and rows.probs.ndim == 1:
        parts = certificate.fit(choosing, certifying)
    elif jointly:
        parts = certificate.fit_jointly(choosing, certifying)
    else:
        each = _Certificate(method, miss_rate, failure_rate / num_classes, seed)
        parts = tuple(
            each.fit(choosing.column(i), certifying.column(i))[0] for i in range(num_classes)
        )
    return FittedIntervals(
        parts=parts,
        miss_rate=miss_rate,
        failure_rate=failure_rate,
        num_choosing=num_choosing,
        jointly=jointly,
    )


@dataclass(frozen=True, slots=True)
class _Certificate:
    """What is asked for, and the two steps: choose, then certify."""

    method: IntervalMethod
    miss_rate: float
    failure_rate: float
    seed: int

    def fit(
        self, choosing: _Rows, certifying: _Rows
    ) -> tuple[CountIntervals | VarianceInflation, ...]:
        size = len(certifying.probs)
        counts = pairs = None
        if self.method != "pairs":
            counts = min(self._count_choices(choosing, size), key=lambda c: c.width)
        if self.method != "counts" and choosing.num_responses.min() >= 2:
            pairs = min(self._pair_choices(choosing, size), key=lambda c: c.width)
        if (
            counts
            and pairs
            and CLEAR_RATIO * pairs.width < counts.width < pairs.width / CLEAR_RATIO
        ):
            return (self._narrower(counts, pairs, certifying),)
        if counts and (pairs is None or counts.width < pairs.width):
            return (self._counted(counts, certifying),)
        cutoff = pairs.family.min_variance if pairs else PAIR_CUTOFFS[-1]
        return (pair_inflation(*certifying, cutoff, self.failure_rate),)

    def _narrower(
        self, counts: _Choice, pairs: _Choice, rows: _Rows
    ) -> CountIntervals | VarianceInflation:
        """Both, each with half of the failure rate: they hold together, so either may be taken."""
        half = replace(self, failure_rate=self.failure_rate / 2)
        by_counts = half._counted(counts, rows)
        by_pairs = pair_inflation(*rows, pairs.family.min_variance, half.failure_rate)
        widths = (
            by_counts.interval(rows.probs, rows.variance).width.mean(),
            by_pairs.interval(rows.probs, rows.variance, self.miss_rate).width.mean(),
        )
        return by_counts if widths[0] <= widths[1] else by_pairs

    def fit_jointly(
        self, choosing: _Rows, certifying: _Rows
    ) -> tuple[CountIntervals | VarianceInflation, ...]:
        """By counts one radius for all classes; by pairs a share of both rates for each class."""
        num_classes, num_rows = choosing.probs.shape[1], len(certifying.probs)
        share = _Certificate(
            "pairs", self.miss_rate / num_classes, self.failure_rate / num_classes, self.seed
        )
        counts, pairs, width = [], [], np.inf
        if self.method != "pairs":
            counts = self._count_choices(choosing, num_rows)
        if self.method != "counts" and choosing.num_responses.min() >= 2:
            columns = [choosing.column(i) for i in range(num_classes)]
            pairs = [min(share._pair_choices(c, num_rows), key=lambda c: c.width) for c in columns]
            width = float(np.mean([choice.width for choice in pairs]))
        best = min(counts, key=lambda c: c.width, default=None)
        if best is not None and best.width <= width:
            return (self._counted(best, certifying),)
        return tuple(
            pair_inflation(*certifying.column(i), c.family.min_variance, share.failure_rate)
            for i, c in enumerate(pairs)
        )

    def _counted(self, choice: _Choice, rows: _Rows) -> CountIntervals:
        rate = choice.detection_rate or 0.5
        if choice.family.kind == "beta":
            # A random subset, as the rows are in random order: more would cost time, not width.
            rows = rows.take(np.arange(min(len(rows.probs), MAX_BETA_ROWS)))
        stream = CountStream(choice.family, detection_rate=rate, seed=self.seed)
        stream.update(*rows)
        return stream.result(miss_rate=self.miss_rate, failure_rate=self.failure_rate)

    def _count_choices(self, rows: _Rows, num_certifying: int) -> list[_Choice]:
        """The radius that the quantile of these rows' scores promises, for every candidate."""
        size = len(rows.probs)
        slots = uniform_slots(0, size, self.seed + 1)
        choices = []
        for rate in DETECTION_RATES:
            allowed = allowed_misses(num_certifying, rate * self.miss_rate, self.failure_rate)
            if allowed < 0:
                continue
            place = int(allowed / num_certifying * size)
            for family in FAMILIES:
                columns = [rows] if rows.probs.ndim == 1 else _columns(rows)
                scores = np.max(
                    [count_scores(family, *column, slots, rate) for column in columns], axis=0
                )
                radius = float(np.sort(scores)[size - 1 - place])
                lower, upper = family.ends(rows.probs, rows.variance, radius)
                choices.append(_Choice(float(np.mean(upper - lower)), family, rate))
        return choices or [_Choice(1.0, FAMILIES[0], 0.5)]

    def _pair_choices(self, rows: _Rows, num_certifying: int) -> list[_Choice]:
        """The bound on these rows, repeated until they are as many as those that certify."""
        size = min(num_certifying, _MAX_REPEATED_ROWS)
        repeated = rows.take(np.arange(max(size, len(rows.probs))) % len(rows.probs))
        shrink = min(1.0, float(np.sqrt(len(repeated.probs) / num_certifying)))
        choices = []
        for cutoff in PAIR_CUTOFFS:
            products = pair_products(*repeated, cutoff)
            # The estimate may be above the bound, which is the least one over all looks.
            slack = shrink * max(products.upper(self.failure_rate) - products.mean, 0.0)
            reach = np.sqrt((max(products.mean, 0.0) + slack) / self.miss_rate)
            family = NestedFamily("symmetric", cutoff)
            lower, upper = family.ends(rows.probs, rows.variance, float(reach))
            choices.append(_Choice(float(np.mean(upper - lower)), family, None))
        return choices


def _order(num_rows: int, groups: ArrayLike | None, rng: np.random.Generator) -> IntArray:
    """The rows in random order; with groups, one row of each."""
    order = rng.permutation(num_rows)
    if groups is None:
        return order
    labels = np.asarray(groups)
    if labels.shape != (num_rows,):
        raise ValueError(f"groups has shape {labels.shape}; expected ({num_rows},).")
    # The first row of each group in random order is a random row of it.
    _, first = np.unique(labels[order], return_index=True)
    return order[np.sort(first)]


def _columns(rows: _Rows) -> list[_Rows]:
    return [rows.column(number) for number in range(rows.probs.shape[1])]
