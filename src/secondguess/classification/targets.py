"""Targets of the estimator: which kind of array y is, stated by the user and checked for sense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.classification.pairs import PairData

Targets = Literal["responses", "counts"]

_MIN_ROWS_TO_JUDGE = 10


def read_targets(
    targets: Targets | None, values: ArrayLike | PairData, classes: Sequence[Any] | None
) -> PairData:
    """Pair data from an array of the stated kind.

    An array that looks like the other kind is refused, unless `classes` confirms the statement.

    >>> read_targets("responses", [["a", "b"], ["b", "b"]], None).counts()
    array([[1, 1],
           [0, 2]])
    >>> read_targets("counts", [[1, 1], [0, 2]], ["a", "b"]).classes
    array(['a', 'b'], dtype='<U1')

    Args:
        targets: `responses`, one column a response, or `counts`, one column a class.
        values: the array; pair data pass through.
        classes: the labels there are; by default as in `PairData`.
    """
    if isinstance(values, PairData):
        return values
    if targets is None or targets not in get_args(Targets):
        raise ValueError(
            f"targets is {targets!r}; expected 'responses' (an (n, k) array with one response a "
            f"column) or 'counts' (an (n, num_classes) array of annotator counts). It is never "
            f"guessed, because an array of integers could be either."
        )
    array = np.asarray(values)
    if array.dtype.kind == "f" and np.isinf(array).any():
        raise ValueError("Input y contains infinity; expected labels or whole numbers.")
    if array.dtype.kind == "f" and not (np.isnan(array) | (array == np.floor(array))).all():
        raise ValueError(
            f"Unknown label type: continuous. targets={targets!r} expects labels or whole numbers; "
            f"for a measured quantity, cut it into classes first."
        )
    if classes is None:
        _refuse_the_other_kind(targets, array)
    if targets == "responses":
        return PairData.from_responses(array, classes=classes)
    return PairData.from_counts(array, classes=classes)


def _refuse_the_other_kind(targets: Targets, array: NDArray[Any]) -> None:
    """Raise where the columns behave like the other kind of target.

    Columns that are responses to the same input agree more often than chance, so that a row's sum
    varies at least as much as independent columns would make it. Columns that are counts compete
    for the annotators of a row, so that its sum varies much less.
    """
    if targets == "counts" and array.dtype.kind not in "iufb":
        raise ValueError(
            f"targets='counts' expects whole numbers, but y holds {array.dtype} labels; for one "
            f"response a column use targets='responses'."
        )
    if array.ndim != 2 or len(array) < _MIN_ROWS_TO_JUDGE or array.dtype.kind not in "iuf":
        return
    independent = array.var(axis=0).sum()
    variation = array.sum(axis=1).var()
    if targets == "responses" and array.min() >= 0 and variation < 0.5 * independent:
        raise ValueError(
            f"y of shape {array.shape} looks like annotator counts (the columns of a row make up "
            f"for each other), but targets='responses'. Use targets='counts', or confirm that "
            f"each column is a response by naming the labels (classes=...)."
        )
    same_total = np.ptp(array.sum(axis=1)) == 0
    agree = np.mean(array == array[:, :1])
    if targets == "counts" and not same_total and variation > independent and agree > 0.5:
        raise ValueError(
            f"y of shape {array.shape} looks like responses (the columns of a row mostly agree), "
            f"but targets='counts'. Use targets='responses', or confirm that each column counts a "
            f"class by naming the classes (classes=...)."
        )
