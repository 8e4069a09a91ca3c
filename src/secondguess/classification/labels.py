"""Labels of any hashable kind and the class indices that stand for them."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import IntArray


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
    positions, unseen = _positions(found.tolist(), known.tolist())
    _refuse_unseen(unseen, known)
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
    positions, unseen = _positions(flat.tolist(), known.tolist())
    _refuse_unseen(unseen, known)
    return known, positions


def _positions(labels: list[Any], known: list[Any]) -> tuple[IntArray, list[Any]]:
    index = {label: position for position, label in enumerate(known)}
    unseen = [label for label in dict.fromkeys(labels) if label not in index]
    return np.array([index.get(label, -1) for label in labels], dtype=np.int64), unseen


def _refuse_unseen(unseen: list[Any], known: NDArray[Any]) -> None:
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
