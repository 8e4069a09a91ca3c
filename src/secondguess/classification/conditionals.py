"""From p(y1|x) and p(y2|x, y1) to valid joints, and the rows that teach a classifier both.

A classifier's two answers need not fit together: joined, they give a table that is not symmetric
and may have negative variances. `valid_joints` gives the nearest thing that is a joint.

Axes: rows (n), then classes (K) of y1, then classes of y2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.pairs import PairData

MOST_DRAWS = 5
"""Pairs, and single responses, that are drawn of each item at most.

The time of a fit grows with them, while further responses to the same item say less and less about
other items.
"""

SMOOTHINGS = (1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1)
"""Shares of equal chances to choose from; the smallest only keeps logarithms finite."""


def valid_joints(marginal: FloatArray, conditional: FloatArray) -> FloatArray:
    """Symmetric, non-negative, positive semidefinite tables near `p(y1) p(y2|y1)`.

    The table is averaged with its transpose, which fixes the marginal m. Divided by
    sqrt(m(y1) m(y2)) it has the eigenvalue 1 for sqrt(m), and others in [-1, 1], of which negative
    ones are set to 0: that keeps m. Where an entry is negative then, the table is mixed with
    m m^T until none is.

    >>> never_twice = np.array([[[0.0, 1.0], [1.0, 0.0]]])  # a negative variance
    >>> valid_joints(np.array([[0.5, 0.5]]), never_twice)
    array([[[0.25, 0.25],
            [0.25, 0.25]]])

    Args:
        marginal: `(n, K)`, positive.
        conditional: `(n, K, K)`, one row for each y1.
    """
    table = marginal[:, :, None] * conditional
    table = (table + table.transpose(0, 2, 1)) / 2
    mean = table.sum(axis=2)
    root = np.sqrt(mean[:, :, None] * mean[:, None, :])
    values, vectors = np.linalg.eigh(table / root)
    clipped = np.clip(values, 0, 1)
    table = np.einsum("nik,nk,njk->nij", vectors, clipped, vectors) * root
    independent = mean[:, :, None] * mean[:, None, :]
    below = np.maximum(-table, 0.0)
    share = (below / (independent + below)).max(axis=(1, 2))[:, None, None]
    table = np.maximum((1 - share) * table + share * independent, 0.0)
    table = (table + table.transpose(0, 2, 1)) / 2
    return table / table.sum(axis=(1, 2), keepdims=True)


def draw_responses(data: PairData, rng: np.random.Generator) -> tuple[IntArray, IntArray, IntArray]:
    """Rows to learn from: items, the first response (-1 where absent) and the response wanted.

    As many pairs and as many single responses of each item as it has responses, up to
    `MOST_DRAWS`, so that an estimator needs no weights.

    >>> data = PairData.from_responses([[0, 1], [1, 1]])
    >>> rows, first, response = draw_responses(data, np.random.default_rng(0))
    >>> rows.tolist(), sorted(first.tolist())
    ([0, 0, 1, 1, 0, 0, 1, 1], [-1, -1, -1, -1, 0, 1, 1, 1])
    """
    counts = data.counts()
    total = counts.sum(axis=1)
    draws = np.minimum(total, MOST_DRAWS)
    every = np.repeat(np.arange(len(data)), draws)
    place = np.arange(len(every)) - np.repeat(np.cumsum(draws) - draws, draws)
    labels = np.repeat(np.tile(np.arange(data.num_classes), len(data)), counts.ravel())
    owner = np.repeat(np.arange(len(data)), total)
    labels = labels[np.lexsort((rng.random(len(labels)), owner))]  # shuffled within each item
    starts = np.cumsum(total) - total
    single = labels[starts[every] + place]
    paired = total[every] > 1
    rows, at = every[paired], place[paired]
    second = labels[starts[rows] + (at + 1) % total[rows]]  # its neighbour in random order
    return (
        np.concatenate([every, rows]),
        np.concatenate([np.full(len(every), -1), single[paired]]),
        np.concatenate([single, second]),
    )


def with_first_response(features: Any, first: IntArray, classes: NDArray[Any]) -> Any:
    """The features with a column of zeros and ones for each class behind them.

    >>> with_first_response(np.array([[7.0], [8.0]]), np.array([1, -1]), np.array(["a", "b"]))
    array([[7., 0., 1.],
           [8., 0., 0.]])

    Args:
        features: `(n, d)`: an array, a sparse matrix, or a DataFrame of pandas or polars.
        first: `(n,)` class indices, -1 where the response is absent.
        classes: `(K,)` labels, which name the columns of a DataFrame.
    """
    columns = (first[:, None] == np.arange(len(classes))).astype(np.float64)
    names = [f"first_response_{label}" for label in classes.tolist()]
    if hasattr(features, "iloc"):
        table = features.copy(deep=False)
        if not all(isinstance(name, str) for name in table.columns):
            # Names of one kind only: beside 0, 1, 2 come 3, 4.
            start = 1 + max((n for n in table.columns if isinstance(n, int)), default=-1)
            names = list(range(start, start + len(classes)))
        table[names] = columns
        return table
    if hasattr(features, "with_columns"):
        return features.with_columns(**dict(zip(names, columns.T, strict=True)))
    if sparse.issparse(features):
        return sparse.hstack([features, columns], format="csr")
    array = np.asarray(features)
    return np.hstack([array, columns.astype(array.dtype if array.dtype.kind in "fO" else float)])


def smoothed(
    marginal: FloatArray, conditional: FloatArray, smoothing: float
) -> tuple[FloatArray, FloatArray]:
    """Both mixed with equal chances, so that nothing is impossible (forests say 0).

    >>> smoothed(np.array([[1.0, 0.0]]), np.eye(2)[None], 0.1)[0]
    array([[0.95, 0.05]])
    """

    def mixed(probs: FloatArray) -> FloatArray:
        share = probs / probs.sum(axis=-1, keepdims=True)
        return (1 - smoothing) * share + smoothing / probs.shape[-1]

    return mixed(marginal), mixed(conditional)


def smoothing_of(marginal: FloatArray, data: PairData, weights: FloatArray | None = None) -> float:
    """The smoothing that makes the responses to held-out rows most likely.

    >>> smoothing_of(np.array([[1.0, 0.0]] * 2), PairData.from_responses([[0, 0], [0, 1]]))
    0.1
    """
    counts = data.counts()
    shares = counts / counts.sum(axis=1, keepdims=True)
    if weights is not None:
        shares = shares * weights[:, None]

    def loss(smoothing: float) -> float:
        probs = (1 - smoothing) * marginal + smoothing / marginal.shape[1]
        return -float((shares * np.log(probs)).sum())

    return min(SMOOTHINGS, key=loss)
