"""Array types and argument checks, for everyone, so that every complaint is worded alike.

Each check returns its argument as a float64 (or integer) array, or raises one `ValueError` that
says which argument and row is wrong, what came and what was expected. Nothing is ever repaired.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SUM_TOLERANCE = 1e-6
"""How far a row of probabilities may sum from one: float32 softmax rows pass, unnormalised ones
do not."""


MAX_COUNT = 10**12
"""The most annotations of one class in a row: far from where sums of whole numbers overflow."""


def fail_at(name: str, bad: NDArray[np.bool_], array: NDArray[Any], expected: str) -> None:
    """Raise if any entry is bad, naming the first such entry.

    >>> values = np.array([0.5, -0.1])
    >>> fail_at("probs", values < 0, values, "values in [0, 1]")
    Traceback (most recent call last):
    ...
    ValueError: probs[1] is -0.1; expected values in [0, 1].
    """
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    at = f"[{', '.join(map(str, index))}]" if index else ""
    raise ValueError(f"{name}{at} is {array[index].item()!r}; expected {expected}.")


def as_floats(name: str, values: ArrayLike, *, allow_infinite: bool = False) -> FloatArray:
    """A float64 array without NaN (and without infinities, unless allowed)."""
    check_kind(name, values)
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is not an array of numbers ({error}); pass one array of equal-length rows."
        ) from None
    bad = np.isnan(array) if allow_infinite else ~np.isfinite(array)
    fail_at(name, bad, array, "a number" if allow_infinite else "a finite number")
    return array


def check_kind(name: str, values: ArrayLike) -> None:
    """Refuse what NumPy would take for numbers in silence: masked entries, text, times, complex."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(
            f"{name} is a masked array; fill it, or drop the rows with masked entries."
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "cSUMm":
        raise ValueError(f"{name} holds {values.dtype}; expected real numbers.")


def as_probs(name: str, values: ArrayLike) -> FloatArray:
    """Probabilities: `(n,)` for one event, or `(n, num_classes)` with rows that sum to one."""
    array = as_floats(name, values)
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(
            f"{name} has shape {array.shape}; expected (n,) for the probability of one event, or "
            f"(n, num_classes), with n at least 1."
        )
    fail_at(name, (array < 0) | (array > 1), array, "a probability in [0, 1]")
    if array.ndim == 2:
        sums = array.sum(axis=1)
        bad = np.abs(sums - 1) > SUM_TOLERANCE
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"{name} row {row} sums to {sums[row]:.9g}; expected 1 (pass one event as shape "
                f"(n,) if the rows are not distributions)."
            )
    return array


def as_counts(name: str, values: ArrayLike, *, min_annotations: int = 1) -> IntArray:
    """Annotator counts of shape `(n, num_classes)`, each row with enough annotations."""
    check_kind(name, values)
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        array = as_floats(name, values)
        fail_at(name, array != np.floor(array), array, "a whole number, 0 or more")
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            f"{name} has shape {array.shape}; expected (n, num_classes): how many annotations of a "
            f"row chose each class."
        )
    fail_at(name, array < 0, array, "a whole number, 0 or more")
    fail_at(name, array > MAX_COUNT, array, f"at most {MAX_COUNT} annotations of a class")
    counts = array.astype(np.int64, copy=False)
    totals = counts.sum(axis=1)
    if (totals < min_annotations).any():
        row = int(np.argmax(totals < min_annotations))
        raise ValueError(
            f"{name} row {row} has {totals[row]} annotation(s); expected at least "
            f"{min_annotations} (drop the row, or collect another response)."
        )
    return counts


def same_shape(**arrays: NDArray[Any]) -> None:
    """All arrays have the shape of the first one."""
    (first, reference), *others = arrays.items()
    for name, array in others:
        if array.shape != reference.shape:
            raise ValueError(
                f"{name} has shape {array.shape} but {first} has shape {reference.shape}; expected "
                f"one shape, one entry per response."
            )


def check_rate(name: str, value: float) -> float:
    """A rate strictly between 0 and 1."""
    if not 0 < value < 1:  # also refuses NaN
        raise ValueError(f"{name} is {value!r}; expected a rate strictly between 0 and 1.")
    return float(value)


def check_at_least(name: str, value: int, minimum: int) -> int:
    """A whole number no smaller than `minimum`."""
    if value != int(value) or value < minimum:
        raise ValueError(f"{name} is {value!r}; expected a whole number, {minimum} or more.")
    return int(value)
