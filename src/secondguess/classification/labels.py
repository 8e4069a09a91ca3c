"""Labels: what kind of array they come in, and the class indices that stand for them.

`check_targets` doubts an array that does not look like what its owner says it is; `encode_labels`
turns labels of any hashable kind into class indices. `pairs.py` builds `PairData` from both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import IntArray

Targets = Literal["responses", "counts"]

_MIN_ROWS_TO_JUDGE = 10


def check_targets(targets: Targets | None, array: NDArray[Any], *, confirmed: bool = False) -> None:
    """Raise where an array cannot be, or does not look like, what `targets` says it is.

    >>> check_targets("responses", np.array([["a", "b"], ["b", "b"]]))

    Args:
        targets: `responses`, one column per response, or `counts`, one column per class.
        array: the array.
        confirmed: whether the labels were named, so that the looks of the array do not matter.
    """
    if targets is None or targets not in get_args(Targets):
        raise ValueError(
            f"targets is {targets!r}; expected 'responses' (an (n, k) array with one column per "
            f"response) or 'counts' (an (n, num_classes) array of annotator counts). It is never "
            f"guessed, because an array of integers could be either."
        )
    if array.dtype.kind == "f" and np.isinf(array).any():
        raise ValueError("Input y contains infinity; expected labels or whole numbers.")
    refuse_shares(array)
    if array.dtype.kind == "f" and not (np.isnan(array) | (array == np.floor(array))).all():
        raise ValueError(
            f"Unknown label type: continuous. targets={targets!r} expects labels or whole numbers; "
            f"for a measured quantity, cut it into classes first."
        )
    if not confirmed:
        _refuse_the_other_kind(targets, array)


def as_table(values: Any) -> NDArray[Any]:
    """Labels as an array; rows of different lengths are told where to go.

    >>> as_table([["a", "b"], ["b", "b"]]).shape
    (2, 2)
    """
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(
            "the rows of y have different lengths; expected an array, or, where items have "
            "different numbers of labels, PairData.from_ragged(y) as y."
        ) from None


def refuse_shares(array: NDArray[Any]) -> None:
    """Raise where rows are shares of annotators, which do not say how many there were.

    >>> refuse_shares(np.array([[2, 3], [5, 0]]))  # counts are fine
    """
    if array.dtype.kind != "f" or array.ndim != 2 or array.shape[1] < 2:
        return
    if (array >= 0).all() and (array % 1 != 0).any() and np.allclose(array.sum(axis=1), 1):
        raise ValueError(
            "y looks like soft labels (fractions that sum to 1 in each row), which do not say how "
            "many people stand behind them; expected counts. Multiply each row by its number of "
            "annotators: np.rint(shares * num_annotators[:, None]), with targets='counts'."
        )


def _refuse_the_other_kind(targets: Targets, array: NDArray[Any]) -> None:
    """Raise where the columns behave like the other kind of target.

    Columns that are responses to the same input agree more often than chance, so that a row's sum
    varies at least as much as independent columns would make it. Columns that are counts compete
    for the annotators of a row, so that its sum varies much less.
    """
    if targets == "counts" and array.dtype.kind not in "iufb":
        raise ValueError(
            f"targets='counts' expects whole numbers, but y holds {array.dtype} labels; for one "
            f"column per response use targets='responses'."
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


def encode_labels(
    flat: NDArray[Any], classes: Sequence[Any] | None
) -> tuple[NDArray[Any], IntArray]:
    """The classes and the class index of every label.

    >>> encode_labels(np.array(["b", "a", "b"]), None)
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1]))

    Args:
        flat: the labels, one-dimensional.
        classes: the labels there may be, in their order; by default those that occur, sorted.
    """
    if flat.dtype.kind == "f" and np.isnan(flat).any():
        raise ValueError(
            "responses contains NaN. If NaN marks an annotation that is missing, pass each row's "
            "own list of labels to PairData.from_ragged."
        )
    if flat.dtype.kind == "O":
        return _encode_objects(flat, classes)
    found, codes = np.unique(flat, return_inverse=True)
    if classes is None:
        return found, codes.astype(np.int64)
    known = as_classes(classes)
    positions, unseen = positions_of(found.tolist(), known.tolist())
    refuse_unknown(unseen, known)
    return known, positions[codes]


def _encode_objects(
    flat: NDArray[Any], classes: Sequence[Any] | None
) -> tuple[NDArray[Any], IntArray]:
    """As `encode_labels`, for labels that are only hashable; the unsortable keep their order."""
    found: list[Hashable] = list(dict.fromkeys(flat.tolist()))
    if any(label is None or label != label for label in found):
        raise ValueError(
            "responses contains None or NaN. If it marks an annotation that is missing, pass each "
            "row's own list of labels to PairData.from_ragged."
        )
    if classes is None:
        with contextlib.suppress(TypeError):
            found = sorted(found)  # pyright: ignore[reportArgumentType]
        classes = found
    known = as_classes(classes)
    positions, unseen = positions_of(flat.tolist(), known.tolist())
    refuse_unknown(unseen, known)
    return known, positions


def positions_of(labels: list[Any], known: list[Any]) -> tuple[IntArray, list[Any]]:
    """Where each label is among the known ones, -1 where it is not, and the labels that are not.

    >>> positions_of(["b", "z", "a"], ["a", "b"])
    (array([ 1, -1,  0]), ['z'])
    """
    index = {label: position for position, label in enumerate(known)}
    unseen = [label for label in dict.fromkeys(labels) if label not in index]
    return np.array([index.get(label, -1) for label in labels], dtype=np.int64), unseen


def refuse_unknown(unseen: list[Any], known: NDArray[Any]) -> None:
    """Raise if there are labels that are not among the classes."""
    if unseen:
        shown = ", ".join(map(repr, unseen[:5])) + (", ..." if len(unseen) > 5 else "")
        raise ValueError(
            f"responses contains labels that are not among the classes: {shown}. The classes are "
            f"{known.tolist()[:20]}; drop those rows, or name all classes at the start "
            f"(classes=...)."
        )


def as_classes(classes: Sequence[Any]) -> NDArray[Any]:
    """An array of the labels, of their common type where they have one, else of objects."""
    labels = list(classes)
    if len(set(labels)) != len(labels):
        raise ValueError(f"classes contains a label twice: {labels}.")
    array = np.asarray(labels) if len({type(label) for label in labels}) == 1 else None
    if array is None or array.ndim != 1:  # mixed types, or tuples that NumPy would unpack
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
    return array


def flatten_rows(rows: list[list[Any]]) -> NDArray[Any]:
    """All labels in one array, without turning labels of different types into strings."""
    labels = [label for row in rows for label in row]
    types = {type(label) for label in labels}
    if len(types) == 1 and types <= {int, float, str, bool}:
        return np.array(labels)
    flat = np.empty(len(labels), dtype=object)
    flat[:] = labels
    return flat
