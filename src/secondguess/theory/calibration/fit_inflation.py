"""Algorithm 1 on a calibration set in memory: one call from rows to the variance inflation.

The algorithm itself, and sets that are read in chunks, are in `inflation.py`, which also says what
the rows are. For the choice of the cut-off see `cutoff.py`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.theory.calibration.inflation import InflationStream, VarianceInflation
from secondguess.theory.calibration.means import MeanMethod
from secondguess.theory.calibration.raters import self_pair_share

Annotators = ArrayLike | Literal["columns"] | None
"""Who gave each response: identities `(n, k)`, or one person per column, or raters drawn at random
for every row."""


def fit_variance_inflation(
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
) -> VarianceInflation:
    """Algorithm 1 on a calibration set in memory.

    >>> rng = np.random.default_rng(0)
    >>> true_probs = rng.uniform(0.1, 0.9, size=4000)
    >>> responses = rng.random((4000, 2)) < true_probs[:, None]
    >>> probs, variance = np.full(4000, 0.5), np.full(4000, 0.01)  # variance stated too small
    >>> inflation = fit_variance_inflation(
    ...     probs, variance, responses, min_variance=0.01, failure_rate=0.05
    ... )
    >>> round(inflation.value, 1), round(np.mean((true_probs - 0.5)**2) / 0.01, 1)
    (5.7, np.float64(5.3))
    >>> inflation.interval(probs, variance, miss_rate=0.1).contains(true_probs).mean()
    np.float64(1.0)

    Args:
        probs: predicted probability of response 1, shape `(n,)`.
        variance: its stated epistemic variance, shape `(n,)`; may be negative.
        responses: zeros and ones, shape `(n, k)`, k >= 2 independent responses to each input.
        min_variance: the cutoff epsilon of the paper, fixed before looking at these rows (see
            `calibrate`, which chooses it); smaller allows narrower intervals where the predictor
            is sure, but needs more rows.
        failure_rate: how often, over calibration sets, the guarantee may not hold.
        groups: which rows belong together because they are not independent, shape `(n,)`. A group
            is then one unit, by the mean over its rows, and the guarantee is for a random row of a
            random group.
        annotators: who gave each response, shape `(n, k)`, or "columns" where each column is one
            person; p(y|x) is then the share among these raters (see `raters.py`). Without it the
            columns are tested for equal leanings.
        method: how the mean is bounded: `betting`, `bernstein` or `hoeffding`.
        seed: of the random order that the rows are taken in; not to be chosen by the result.

    Raises:
        UnequalRatersError: if the columns of responses are not exchangeable.
        DependentResponsesError: if the responses disagree more than independent ones can. Each of
            the two refuses sound data once in 1,000 times at most.
    """
    stream = stream_of(
        probs,
        variance,
        responses,
        min_variance=min_variance,
        groups=groups,
        annotators=annotators,
        method=method,
        seed=seed,
    )
    return stream.result(failure_rate)


def stream_of(
    probs: ArrayLike,
    variance: ArrayLike,
    responses: ArrayLike,
    *,
    min_variance: float,
    groups: ArrayLike | None,
    annotators: Annotators,
    method: MeanMethod,
    seed: int = 0,
    used: NDArray[np.bool_] | None = None,
) -> InflationStream:
    """An `InflationStream` fed once."""
    array = np.asarray(responses)
    if array.ndim != 2:
        raise ValueError(
            f"responses has shape {array.shape}; expected (n, k), k responses per row."
        )
    stream = InflationStream(
        min_variance=min_variance,
        num_responses=array.shape[1],
        method=method,
        self_pairs=_self_pairs(annotators, array),
        seed=seed,
    )
    stream.update(probs, variance, array, groups=groups, used=used)
    return stream


def _self_pairs(annotators: Annotators, responses: NDArray) -> float | None:
    if annotators is None:
        return None
    if isinstance(annotators, str):
        if annotators != "columns":
            raise ValueError(
                f"annotators is {annotators!r}; expected identities of shape "
                f"{responses.shape}, or 'columns' where each column is one person."
            )
        return 1 / responses.shape[1]
    if np.shape(annotators) != responses.shape:
        raise ValueError(
            f"annotators has shape {np.shape(annotators)}; expected {responses.shape}, one "
            f"identity per response."
        )
    return self_pair_share(annotators)
