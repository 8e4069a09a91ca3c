"""What a column may hold: real numbers, or labels. One check and one wording for all formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Chunk = dict[str, NDArray[Any]]


def text_as_numbers(batch: pa.RecordBatch, names: Sequence[str], row: int, path: Path) -> Chunk:
    """Columns of text as float64; `row` is the number of the first row in complaints."""
    chunk: Chunk = {}
    for name in names:
        column = batch.column(name)
        try:
            chunk[name] = column.cast(pa.float64()).to_numpy()
        except pa.ArrowException:
            at = _first_bad_text(column)
            raise _bad_value(path, name, row + at, repr(column[at].as_py())) from None
    return chunk


def _first_bad_text(column: pa.Array) -> int:
    """Where the first text stands that Arrow takes for no number; it says no more than that."""
    first, last = 0, len(column)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            column[first:middle].cast(pa.float64())
        except pa.ArrowException:
            last = middle
        else:
            first = middle
    return first


def arrays_of(
    batch: pa.RecordBatch, names: Sequence[str], row: int, path: Path, labels: Sequence[str] = ()
) -> Chunk:
    """Columns of a batch; `row` is the number of its first row in complaints."""
    chunk: Chunk = {}
    for name in [*names, *labels]:
        column = batch.column(name)
        if column.null_count:
            at = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise _bad_value(path, name, row + at, "empty")
        chunk[name] = column.to_numpy(zero_copy_only=False)
        if name in labels:
            chunk[name] = as_labels(chunk[name])
        else:
            check_numbers(path, name, chunk[name], column.type)
    return chunk


def as_labels(values: NDArray[Any]) -> NDArray[np.str_]:
    """Whatever names something, as text."""
    return values.astype(np.str_)


def check_numbers(path: Path, name: str, values: NDArray[Any], what: object) -> None:
    """Complain of a column that holds anything but real numbers; `what` says what that is."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{path}: column {name!r} holds {what}; expected numbers.")


def _bad_value(path: Path, name: str, row: int, what: str) -> ValueError:
    return ValueError(f"{path}: column {name!r}, row {row} is {what}; expected a number.")


def unreadable(path: Path, kind: str, error: Exception) -> ValueError:
    """The complaint about a file that its reader gave up on."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ValueError(f"{path} cannot be read as a {kind} file ({reason}); is it complete?")
