"""Algorithm 1, and intervals from counts, for a classifier's predictions on pair data.

The order of the rows does not matter, a group is one unit by the mean over its rows, and a random
fifth chooses the cut-off where none is given. Which conditions remain is said by `conditions.py`.

Axes: rows (n), then classes (K) of a prediction, or responses (k).
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from secondguess.classification.pairs import PairData
from secondguess.theory.calibration.cutoff import calibrate
from secondguess.theory.calibration.families import ClassInflations, fit_inflation_by_class
from secondguess.theory.calibration.fit_intervals import fit_intervals
from secondguess.theory.calibration.fitted_intervals import FittedIntervals
from secondguess.theory.calibration.interval_plan import IntervalMethod
from secondguess.theory.records import Prediction


def fit_inflations(
    prediction: Prediction,
    data: PairData,
    *,
    failure_rate: float,
    min_variance: float | None = None,
    groups: ArrayLike | None = None,
    seed: int = 0,
) -> ClassInflations:
    """One variance inflation per class, guaranteed together.

    >>> rng = np.random.default_rng(0)
    >>> data = PairData.from_responses(rng.integers(2, size=(1000, 2)))  # fair coins
    >>> prediction = Prediction(np.full((1000, 2), 0.5), np.full((1000, 2), 0.01))
    >>> inflations = fit_inflations(prediction, data, failure_rate=0.05, min_variance=0.01)
    >>> [inflation.num_rows for inflation in inflations.inflations]
    [1000, 1000]

    Args:
        prediction: probabilities and variances `(n, K)` of rows that the model was not fitted to.
        data: the responses; where rows have different numbers of annotations, each gives as many
            as the poorest one has, chosen at random. With annotators, the guarantee is about the
            share among them.
        failure_rate: how often, over calibration sets, the guarantee of any class may not hold.
        min_variance: the least variance of an interval; by default a fifth of the rows is set
            aside to choose it, and not used again.
        groups: `(n,)` labels; rows that share one are one unit, by their mean.
        seed: of all that is random here.
    """
    responses, annotators = data.responses_and_annotators(np.random.default_rng(seed))
    options = {"groups": groups, "annotators": annotators, "seed": seed}
    rows = prediction.probs, prediction.variance, responses
    if min_variance is None:
        return cast("ClassInflations", calibrate(*rows, failure_rate=failure_rate, **options))
    return fit_inflation_by_class(
        *rows, min_variance=min_variance, failure_rate=failure_rate, **options
    )


def fit_class_intervals(
    prediction: Prediction,
    data: PairData,
    *,
    method: IntervalMethod,
    miss_rate: float,
    failure_rate: float,
    jointly: bool = False,
    groups: ArrayLike | None = None,
) -> FittedIntervals:
    """`fit_intervals` for all annotations of every row, none of them set aside.

    >>> rng = np.random.default_rng(0)
    >>> data = PairData.from_responses(rng.integers(2, size=(1000, 20)))  # fair coins
    >>> prediction = Prediction(np.full((1000, 2), 0.5), np.full((1000, 2), 0.01))
    >>> fitted = fit_class_intervals(
    ...     prediction, data, method="counts", miss_rate=0.1, failure_rate=0.05
    ... )
    >>> fitted.methods
    ('counts', 'counts')

    Args:
        prediction: probabilities and variances `(n, K)` of rows that the model was not fitted to.
        data: the responses, without annotators: a count rests on raters drawn at random.
        method: `auto`, `pairs` or `counts`.
        miss_rate: the share of inputs whose p(y|x) may lie outside.
        failure_rate: how often, over calibration sets, that may not hold.
        jointly: whether all classes of an input are to be held together.
        groups: `(n,)` labels; of rows that share one, a random one is used.
    """
    if data.annotators is not None:
        raise ValueError(
            "the annotators are named, and counts of responses rest on raters that are drawn at "
            "random for each row; expected method='pairs', which corrects for the few there are."
        )
    return fit_intervals(
        prediction.probs,
        prediction.variance,
        data.counts(),
        miss_rate=miss_rate,
        failure_rate=failure_rate,
        method=method,
        jointly=jointly,
        groups=groups,
    )
