"""Rows that belong together: split by whole groups, copies found, held-out gains judged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from numbers import Number
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from secondguess._arrays import FloatArray, IntArray


def split_rows(
    num_rows: int,
    fractions: Sequence[float],
    *,
    rng: np.random.Generator,
    groups: ArrayLike | None = None,
) -> list[IntArray]:
    """Row numbers of random parts with the given shares; rows of one group stay together.

    >>> parts = split_rows(6, [0.5, 0.5], rng=np.random.default_rng(0), groups=[1, 1, 2, 2, 3, 4])
    >>> [part.tolist() for part in parts]
    [[0, 1, 4], [2, 3, 5]]

    Args:
        num_rows: n.
        fractions: the share of each part, summing to one.
        rng: decides which row (or group) goes where.
        groups: `(n,)` labels; near-duplicates belong to one group. The shares are then of groups.
    """
    if min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-9:
        raise ValueError(f"fractions is {list(fractions)}; expected positive shares that sum to 1.")
    keys = np.arange(num_rows) if groups is None else np.asarray(groups)
    if keys.shape != (num_rows,):
        raise ValueError(f"groups has shape {keys.shape}; expected ({num_rows},), one per row.")
    units, unit_of_row = np.unique(keys, return_inverse=True)
    edges = np.round(np.cumsum(fractions)[:-1] * len(units)).astype(int)
    part_of_unit = np.empty(len(units), dtype=int)
    part_of_unit[rng.permutation(len(units))] = np.searchsorted(
        edges, np.arange(len(units)), side="right"
    )
    parts = [np.flatnonzero(part_of_unit[unit_of_row] == part) for part in range(len(fractions))]
    if any(len(part) == 0 for part in parts):
        raise ValueError(
            f"{len(units)} {'rows' if groups is None else 'groups'} cannot be split into the "
            f"shares {list(fractions)}: a part would be empty. Use more data or fewer parts."
        )
    return parts


MIN_FOLDED = 10
"""With fewer rows (or groups) none are left out."""


def folds_of(
    num_rows: int,
    num_folds: int,
    *,
    rng: np.random.Generator,
    groups: ArrayLike | None = None,
) -> IntArray:
    """The fold of each row, `(n,)`, from 0; all 0 where there are too few rows to leave some out.

    >>> folds_of(12, 3, rng=np.random.default_rng(0), groups=[0, 0, *range(1, 11)])
    array([1, 1, 0, 1, 2, 0, 0, 2, 1, 0, 2, 1])

    Args:
        num_rows: n.
        num_folds: how many.
        rng: decides which row (or group) goes where.
        groups: `(n,)` labels; rows that share one are in the same fold.
    """
    units = np.arange(num_rows)
    if groups is not None:
        units = np.unique(np.asarray(groups), return_inverse=True)[1]
        if units.shape != (num_rows,):
            raise ValueError(
                f"groups has shape {units.shape}; expected ({num_rows},), one per row."
            )
    num_units = int(units.max()) + 1
    if num_units < MIN_FOLDED:
        return np.zeros(num_rows, dtype=np.int64)
    return rng.permutation(num_units)[units] % num_folds


def num_repeated_rows(inputs: Any) -> int:
    """How many rows are exact copies of an earlier one.

    >>> num_repeated_rows([[1, 2], [3, 4], [1, 2], [1, 2]])
    2

    Args:
        inputs: see `row_keys`.
    """
    keys = row_keys(inputs)
    return len(keys) - len(set(keys))


def row_keys(inputs: Any) -> list[str]:
    """A name for each row that follows from what is in it: copies of a row share theirs.

    >>> one, other, copy = row_keys([[1, 2], [3, 4], [1, 2]])
    >>> one == copy, one == other
    (True, False)

    Args:
        inputs: `(n, ...)`, numbers or objects; a sparse matrix; or several arrays by name.
    """
    # A digest for each row, so that a large X is not held in memory a second time.
    return [hashlib.blake2b(row, digest_size=16).hexdigest() for row in _row_bytes(inputs)]


def _row_bytes(inputs: Any) -> Iterator[bytes]:
    if sparse.issparse(inputs):
        matrix = sparse.csr_array(inputs)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
            yield matrix.indices[a:b].astype(np.int64).tobytes() + matrix.data[a:b].tobytes()
        return
    if isinstance(inputs, Mapping):
        arrays = [_as_array(part) for part in inputs.values()]
        inputs = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
    array = _as_array(inputs)
    rows = array.reshape(len(array), -1)
    if rows.dtype.kind == "f":
        rows = rows + 0.0  # -0.0 and 0.0 are the same number in different bytes
    for row in rows:
        if row.dtype.kind in "OSU":
            yield repr([_cell_key(cell) for cell in row.tolist()]).encode()
        else:
            yield row.tobytes()


def _cell_key(cell: Any) -> Any:
    """The cell itself where its `repr` tells it whole; else a digest of what is in it."""
    return cell if isinstance(cell, str | bytes | Number | None) else joblib.hash(cell)


def _as_array(inputs: Any) -> NDArray[Any]:
    """Tensors as well, wherever they are."""
    return np.asarray(inputs.detach().cpu() if hasattr(inputs, "detach") else inputs)


def is_clear(
    gain: FloatArray, weights: FloatArray | None = None, groups: NDArray[Any] | None = None
) -> bool:
    """Whether the mean gain of rows is above its standard error.

    >>> is_clear(np.array([1.0, 2.0, 3.0])), is_clear(np.array([-1.0, 2.0]))
    (True, False)

    Args:
        gain: `(n,)`, of each row.
        weights: `(n,)`; one each by default.
        groups: `(n,)` labels; rows of one group are no independent witnesses, so that the error is
            one over groups.
    """
    weights = np.ones(len(gain)) if weights is None else weights
    excess = weights * (gain - np.average(gain, weights=weights))
    if groups is not None:
        excess = np.bincount(np.unique(groups, return_inverse=True)[1], excess)
    return bool(gain @ weights > np.sqrt(np.square(excess).sum()))
