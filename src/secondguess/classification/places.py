"""The places of pair data: rows of different lengths side by side, and draws from them.

A row has as many annotations as its `multiplicity` adds up to; `PairData` says what they are.

Axes: rows (n), then places (d), some of them unused; draws are `(n, k)`, k annotations per row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import IntArray
from secondguess.classification.labels import flatten_rows

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


def annotators_in_places(
    annotators: Iterable[Iterable[Any]], used: NDArray[np.bool_]
) -> NDArray[Any]:
    """Identities `(n, d)` from one list per row, in the places that are used.

    >>> used = np.array([[True, True], [True, False]])
    >>> annotators_in_places([["ann", "bob"], ["bob"]], used)[1, 0]
    np.str_('bob')
    """
    names = [list(row) for row in annotators]
    if [len(row) for row in names] != used.sum(axis=1).tolist():
        raise ValueError(
            "annotators and responses have rows of different lengths; expected one annotator for "
            "each label."
        )
    flat = flatten_rows(names)
    # An unused place repeats a name that occurs, so that it needs no name of its own.
    return in_places(used, flat, flat[0])


def places_of_counts(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Labels and multiplicities, both `(n, d)`, of counts `(n, K)`.

    Chosen classes come first, so that a row needs only as many places as the busiest row has.

    >>> places_of_counts(np.array([[0, 3, 0], [2, 0, 0]]))
    (array([[1], [0]]), array([[3], [2]]))
    """
    order = np.argsort(counts == 0, axis=1, kind="stable")
    order = order[:, : int((counts > 0).sum(axis=1).max())]
    return order, np.take_along_axis(counts, order, axis=1)


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
    """Two annotations of each row, drawn without replacement.

    >>> pair_places(np.array([[1, 1]]), np.random.default_rng(0))[1].sum()  # one of each
    np.int64(1)
    """
    total = multiplicity.sum(axis=1)
    if total.min() < 2:
        raise ValueError(
            f"row {int(np.argmin(total))} has 1 response; expected at least 2 to draw a pair. "
            f"data[data.has_pair] leaves such rows out."
        )
    first = rng.integers(total)
    second = rng.integers(total - 1)
    second += second >= first  # the first annotation is no longer there
    ends = multiplicity.cumsum(axis=1)
    places = [(position[:, None] >= ends).sum(axis=1) for position in (first, second)]
    return np.arange(len(total))[:, None], np.stack(places, axis=1)
