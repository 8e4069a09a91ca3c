"""Algorithm 1, and intervals from counts, for a classifier's predictions on pair data.

Rows are taken in a random order that does not depend on the data, one from each group, and a fifth
of them chooses the cut-off where none is given. Which conditions remain is said by `conditions.py`.

Axes: rows (n), then classes (K) of a prediction, or responses (k).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import IntArray
from secondguess.classification.pairs import PairData
from secondguess.classification.splitting import one_row_per_group
from secondguess.theory.calibration.cutoff import select_min_variance
from secondguess.theory.calibration.families import ClassInflations
from secondguess.theory.calibration.fit_intervals import IntervalMethod, fit_intervals
from secondguess.theory.calibration.fitted_intervals import FittedIntervals
from secondguess.theory.calibration.inflation import (
    InflationStream,
    VarianceInflation,
    scaled_products,
)
from secondguess.theory.calibration.raters import self_pair_share
from secondguess.theory.records import Prediction

_SHARE_TO_CHOOSE = 0.2


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
        groups: `(n,)` labels; of rows that share one, a random one is used.
        seed: of all that is random here.

    Raises:
        ValueError: a bound came out below 0, where the mean of a square cannot be.
    """
    rng = np.random.default_rng(seed)
    responses, annotators = data.responses_and_annotators(rng)
    rows = one_row_per_group(len(data), groups, rng=rng)
    if min_variance is None:
        num_chosen = round(_SHARE_TO_CHOOSE * len(rows))
        chosen, rows = rows[:num_chosen], rows[num_chosen:]
        is_class = responses[chosen, None, :] == np.arange(data.num_classes)[:, None]
        min_variance = select_min_variance(
            prediction.probs[chosen].ravel(),
            prediction.variance[chosen].ravel(),
            is_class.reshape(-1, responses.shape[1]),
            num_calibration_rows=len(rows),
            failure_rate=failure_rate / data.num_classes,
        )
    self_pairs = 0.0 if annotators is None else self_pair_share(annotators[rows])
    probs, variance, given = prediction.probs[rows], prediction.variance[rows], responses[rows]
    inflations = ClassInflations(
        tuple(
            _fit_class(
                Prediction(probs[:, c], variance[:, c]),
                (given == c).astype(np.int64),
                self_pairs=self_pairs,
                min_variance=min_variance,
                failure_rate=failure_rate / data.num_classes,
            )
            for c in range(data.num_classes)
        )
    )
    _refuse_negative(inflations, data)
    return inflations


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


def _fit_class(
    prediction: Prediction,
    is_class: IntArray,
    *,
    self_pairs: float,
    min_variance: float,
    failure_rate: float,
) -> VarianceInflation:
    """Algorithm 1 for one class, with the self pairs of `self_pair_share` added to the products."""
    probs, variance = prediction.probs, prediction.variance
    num_responses = is_class.shape[1]
    stream = InflationStream(min_variance=min_variance, num_responses=num_responses)
    products = scaled_products(probs, variance, is_class, min_variance)
    # The mean of (y1 - y2)^2 / 2 over the pairs of k responses of which c are 1.
    count = is_class.sum(axis=1)
    differ = count * (num_responses - count) / (num_responses * (num_responses - 1))
    products += self_pairs * differ / np.maximum(variance, min_variance)
    stream.products.update(products)
    stream.num_negative_variances += int(np.count_nonzero(variance < 0))
    return stream.result(failure_rate)


def _refuse_negative(inflations: ClassInflations, data: PairData) -> None:
    for label, inflation in zip(data.classes.tolist(), inflations.inflations, strict=True):
        if inflation.clipped:
            raise ValueError(
                f"the upper bound on the scaled squared error of class {label!r} is "
                f"{inflation.upper_bound:.3g}, but the mean of a square is not below 0. "
                f"Independent responses give that with probability {inflation.failure_rate:.2g} at "
                f"most, so the responses to an input differ more than draws from one population "
                f"do: fixed raters (say who answered: annotators=), or a rater asked because of "
                f"what another one said."
            )
