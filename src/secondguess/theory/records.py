"""Frozen records that layers pass on: scores (with variance and confidence), predictions, bounds.

`SelfCheatScores` is what every pair model produces for a response; `Prediction` is what every
method, ours or a baseline, hands to metrics and figures; `Bound`, `Interval` and `Decision` are
what users get, and say what they rest on. They hold float64 arrays with one entry per response (the
axes are stated in each record) and know nothing about the model that made the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import FloatArray, as_floats, as_probs, fail_at, same_shape

ResponseT = TypeVar("ResponseT")

GapKind = Literal["absolute", "one_minus", "clipped", "reciprocal"]

# Sums of float32 token log-probabilities can end slightly above zero; more is a caller's mistake.
_LOG_PROB_SLACK = 1e-4


class RestsOn(StrEnum):
    """What a bound rests on. They are never blurred: only `CALIBRATION_SET` assumes no model.

    `CALIBRATED_RESPONSES` is calibration to the order of the k responses that a model was trained
    on, more than pairs ask for.

    >>> print(RestsOn.CALIBRATED_PAIRS)
    if calibrated on pairs
    """

    CALIBRATED_PAIRS = "if calibrated on pairs"
    CALIBRATED_RESPONSES = "if calibrated on k responses"
    CALIBRATION_SET = "guaranteed by a calibration set"


@dataclass(frozen=True, slots=True)
class SelfCheatScores:
    """How likely a response is at first sight, and after peeking at itself.

    >>> scores = SelfCheatScores(np.log([0.5, 0.5]), np.log([0.5, 0.625]))
    >>> scores.epistemic_variance.round(6)
    array([0.    , 0.0625])
    >>> scores.epistemic_confidence.round(6)
    array([1. , 0.8])

    Attributes:
        log_marginal: log p(y|x), any shape, one entry per response; `-inf` is allowed.
        log_self_conditional: log p(y|y,x), the probability of the same response a second time, of
            the same shape.
    """

    log_marginal: FloatArray
    log_self_conditional: FloatArray

    def __post_init__(self) -> None:
        for name in ("log_marginal", "log_self_conditional"):
            array = as_floats(name, getattr(self, name), allow_infinite=True)
            fail_at(name, array > _LOG_PROB_SLACK, array, "a log-probability, 0 or less")
            object.__setattr__(self, name, array)
        same_shape(log_marginal=self.log_marginal, log_self_conditional=self.log_self_conditional)

    def __len__(self) -> int:
        return len(self.log_marginal)

    def __getitem__(self, index: Any) -> SelfCheatScores:
        """The scores of some of the responses, by any NumPy index."""
        return SelfCheatScores(self.log_marginal[index], self.log_self_conditional[index])

    @property
    def log_ratio(self) -> FloatArray:
        """Log p(y|x) - log p(y|y,x), the logarithm of the epistemic confidence.

        `-inf` wherever the marginal is zero, whatever the conditional: Definition 4.3 sets the
        confidence to 0 there.
        """
        ratio = np.full(self.log_marginal.shape, -np.inf)
        np.subtract(
            self.log_marginal,
            self.log_self_conditional,
            out=ratio,
            where=np.isfinite(self.log_marginal),
        )
        return ratio

    @property
    def epistemic_variance(self) -> FloatArray:
        """V = p(y|x) (p(y|y,x) - p(y|x)), Definition 4.1: the variance of the true p(y|x).

        It is negative where peeking made the response less likely, which a calibrated model never
        shows; such values are data about the model and pass through.
        """
        # m (c - m) = m max(m, c) (1 - exp(-|log c - log m|)) sign(log c - log m): no cancellation
        # when the two are close, no overflow when they are far apart.
        ratio = -self.log_ratio
        larger = np.maximum(self.log_marginal, self.log_self_conditional)
        scale = np.exp(self.log_marginal + larger)
        size = 0.0 - np.expm1(-np.abs(ratio))
        return np.where(scale > 0, np.sign(ratio) * scale * size, 0.0)

    @property
    def epistemic_confidence(self) -> FloatArray:
        """C = p(y|x) / p(y|y,x), Definition 4.3; 0 where p(y|x) is 0.

        A calibrated model has C in [0, 1] (Proposition 4.4). Values above 1 are reported as they
        are, up to `inf` where p(y|y,x) is zero or the ratio leaves the range of float64.
        """
        with np.errstate(over="ignore"):
            return np.exp(self.log_ratio)

    def confidence_gap(self, kind: GapKind = "absolute") -> FloatArray:
        """How far the confidence C is from 1, by one of four rules that agree when C <= 1.

        >>> scores = SelfCheatScores(np.log([0.4, 0.5]), np.log([0.5, 0.4]))  # C = 0.8 and 1.25
        >>> for kind in ("absolute", "one_minus", "clipped", "reciprocal"):
        ...     print(f"{kind:10}", scores.confidence_gap(kind).round(6))
        absolute   [0.2  0.25]
        one_minus  [ 0.2  -0.25]
        clipped    [0.2 0. ]
        reciprocal [0.2 0.2]

        Args:
            kind: `absolute` is abs(1 - C), which the paper recommends; `one_minus` is 1 - C, the
                bound of Theorem 4.5 itself; `clipped` is 1 - min(1, C); `reciprocal` is
                1 - min(C, 1/C).
        """
        # 1 - C = 0 - expm1(log C), exact when C is close to 1 (and never -0.0).
        with np.errstate(over="ignore"):
            one_minus = 0.0 - np.expm1(self.log_ratio)
        match kind:
            case "absolute":
                return np.abs(one_minus)
            case "one_minus":
                return one_minus
            case "clipped":
                return np.maximum(one_minus, 0.0)
            case "reciprocal":
                return 0.0 - np.expm1(-np.abs(self.log_ratio))
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(get_args(GapKind))}.")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a method says about p(y|x): a probability, and how far off it thinks it is.

    >>> Prediction(probs=np.array([[0.5, 0.5]]), variance=np.array([[0.1, 0.1]])).num_classes
    2

    Attributes:
        probs: `(n, num_classes)` with rows summing to one, or `(n,)`: the probability of one event,
            counted once.
        variance: the epistemic variance of each probability, of the same shape; may be negative.
    """

    probs: FloatArray
    variance: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "probs", as_probs("probs", self.probs))
        object.__setattr__(self, "variance", as_floats("variance", self.variance))
        same_shape(probs=self.probs, variance=self.variance)

    def __len__(self) -> int:
        return len(self.probs)

    @property
    def num_classes(self) -> int:
        """How many events a row predicts: 1 for the form `(n,)`."""
        return 1 if self.probs.ndim == 1 else self.probs.shape[1]


@dataclass(frozen=True, slots=True)
class Bound:
    """One-sided bounds, one per response, and what they rest on.

    >>> bound = Bound(np.array([0.1, np.nan]), RestsOn.CALIBRATED_PAIRS)
    >>> bound.outside_theorem
    array([False,  True])
    >>> print(bound)
    [0.1 nan] if calibrated on pairs; 1 of 2 outside the theorem
    >>> print(Bound(0.1, RestsOn.CALIBRATED_PAIRS))
    0.1 if calibrated on pairs

    Attributes:
        value: the bounds, any shape; NaN where the theorem does not apply, so that no comparison
            with such a bound succeeds.
        rests_on: the assumption behind them.
    """

    value: FloatArray
    rests_on: RestsOn

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", np.asarray(self.value, dtype=np.float64))

    @property
    def outside_theorem(self) -> NDArray[np.bool_]:
        """Where the numbers of the model are none that the theorem is about: there is no bound."""
        return np.isnan(self.value)

    def __str__(self) -> str:
        outside = self.outside_theorem
        said = f"{self.value.round(6)} {self.rests_on}"
        if not outside.any():
            return said
        if self.value.ndim == 0:
            return "no bound: outside the theorem"
        return f"{said}; {outside.sum()} of {outside.size} outside the theorem"


@dataclass(frozen=True, slots=True)
class Interval:
    """Closed intervals [lower, upper] for true probabilities, and what they rest on.

    >>> lower, upper = np.array([-0.1, 0.4]), np.array([0.3, 0.6])
    >>> interval = Interval(lower, upper, rests_on=RestsOn.CALIBRATION_SET)
    >>> interval.contains([0.2, 0.7])
    array([ True, False])
    >>> interval.width
    array([0.4, 0.2])

    Attributes:
        lower: lower ends, any shape.
        upper: upper ends, of the same shape.
        rests_on: the assumption behind the intervals.
    """

    lower: FloatArray
    upper: FloatArray
    rests_on: RestsOn

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            array = as_floats(name, getattr(self, name), allow_infinite=True)
            object.__setattr__(self, name, array)
        same_shape(lower=self.lower, upper=self.upper)
        fail_at("lower", self.lower > self.upper, self.lower, "no more than upper")

    @property
    def width(self) -> FloatArray:
        """Upper - lower."""
        return self.upper - self.lower

    def contains(self, true_probs: ArrayLike) -> NDArray[np.bool_]:
        """Whether each value lies in its closed interval."""
        values = as_floats("true_probs", true_probs)
        same_shape(lower=self.lower, true_probs=values)
        return (self.lower <= values) & (values <= self.upper)


@dataclass(frozen=True, slots=True)
class Decision(Generic[ResponseT]):
    """What a decoder decided for one prompt.

    >>> scores = SelfCheatScores(np.log(0.45), np.log(0.5))
    >>> bound = Bound(0.1, RestsOn.CALIBRATED_PAIRS)
    >>> answer = Decision("heads", scores, gap=0.1, bound=bound, num_candidates=1)
    >>> answer.abstained
    False

    Attributes:
        response: the response, or None if the decoder abstained.
        scores: the scores of that response (shape `()`), or None if it abstained.
        gap: the confidence gap of that response, by which the decoder judged it; None if it
            abstained.
        bound: bounds the chance that the response is a statistical hallucination (Theorem 4.5;
            shape `()`). It is the gap, unless the confidence is above 1: the gap is no bound there
            (`bound.outside_theorem`). None if the decoder abstained.
        num_candidates: how many responses were sampled for this prompt.
        cut_off: whether the response was ended at the length limit, not by the model.
    """

    response: ResponseT | None
    scores: SelfCheatScores | None
    gap: float | None
    bound: Bound | None
    num_candidates: int
    cut_off: bool = False

    @property
    def abstained(self) -> bool:
        """Whether no response was given."""
        return self.response is None
