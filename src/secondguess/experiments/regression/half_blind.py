"""A predictor of the one-dimensional world in closed form, for calibration tables without training.

It behaves like a network that has learned the slow wave everywhere and the fast one only where that
is slow enough: near zero it averages the fast wave out and says so in its variance, far from zero
it is exact and sure of it. In between it is slightly off in both respects, as trained models are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray
from secondguess.experiments.regression.data import true_probability
from secondguess.theory.records import Prediction

_FAST_VARIANCE = (0.98 * 0.6 / 2) ** 2 / 2  # of the fast wave over one period


def half_blind_predictor(inputs: ArrayLike) -> Prediction:
    """What the predictor says at `(n,)` inputs.

    >>> prediction = half_blind_predictor([0.5, 2.5])
    >>> prediction.probs.round(3), prediction.variance.round(6)
    (array([0.401, 0.701]), array([0.043218, 0.      ]))
    """
    x = np.asarray(inputs, dtype=np.float64)
    slow = (0.98 * 0.4 * np.cos(4.2 * x) + 1) / 2
    unseen = 1 / (1 + np.exp((np.abs(x) - 1.2) / 0.05))
    probs = slow + (1 - unseen) * (true_probability(x) - slow)
    return Prediction(probs=probs, variance=_FAST_VARIANCE * unseen**2)


def mean_scaled_squared_error(probs: FloatArray, variance: FloatArray, inputs: FloatArray) -> float:
    """E[D] of a predictor, from its outputs on an even grid of inputs over the normal law.

    >>> inputs = np.linspace(-9, 9, 200_001)
    >>> prediction = half_blind_predictor(inputs)
    >>> raised = np.maximum(prediction.variance, 0.02**2)
    >>> round(mean_scaled_squared_error(prediction.probs, raised, inputs), 3)
    0.817
    """
    weights = np.exp(-(inputs**2) / 2)
    errors = (true_probability(inputs) - probs) ** 2 / variance
    return float(weights @ errors / weights.sum())
