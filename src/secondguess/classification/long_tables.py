"""Long tables, one line per label, as annotation tools export them: columns and missing values.

A table is anything with named columns: of pandas, polars or pyarrow, or a dict of sequences. None
of these libraries is imported here; a column is asked for its values in the way it has. What is
built from the columns is `PairData`, in `pairs.py`.

Axes: items (n), then the lines of each.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple


class LongColumns(NamedTuple):
    """The lines of a long table that have all their values.

    Attributes:
        items: the n distinct items, in the order in which they first occur.
        labels: a list of labels for each item.
        annotators: likewise who gave them, or None where no column was named.
        classes: labels in the order of a categorical column, or None.
        num_missing: lines that lacked a value.
        num_repeated: lines whose annotator labelled the item again further down.
    """

    items: list[Hashable]
    labels: list[list[Any]]
    annotators: list[list[Any]] | None
    classes: list[Any] | None
    num_missing: int
    num_repeated: int


def read_long_columns(table: Any, item: str, label: str, annotator: str | None) -> LongColumns:
    """The columns of a long table without the lines that lack a value.

    None, NaN, NA and the empty string are missing. Where one annotator labelled an item more than
    once, the last label counts: two labels of one person are not independent.

    >>> table = {"text": [7, 7, 3], "stars": ["4", None, "5"], "who": ["ann", "bob", "bob"]}
    >>> columns = read_long_columns(table, "text", "stars", "who")
    >>> columns.items, columns.labels, columns.num_missing
    ([7, 3], [['4'], ['5']], 1)

    Args:
        table: with named columns.
        item: column that says which item a line is about.
        label: column of the labels.
        annotator: column that says who gave the label.
    """
    names = [item, label] if annotator is None else [item, label, annotator]
    raw = {name: _column(table, name) for name in names}
    values = {name: _values(raw[name]) for name in names}
    lengths = {name: len(found) for name, found in values.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"the columns have the lengths {lengths}; expected one length.")
    lines = list(zip(*values.values(), strict=True))
    whole = [line for line in lines if not any(_is_missing(value) for value in line)]
    num_missing, num_repeated = len(lines) - len(whole), 0
    if annotator is not None:
        last = {(line[0], line[2]): line for line in whole}
        num_repeated = len(whole) - len(last)
        whole = list(last.values())
    lines_of: dict[Hashable, list[int]] = {}
    for number, line in enumerate(whole):
        lines_of.setdefault(line[0], []).append(number)
    labels = _whole_numbers([line[1] for line in whole])
    return LongColumns(
        items=list(lines_of),
        labels=[[labels[number] for number in numbers] for numbers in lines_of.values()],
        annotators=None
        if annotator is None
        else [[whole[number][2] for number in numbers] for numbers in lines_of.values()],
        classes=_categories(raw[label]),
        num_missing=num_missing,
        num_repeated=num_repeated,
    )


def column_names(table: Any) -> list[Any] | None:
    """The names of a DataFrame's columns; None for an array, or where they are only numbered.

    >>> column_names([[3, 0], [1, 2]]) is None
    True
    """
    columns = getattr(table, "columns", None)
    if columns is None or type(columns).__name__ == "RangeIndex":
        return None
    return list(columns)


def _column(table: Any, name: str) -> Any:
    try:
        return table[name]
    except Exception as error:  # each library has an error of its own for an unknown column
        known = list(table) if isinstance(table, dict) else getattr(table, "columns", None)
        known = getattr(table, "column_names", known)  # pyarrow
        shown = "" if known is None else f" It has {list(known)}."
        raise ValueError(
            f"the table has no column {name!r}.{shown} Expected a table of pandas, polars or "
            f"pyarrow, or a dict of columns, with one line per label."
        ) from error


def _values(column: Any) -> list[Any]:
    """Plain Python values; without detours through NumPy, which turns integers into floats."""
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return getattr(column, method)()
    return list(column)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value) or value == ""
    except TypeError:  # the NA of pandas, which is neither equal to itself nor not
        return True


def _whole_numbers(labels: list[Any]) -> list[Any]:
    """Integers that a column with missing values had turned into floats."""
    if all(isinstance(label, float) and label.is_integer() for label in labels):
        return [int(label) for label in labels]
    return labels


def _categories(column: Any) -> list[Any] | None:
    """The labels that a categorical column of pandas, or an Enum of polars, names in its type."""
    categories = getattr(getattr(column, "dtype", None), "categories", None)
    if categories is None or not hasattr(categories, "__len__"):
        return None
    return list(categories)
