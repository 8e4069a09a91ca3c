"""Algorithm 1 for several events at once: the classes of a classifier, or bins of its output.

Both run Algorithm 1 once per event, with an equal share of the failure rate each, so that all the
guarantees hold together (the union bound). Proofs: the page "Guaranteed intervals" in the
documentation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import IntArray, as_floats, as_probs, check_at_least, same_shape
from secondguess.theory.calibration.fit_inflation import Annotators, stream_of
from secondguess.theory.calibration.inflation import InflationStream, VarianceInflation
from secondguess.theory.calibration.means import MeanMethod
from secondguess.theory.calibration.products import BadRowError
from secondguess.theory.calibration.raters import LEANING_LEVEL
from secondguess.theory.records import Interval, RestsOn


@dataclass(frozen=True, slots=True)
class ClassInflations:
    """One variance inflation per class, guaranteed together.

    >>> one = VarianceInflation(
    ...     value=1.0, mean=0.9, min_variance=0.01, failure_rate=0.025, method="betting",
    ...     num_rows=1000, num_responses=2, num_negative_variances=0,
    ... )
    >>> ClassInflations((one, one)).interval([[0.5, 0.5]], [[0.01, 0.04]], miss_rate=0.25).lower
    array([[0.3, 0.1]])

    Attributes:
        inflations: in the order of the classes.
    """

    inflations: tuple[VarianceInflation, ...]

    def interval(
        self, probs: ArrayLike, variance: ArrayLike, miss_rate: float, *, jointly: bool = False
    ) -> Interval:
        """Intervals of shape `(n, num_classes)`.

        Args:
            probs: shape `(n, num_classes)`.
            variance: of the same shape.
            miss_rate: the share of inputs whose p(y|x) may lie outside: for each class by itself,
                or, with `jointly`, for any of the classes.
            jointly: divide the miss rate among the classes.
        """
        p, v = as_floats("probs", probs), as_floats("variance", variance)
        same_shape(probs=p, variance=v)
        num_classes = len(self.inflations)
        if p.ndim != 2 or p.shape[1] != num_classes:
            raise ValueError(f"probs has shape {p.shape}; expected (n, {num_classes}).")
        rate = miss_rate / num_classes if jointly else miss_rate
        parts = [f.interval(p[:, c], v[:, c], rate) for c, f in enumerate(self.inflations)]
        return Interval(
            np.stack([part.lower for part in parts], axis=1),
            np.stack([part.upper for part in parts], axis=1),
            RestsOn.CALIBRATION_SET,
        )


def fit_inflation_by_class(
    probs: ArrayLike,
    variance: ArrayLike,
    responses: ArrayLike,
    *,
    min_variance: float,
    failure_rate: float,
    groups: ArrayLike | None = None,
    annotators: Annotators = None,
    method: MeanMethod = "betting",
    seed: int = 0,
    used: NDArray[np.bool_] | None = None,
) -> ClassInflations:
    """Algorithm 1 for every class against the rest.

    >>> rng = np.random.default_rng(0)
    >>> true_probs = rng.dirichlet([1, 1, 1], size=2000)
    >>> responses = (rng.random((2000, 2, 1)) > true_probs.cumsum(1)[:, None, :2]).sum(axis=2)
    >>> probs, variance = np.full((2000, 3), 1 / 3), np.full((2000, 3), 0.05)
    >>> classes = fit_inflation_by_class(
    ...     probs, variance, responses, min_variance=0.05, failure_rate=0.05
    ... )
    >>> interval = classes.interval(probs, variance, miss_rate=0.3)
    >>> bool((interval.contains(true_probs).mean(axis=0) >= 0.7).all())
    True

    Args:
        probs: predicted probabilities, shape `(n, num_classes)`, rows summing to one.
        variance: their stated variances, of the same shape; may be negative.
        responses: class numbers, shape `(n, k)`, k >= 2 independent responses to each input.
        min_variance: see `fit_variance_inflation`.
        failure_rate: how often, over calibration sets, the guarantee of any class may not hold.
        groups: see `fit_variance_inflation`.
        annotators: see `fit_variance_inflation`.
        method: how the means are bounded.
        seed: see `fit_variance_inflation`.
        used: which rows count; by default all. The choice must not depend on responses.
    """
    p, v = as_probs("probs", probs), as_floats("variance", variance)
    same_shape(probs=p, variance=v)
    if p.ndim != 2:
        raise ValueError(f"probs has shape {p.shape}; expected (n, num_classes).")
    labels = _as_labels("responses", responses, p.shape[1])
    if labels.ndim != 2:
        raise ValueError(f"responses has shape {labels.shape}; expected (n, k) class numbers.")
    num_classes = p.shape[1]
    streams = (
        stream_of(
            p[:, c],
            v[:, c],
            labels == c,
            min_variance=min_variance,
            groups=groups,
            annotators=annotators,
            method=method,
            seed=seed,
            used=used,
        )
        for c in range(num_classes)
    )
    rates = failure_rate / num_classes, LEANING_LEVEL / num_classes
    return ClassInflations(tuple(stream.result(rates[0], level=rates[1]) for stream in streams))


@dataclass(frozen=True, slots=True)
class BinInflations:
    """One variance inflation per bin of the model's output, guaranteed together.

    >>> one = VarianceInflation(
    ...     value=1.0, mean=0.9, min_variance=0.01, failure_rate=0.025, method="betting",
    ...     num_rows=1000, num_responses=2, num_negative_variances=0,
    ... )
    >>> BinInflations((one, one)).interval([0.5], [0.01], bins=[1], miss_rate=0.25).upper
    array([0.7])

    Attributes:
        inflations: in the order of the bins.
    """

    inflations: tuple[VarianceInflation, ...]

    def interval(
        self, probs: ArrayLike, variance: ArrayLike, bins: ArrayLike, miss_rate: float
    ) -> Interval:
        """Intervals of shape `(n,)` that cover within each bin, not only on average over all.

        Args:
            probs: shape `(n,)`.
            variance: of the same shape.
            bins: the bin of each row, by the rule that was used for the calibration set.
            miss_rate: the share of the inputs of a bin whose p(y|x) may lie outside.
        """
        p, v = as_floats("probs", probs), as_floats("variance", variance)
        labels = _as_labels("bins", bins, len(self.inflations))
        same_shape(probs=p, variance=v, bins=labels)
        lower, upper = np.empty_like(p), np.empty_like(p)
        for number, inflation in enumerate(self.inflations):
            members = labels == number
            part = inflation.interval(p[members], v[members], miss_rate)
            lower[members], upper[members] = part.lower, part.upper
        return Interval(lower, upper, RestsOn.CALIBRATION_SET)


def fit_inflation_by_bin(
    probs: ArrayLike,
    variance: ArrayLike,
    responses: ArrayLike,
    bins: ArrayLike,
    *,
    num_bins: int,
    min_variance: float,
    failure_rate: float,
    groups: ArrayLike | None = None,
    annotators: Annotators = None,
    method: MeanMethod = "betting",
    seed: int = 0,
) -> BinInflations:
    """Algorithm 1 within each bin: the events "A" of appendix D.4, named in advance.

    >>> rng = np.random.default_rng(0)
    >>> true_probs = rng.random(4000)
    >>> responses = rng.random((4000, 2)) < true_probs[:, None]
    >>> probs, variance = (true_probs > 0.5) * 0.5 + 0.25, np.full(4000, 0.02)
    >>> bins = np.digitize(probs, [0.5])  # a function of the output, chosen before calibration
    >>> fitted = fit_inflation_by_bin(
    ...     probs, variance, responses, bins, num_bins=2, min_variance=0.02, failure_rate=0.05
    ... )
    >>> [round(inflation.value, 2) for inflation in fitted.inflations]
    [1.19, 1.19]

    Args:
        probs: predicted probability of response 1, shape `(n,)`.
        variance: its stated variance, shape `(n,)`; may be negative.
        responses: zeros and ones, shape `(n, k)`.
        bins: the bin of each row, 0 to num_bins - 1, a function of the input (say, of what the
            model says about it) that was fixed before looking at these responses.
        num_bins: how many bins there are. One without rows gets the trivial inflation, the largest
            value that a scaled squared error can take.
        min_variance: see `fit_variance_inflation`.
        failure_rate: how often, over calibration sets, the guarantee of any bin may not hold.
        groups: see `fit_variance_inflation`; a group with rows in several bins is a unit in each.
        annotators: see `fit_variance_inflation`.
        method: how the means are bounded.
        seed: see `fit_variance_inflation`.
    """
    check_at_least("num_bins", num_bins, 1)
    p, v, y = as_floats("probs", probs), as_floats("variance", variance), np.asarray(responses)
    labels = _as_labels("bins", bins, num_bins)
    same_shape(probs=p, variance=v, bins=labels)
    if y.ndim != 2 or len(y) != len(p):
        raise ValueError(f"responses has shape {y.shape}; expected ({len(p)}, k).")
    rates = failure_rate / num_bins, LEANING_LEVEL / num_bins
    fitted = []
    for number in range(num_bins):
        members = labels == number
        if not members.any():
            fitted.append(_without_rows(min_variance, rates[0], y.shape[1], method))
            continue
        stream = stream_of(
            p[members],
            v[members],
            y[members],
            min_variance=min_variance,
            groups=None if groups is None else np.asarray(groups)[members],
            annotators=annotators
            if annotators is None or isinstance(annotators, str)
            else np.asarray(annotators)[members],
            method=method,
            seed=seed,
        )
        fitted.append(stream.result(rates[0], level=rates[1]))
    return BinInflations(tuple(fitted))


def _without_rows(
    min_variance: float, failure_rate: float, num_responses: int, method: MeanMethod
) -> VarianceInflation:
    """The trivial inflation: no scaled squared error is larger."""
    empty = InflationStream(min_variance=min_variance, num_responses=num_responses, method=method)
    return VarianceInflation(
        value=empty.products.high,
        mean=float("nan"),
        min_variance=min_variance,
        failure_rate=failure_rate,
        method=method,
        num_rows=0,
        num_responses=num_responses,
        num_negative_variances=0,
    )


def _as_labels(name: str, values: ArrayLike, num_labels: int) -> IntArray:
    labels = as_floats(name, values)
    bad = (labels < 0) | (labels >= num_labels) | (labels != np.floor(labels))
    if bad.any():
        at = [int(i) for i in np.argwhere(bad)[0]]
        problem = f"is {labels[tuple(at)].item():g}; expected a whole number below {num_labels}."
        raise BadRowError(name, at[0], at[1] if len(at) > 1 else None, problem)
    return labels.astype(np.int64)
