"""The places of pair data: rows of different lengths side by side, and draws from them.

A row has as many annotations as its `multiplicity` adds up to; `PairData` says what they are.

Axes: rows (n), then places (d), some of them unused; draws are `(n, k)`, k annotations per row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import IntArray

Places = tuple[IntArray, IntArray]
"""Rows and places, both `(n, k)`, to index a table of places with."""

MAX_RESPONSES = 10**8
"""How many annotations are ever listed one by one: about 3 GB of memory."""


def in_places(used: NDArray[np.bool_], flat: NDArray[Any], unused: Any) -> NDArray[Any]:
    """One value after the other in the places that are used, `(n, d)`.

    >>> in_places(np.array([[True, True], [True, False]]), np.array([7, 8, 9]), 0)
    array([[7, 8],
           [9, 0]])

    Args:
        used: `(n, d)`, which places are.
        flat: the values of all rows, one row after the other.
        unused: the value of the other places.
    """
    placed = np.full(used.shape, unused, dtype=flat.dtype)
    placed[used] = flat
    return placed


def annotator_table(annotators: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Identities `(n, k)` from identities of that shape, or one per column.

    >>> annotator_table(["ann", "bob"], (2, 2)).tolist()
    [['ann', 'bob'], ['ann', 'bob']]
    """
    array = np.asarray(annotators)
    if array.shape not in (shape, shape[1:]):
        raise ValueError(
            f"annotators has shape {array.shape}; expected {shape}, one for each response, or "
            f"{shape[1:]}, one for each column."
        )
    return np.broadcast_to(array, shape)


def shuffled(multiplicity: IntArray, rng: np.random.Generator) -> Places:
    """As many annotations of each row as the shortest row has, all in random order.

    >>> rows, places = shuffled(np.array([[2, 1], [0, 2]]), np.random.default_rng(0))
    >>> rows.tolist(), places[1].tolist()
    ([[0, 0], [1, 1]], [1, 1])
    """
    total = multiplicity.sum(axis=1)
    if total.sum() > MAX_RESPONSES:
        raise ValueError(
            f"there are {total.sum():,} annotations, too many to list one by one; expected at most "
            f"{MAX_RESPONSES:,} (calibrate by counts, or take fewer)."
        )
    rows = np.repeat(np.arange(len(total)), total)
    places = np.repeat(np.tile(np.arange(multiplicity.shape[1]), len(total)), multiplicity.ravel())
    order = np.lexsort((rng.random(len(rows)), rows))
    starts = np.cumsum(total) - total
    chosen = order[starts[:, None] + np.arange(int(total.min()))]
    return rows[chosen], places[chosen]


def pair_places(multiplicity: IntArray, rng: np.random.Generator) -> Places:
    """Two annotations of each row, drawn without replacement; all rows have two or more.

    >>> pair_places(np.array([[1, 1]]), np.random.default_rng(0))[1].sum()  # one of each
    np.int64(1)
    """
    total = multiplicity.sum(axis=1)
    first = rng.integers(total)
    second = rng.integers(total - 1)
    second += second >= first  # the first annotation is no longer there
    ends = multiplicity.cumsum(axis=1)
    places = [(position[:, None] >= ends).sum(axis=1) for position in (first, second)]
    return np.arange(len(total))[:, None], np.stack(places, axis=1)
