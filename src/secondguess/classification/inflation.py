"""Algorithm 1 for a classifier's predictions, on pair data."""

from __future__ import annotations

import numpy as np

from secondguess.classification.pairs import PairData
from secondguess.classification.splitting import split_rows
from secondguess.theory.calibration.cutoff import select_min_variance
from secondguess.theory.calibration.families import ClassInflations, fit_by_class
from secondguess.theory.records import Prediction

_SHARE_TO_CHOOSE = 0.2


def fit_inflations(
    prediction: Prediction,
    data: PairData,
    *,
    failure_rate: float,
    min_variance: float | None = None,
    seed: int = 0,
) -> ClassInflations:
    """One variance inflation a class, guaranteed together.

    >>> rng = np.random.default_rng(0)
    >>> data = PairData.from_responses(rng.integers(2, size=(1000, 2)))  # fair coins
    >>> prediction = Prediction(np.full((1000, 2), 0.5), np.full((1000, 2), 0.01))
    >>> inflations = fit_inflations(prediction, data, failure_rate=0.05, min_variance=0.01)
    >>> [inflation.num_rows for inflation in inflations.inflations]
    [1000, 1000]

    Args:
        prediction: probabilities and variances `(n, K)` of rows that the model was not fitted to.
        data: the responses; where rows have different numbers of annotations, each gives as many
            as the poorest one has, chosen at random.
        failure_rate: how often, over calibration sets, the guarantee of any class may not hold.
        min_variance: the least variance of an interval; by default a fifth of the rows is set
            aside to choose it, and not used again.
        seed: of that choice.
    """
    rng = np.random.default_rng(seed)
    responses = data.responses(rng)
    rows = np.arange(len(data))
    if min_variance is None:
        chosen, rows = split_rows(len(data), [_SHARE_TO_CHOOSE, 1 - _SHARE_TO_CHOOSE], rng=rng)
        is_class = responses[chosen, None, :] == np.arange(data.num_classes)[:, None]
        min_variance = select_min_variance(
            prediction.probs[chosen].ravel(),
            prediction.variance[chosen].ravel(),
            is_class.reshape(-1, responses.shape[1]),
            num_calibration_rows=len(rows),
            failure_rate=failure_rate / data.num_classes,
        )
    return fit_by_class(
        prediction.probs[rows],
        prediction.variance[rows],
        responses[rows],
        min_variance=min_variance,
        failure_rate=failure_rate,
    )
