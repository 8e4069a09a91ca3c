"""How to certify intervals: by pairs or by counts, with which family, chosen on rows set aside.

A plan is made from a random subset of the calibration rows and carried out on the others by
`interval_stream.py`; conditionally on the plan they are a calibration set like any other.

Rows are `CountRows`: of one event, shape `(n,)`, or of all classes of an input that are to be held
together, `(n, num_classes)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess.theory.calibration.count_stream import allowed_misses
from secondguess.theory.calibration.counts import count_scores, uniform_slots
from secondguess.theory.calibration.nested import NestedFamily
from secondguess.theory.calibration.pair_counts import PairCountStream

IntervalMethod = Literal["auto", "pairs", "counts"]

MAX_BETA_ROWS = 30_000
"""Rows that certify a Beta family, at most: its scores cost fifty times as much as the others."""

CLEAR_RATIO, MIN_ROWS_TO_DROP_PAIRS = 0.7, 200
"""`auto` drops pairs where counts promise less than this share of their width on so many rows that
choose, or more. What few rows promise is chance."""

PAIRS_RATIO = 0.9
"""`auto` drops counts where pairs promise less than this share of their width."""

SHARE_OF_PAIRS, SHARE_AMONG_MANY, MANY_RESPONSES = 0.8, 0.5, 4
"""Where neither is dropped, both are certified and the narrower is taken. With two or three
responses to a typical row pairs get the first share of the failure rate, so that not knowing which
is better costs next to nothing against them; with `MANY_RESPONSES`, where counts mostly win, the
second."""

DETECTION_RATES = (0.9, 0.75, 0.5, 0.25, 0.1)
_ROOTS = (0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2)
FAMILIES = tuple(NestedFamily(kind, root**2) for kind in ("symmetric", "beta") for root in _ROOTS)
PAIR_CUTOFFS = tuple(root**2 for root in (*_ROOTS, 0.5))
_MAX_REPEATED_ROWS = 10_000
_MAX_WIDTH_ROWS = 500
"""Rows on which widths of candidates are compared: quantiles of Beta laws are what a choice costs.
All candidates are compared on the same rows, and scores are those of all rows that choose."""


class CountRows(NamedTuple):
    """Predictions, and how many of the responses are ones, or of each class."""

    probs: FloatArray
    variance: FloatArray
    ones: IntArray
    num_responses: IntArray

    def take(self, index: IntArray | np.ndarray) -> CountRows:
        """Some of the rows."""
        return CountRows(
            self.probs[index], self.variance[index], self.ones[index], self.num_responses[index]
        )

    def columns(self) -> list[CountRows]:
        """Each class by itself; one event is the only column."""
        if self.probs.ndim == 1:
            return [self]
        return [
            CountRows(self.probs[:, i], self.variance[:, i], self.ones[:, i], self.num_responses)
            for i in range(self.probs.shape[1])
        ]


class CountPlan(NamedTuple):
    """A test on counts: its intervals, how often it sees a miss, the share of rows it reads."""

    family: NestedFamily
    detection_rate: float
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class IntervalPlan:
    """What to certify, for one event or for all classes jointly.

    Attributes:
        miss_rate: the share of inputs that may be missed.
        failure_rate: how often, over calibration sets, that may not hold.
        counts: the test on counts, if it is to be tried.
        cutoffs: the cut-off of Algorithm 1 for each class, if it is to be tried.
        share_of_pairs: their part of the failure rate, where both are tried.
        probs: predictions of the rows that chose, on which both are compared.
        variance: of the same shape.
        seed: of all that is random.
    """

    miss_rate: float
    failure_rate: float
    counts: CountPlan | None
    cutoffs: tuple[float, ...] | None
    share_of_pairs: float
    probs: FloatArray
    variance: FloatArray
    seed: int

    @property
    def failure_rates(self) -> tuple[float, float]:
        """Of the test on counts and of Algorithm 1: where both are tried they hold together."""
        if self.counts and self.cutoffs:
            of_pairs = self.share_of_pairs * self.failure_rate
            return self.failure_rate - of_pairs, of_pairs
        return self.failure_rate, self.failure_rate


def plan_intervals(
    rows: CountRows,
    *,
    num_certifying: int,
    fewest_responses: int,
    miss_rate: float,
    failure_rate: float,
    method: IntervalMethod,
    seed: int = 0,
) -> IntervalPlan:
    """The way to certify that promises the narrowest intervals.

    >>> rng = np.random.default_rng(0)
    >>> truths = rng.beta(2, 2, 300)
    >>> ones = rng.binomial(50, truths)
    >>> rows = CountRows(truths, np.full(300, 0.01), ones, np.full(300, 50))
    >>> plan = plan_intervals(
    ...     rows, num_certifying=1200, fewest_responses=50, miss_rate=0.1, failure_rate=0.05,
    ...     method="auto",
    ... )
    >>> plan.counts.family.kind, plan.cutoffs is None
    ('beta', True)

    Args:
        rows: the rows that choose; they must not certify.
        num_certifying: how many others will.
        fewest_responses: of any row of the calibration set; Algorithm 1 needs two.
        miss_rate: the share of inputs whose p(y|x) may lie outside (in any class).
        failure_rate: how often that may not hold.
        method: `auto`, `pairs` or `counts`.
        seed: of the tests' random draws.
    """
    columns, scores = rows.columns(), None
    many = np.median(rows.num_responses) >= MANY_RESPONSES
    share = SHARE_AMONG_MANY if many else SHARE_OF_PAIRS
    counts = pairs = None
    if method != "pairs":
        scores = _Scores(rows, num_certifying, miss_rate, seed)
        counts = scores.best(failure_rate)
    if method == "pairs" or (method == "auto" and fewest_responses >= 2):
        # By pairs, all classes together need a share of both rates for each.
        rates = miss_rate / len(columns), failure_rate / len(columns)
        pairs = [min(_pair_choices(column, num_certifying, *rates)) for column in columns]
    if counts and pairs and scores:
        ratio = counts.width / float(np.mean([width for width, _ in pairs]))
        if ratio <= CLEAR_RATIO and len(rows.probs) >= MIN_ROWS_TO_DROP_PAIRS:
            pairs = None
        elif ratio * PAIRS_RATIO >= 1:
            counts = None
        else:
            counts = scores.best((1 - share) * failure_rate)
    count_plan = None
    if counts:
        beta = counts.family.kind == "beta"
        read = min(1.0, MAX_BETA_ROWS / max(num_certifying, 1)) if beta else 1.0
        count_plan = CountPlan(counts.family, counts.detection_rate, read)
    return IntervalPlan(
        miss_rate=miss_rate,
        failure_rate=failure_rate,
        counts=count_plan,
        cutoffs=tuple(cutoff for _, cutoff in pairs) if pairs else None,
        share_of_pairs=share,
        probs=rows.probs,
        variance=rows.variance,
        seed=seed,
    )


class _Choice(NamedTuple):
    """A test on counts, and the width that it promises."""

    width: float
    family: NestedFamily
    detection_rate: float


class _Scores:
    """The scores of the rows that choose, for every family and detection rate."""

    def __init__(self, rows: CountRows, num_certifying: int, miss_rate: float, seed: int) -> None:
        self.rows, self.num_certifying, self.miss_rate = rows, num_certifying, miss_rate
        slots, columns = uniform_slots(0, len(rows.probs), seed + 1), rows.columns()
        self.candidates = [(family, rate) for rate in DETECTION_RATES for family in FAMILIES]
        self.scores = [
            np.max([count_scores(family, *column, slots, rate) for column in columns], axis=0)
            for family, rate in self.candidates
        ]

    def best(self, failure_rate: float) -> _Choice:
        """The narrowest candidate, and the width that it honestly promises.

        Half of the rows promise it for the choice of the other half: the least of ninety widths on
        the rows that chose it would flatter.
        """
        halves = [slice(None), slice(0, None, 2), slice(1, None, 2)]
        promised = np.array(
            [
                [self._width(number, half, failure_rate) for half in halves]
                for number in range(len(self.candidates))
            ]
        )
        first, second = promised[:, 1].argmin(), promised[:, 2].argmin()
        honest = float(promised[first, 2] + promised[second, 1]) / 2
        return _Choice(honest, *self.candidates[int(promised[:, 0].argmin())])

    def _width(self, number: int, part: slice, failure_rate: float) -> float:
        """Mean width at the radius that some of the rows promise, the quantile of their scores."""
        family, rate = self.candidates[number]
        allowed = allowed_misses(self.num_certifying, rate * self.miss_rate, failure_rate)
        scores = self.scores[number][part]
        if allowed < 0 or not len(scores):
            return 1.0
        place = int(allowed / self.num_certifying * len(scores))
        radius = float(np.partition(scores, -1 - place)[-1 - place])
        probs, variance = (array[:_MAX_WIDTH_ROWS] for array in self.rows[:2])
        lower, upper = family.ends(probs, variance, radius)
        return float(np.mean(upper - lower))


def _pair_choices(
    rows: CountRows, num_certifying: int, miss_rate: float, failure_rate: float
) -> list[tuple[float, float]]:
    """Promised width and cut-off of every candidate.

    The bound on these rows, repeated until they are as many as those that certify.
    """
    size = min(num_certifying, _MAX_REPEATED_ROWS)
    repeated = rows.take(np.arange(max(size, len(rows.probs))) % len(rows.probs))
    fewest = int(rows.num_responses.min())
    shrink = min(1.0, float(np.sqrt(len(repeated.probs) / max(num_certifying, 1))))
    choices = []
    for cutoff in PAIR_CUTOFFS:
        stream = PairCountStream(min_variance=cutoff, fewest_responses=fewest)
        stream.update(*repeated)
        products = stream.products
        # The estimate may be above the bound, which is the least one over all looks.
        slack = shrink * max(products.upper(failure_rate) - products.mean, 0.0)
        reach = float(np.sqrt((max(products.mean, 0.0) + slack) / miss_rate))
        lower, upper = NestedFamily("symmetric", cutoff).ends(rows.probs, rows.variance, reach)
        choices.append((float(np.mean(upper - lower)), cutoff))
    return choices
