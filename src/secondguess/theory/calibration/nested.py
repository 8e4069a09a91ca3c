"""Nested families of intervals: what a predictor's mean and variance say at every radius.

A family gives a closed interval for each row and each radius r >= 0, and a larger radius gives an
interval that contains the smaller one. Certifying an interval then means choosing one radius for
all rows, which `counts.py` does; nothing here looks at responses. Arrays have one entry per row (or
per row and class): `probs` in [0, 1] and `variance`, which may be negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import special

from secondguess._arrays import FloatArray

FamilyKind = Literal["symmetric", "beta"]

# A Beta law needs its mean strictly inside (0, 1) and its variance strictly inside (0, p (1 - p)).
_MEAN_MARGIN = 1e-9
_LEAST_SHARE, _LARGEST_SHARE = 1e-6, 0.999
# Smaller tails have lost digits, and their quantiles with them.
_LEAST_TAIL = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True)
class NestedFamily:
    """Intervals that grow with one radius, from a predicted mean and variance.

    `symmetric`: probs ± r sqrt(max(variance, min_variance)), the shape of Algorithm 1.

    `beta`: from the quantile at 2^-(r+1) to the quantile at 1 - 2^-(r+1) of the Beta law with the
    predicted mean and variance, and sqrt(min_variance) further on both sides. It is lopsided near 0
    and 1, as the truth is there.

    Both are cut to [0, 1], and both are all of [0, 1] at an infinite radius.

    >>> probs, variance = np.array([0.5, 0.01]), np.array([0.01, 0.0001])
    >>> lower, upper = NestedFamily("symmetric", 0.0004).ends(probs, variance, 2.0)
    >>> lower.round(3), upper.round(3)
    (array([0.3, 0. ]), array([0.7 , 0.05]))
    >>> lower, upper = NestedFamily("beta", 0.0001).ends(probs, variance, 4.0)
    >>> lower.round(3), upper.round(3)
    (array([0.305, 0.   ]), array([0.695, 0.045]))

    Attributes:
        kind: `symmetric` or `beta`.
        min_variance: the least variance of an interval, in (0, 1].
    """

    kind: FamilyKind
    min_variance: float

    def __post_init__(self) -> None:
        if self.kind not in get_args(FamilyKind):
            raise ValueError(
                f"kind is {self.kind!r}; expected one of {', '.join(get_args(FamilyKind))}."
            )
        if not 1e-12 <= self.min_variance <= 1:
            raise ValueError(
                f"min_variance is {self.min_variance!r}; expected a variance from 1e-12 to 1."
            )

    def ends(
        self, probs: FloatArray, variance: FloatArray, radius: float
    ) -> tuple[FloatArray, FloatArray]:
        """The lower and upper ends at a radius, within [0, 1]."""
        if np.isinf(radius):
            return np.zeros_like(probs), np.ones_like(probs)
        if self.kind == "symmetric":
            reach = radius * self._deviation(variance)
            return np.clip(probs - reach, 0, 1), np.clip(probs + reach, 0, 1)
        tail = 2.0 ** -(radius + 1)
        if tail < _LEAST_TAIL:
            return np.zeros_like(probs), np.ones_like(probs)
        shapes, margin = beta_shapes(probs, variance), self._margin
        # The quantile of a tail that is next to nothing may fail; the end of the range holds it.
        lower = np.nan_to_num(special.betaincinv(*shapes, tail), nan=0.0) - margin
        upper = np.nan_to_num(special.betainccinv(*shapes, tail), nan=1.0) + margin
        return np.clip(lower, 0, 1), np.clip(upper, 0, 1)

    def radius_to_hold(
        self, probs: FloatArray, variance: FloatArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """The least radius at which each interval holds both points; infinite where none does.

        >>> family = NestedFamily("symmetric", 0.0004)
        >>> one = np.ones(1)
        >>> family.radius_to_hold(0.5 * one, 0.01 * one, 0.4 * one, 0.7 * one).round(6)
        array([2.])

        Args:
            probs: shape `(n,)`.
            variance: of the same shape.
            lower: the lower points, of the same shape, in [0, 1].
            upper: the upper points; no less than `lower`.
        """
        if self.kind == "symmetric":
            reach = np.maximum(upper - probs, probs - lower)
            reach /= self._deviation(variance)
            return np.maximum(reach, 0.0, out=reach)
        shapes, margin = beta_shapes(probs, variance), self._margin
        tail = np.minimum(
            special.betaincc(*shapes, np.clip(upper - margin, 0, 1)),
            special.betainc(*shapes, np.clip(lower + margin, 0, 1)),
        )
        tail[tail < _LEAST_TAIL] = 0.0
        with np.errstate(divide="ignore"):
            return np.maximum(-1.0 - np.log2(tail), 0.0)

    @property
    def _margin(self) -> float:
        return float(np.sqrt(self.min_variance))

    def _deviation(self, variance: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(variance, self.min_variance))


def beta_shapes(probs: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both parameters of the Beta law with this mean and variance, or the nearest there is."""
    mean = np.clip(probs, _MEAN_MARGIN, 1 - _MEAN_MARGIN)
    share = np.clip(variance / (mean * (1 - mean)), _LEAST_SHARE, _LARGEST_SHARE)
    size = 1 / share - 1
    return mean * size, (1 - mean) * size
