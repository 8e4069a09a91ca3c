"""A predicted distribution over p(.|x): finitely many candidates with weights.

What a mixture head trained on k responses per row says beyond mean and variance. Its quantile
intervals rest on calibration to the order of those k responses, which is neither calibration on
pairs nor a guarantee by a calibration set; `RestsOn.CALIBRATED_RESPONSES` names it.

Axes: rows (n), components (R), classes (K).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secondguess._arrays import FloatArray, check_rate
from secondguess.theory.entropy import EntropySplit, entropy_split
from secondguess.theory.records import Interval, Prediction, RestsOn


@dataclass(frozen=True, slots=True)
class PredictedDistribution:
    """Candidates for p(.|x), each row's with their weights.

    >>> coin = PredictedDistribution(np.array([[0.5, 0.3, 0.2]]), np.array([[[0.5], [0.2], [0.9]]]))
    >>> interval = coin.interval(miss_rate=0.5)
    >>> interval.lower, interval.upper, str(interval.rests_on)
    (array([[0.2]]), array([[0.5]]), 'if calibrated on k responses')

    Attributes:
        weights: `(n, R)`, rows summing to one.
        components: `(n, R, K)`.
    """

    weights: FloatArray
    components: FloatArray

    def prediction(self) -> Prediction:
        """Mean and variance of the candidates."""
        mean = np.einsum("nr,nrk->nk", self.weights, self.components)
        square = (self.components - mean[:, None]) ** 2
        return Prediction(mean, np.einsum("nr,nrk->nk", self.weights, square))

    def interval(self, miss_rate: float) -> Interval:
        """Closed intervals `(n, K)` with at most half of the miss rate on either side of them."""
        order = np.argsort(self.components, axis=1, kind="stable")
        values = np.take_along_axis(self.components, order, axis=1)
        weights = np.take_along_axis(
            np.broadcast_to(self.weights[..., None], values.shape), order, axis=1
        )
        half = check_rate("miss_rate", miss_rate) / 2
        slack = 1e-12  # a sum of weights that is half but for rounding is half
        first = np.argmax(np.cumsum(weights, axis=1) > half - slack, axis=1)
        from_above = np.cumsum(weights[:, ::-1], axis=1)
        last = values.shape[1] - 1 - np.argmax(from_above > half - slack, axis=1)
        lower, upper = (
            np.take_along_axis(values, at[:, None], axis=1)[:, 0] for at in (first, last)
        )
        return Interval(lower, upper, RestsOn.CALIBRATED_RESPONSES)

    def entropy(self) -> EntropySplit:
        """Total, aleatoric and epistemic entropy of each row, in nats."""
        return entropy_split(self.weights, self.components)
