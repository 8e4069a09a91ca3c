"""Named columns of a file, read in chunks: Parquet, CSV, or `.npy` files mapped into memory.

`open_columns` picks the reader by the name of the file. Readers hand out NumPy arrays of real
numbers, or of text for labels, and know nothing of what the columns mean. Whatever else a column
holds (nothing, text, times, complex numbers) is an error that names it, as are two columns of one
name, and files that are none: a pipe would be waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from secondguess._files import check_regular
from secondguess.cli.column_values import Chunk, arrays_of, text_as_numbers, unreadable
from secondguess.cli.npy_columns import CHUNK_ROWS, NpyColumns

# Arrow has many ways to speak of a damaged file; names that are not UTF-8 fail when looked at.
_READING_ERRORS = (pa.ArrowException, UnicodeDecodeError, OverflowError, MemoryError)


class Columns(Protocol):
    """A file of named columns."""

    @property
    def path(self) -> Path:
        """Where it is."""
        ...

    @property
    def names(self) -> list[str]:
        """Its columns."""
        ...

    @property
    def in_folder(self) -> bool:
        """Whether what is made of it is a folder."""
        ...

    def count_rows(self) -> int:
        """How many rows there are; reads the file once where the format does not say."""
        ...

    def chunks(
        self,
        names: Sequence[str],
        start: int = 0,
        stop: int | None = None,
        labels: Sequence[str] = (),
    ) -> Iterator[Chunk]:
        """The named columns of rows start to stop, in order; `labels` may hold text."""
        ...


def open_columns(path: Path) -> Columns:
    """The reader for a file.

    Args:
        path: a `.parquet` or `.csv` file, a folder with one `<column>.npy` per column, or one
            `.npy` file with named fields.
    """
    suffix = path.suffix.lower()
    if path.is_dir():
        return NpyColumns.open(path)
    check_regular(path)
    if suffix == ".npy":
        return NpyColumns.open(path)
    if suffix in (".parquet", ".pq"):
        return _without_repeats(ParquetColumns.open(path))
    if suffix == ".csv":
        return _without_repeats(CsvColumns.open(path))
    raise ValueError(
        f"{path} has an unknown type; expected .parquet, .csv, .npy or a folder of .npy columns."
    )


def _without_repeats(columns: Columns) -> Columns:
    names = columns.names
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{columns.path} has two columns {repeated!r}; expected one name each.")
    return columns


def require(columns: Columns, names: Sequence[str]) -> None:
    """Complain about the first column that is not there, or that is named for two things."""
    for at, name in enumerate(names):
        if name not in columns.names:
            there = [*columns.names[:20], *(["..."] if len(columns.names) > 20 else [])]
            raise ValueError(f"{columns.path} has no column {name!r}; it has {', '.join(there)}.")
        if name in names[:at]:
            raise ValueError(f"the options name column {name!r} twice; expected one for each.")


@dataclass(frozen=True)
class ParquetColumns:
    """A Parquet file."""

    path: Path
    schema: pa.Schema
    num_rows: int
    in_folder: bool = False

    @classmethod
    def open(cls, path: Path) -> ParquetColumns:
        """Read the footer."""
        try:
            with parquet.ParquetFile(path) as file:
                return cls(path, file.schema_arrow, file.metadata.num_rows)
        except _READING_ERRORS as error:
            raise unreadable(path, "Parquet", error) from None

    @property
    def names(self) -> list[str]:
        """The columns, in the order of the file."""
        return self.schema.names

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows and columns."""
        try:
            with parquet.ParquetFile(self.path) as file:
                yield from file.iter_batches(CHUNK_ROWS)
        except _READING_ERRORS as error:
            raise unreadable(self.path, "Parquet", error) from None

    def arrays(self, batch: pa.RecordBatch, names: Sequence[str], row: int) -> Chunk:
        """Some columns of a batch; `row` is the number of its first row in complaints."""
        return arrays_of(batch, names, row, self.path)

    def count_rows(self) -> int:
        """From the footer."""
        return self.num_rows

    def chunks(
        self,
        names: Sequence[str],
        start: int = 0,
        stop: int | None = None,
        labels: Sequence[str] = (),
    ) -> Iterator[Chunk]:
        """Row groups outside the range are not read."""
        stop = self.num_rows if stop is None else stop
        try:
            with parquet.ParquetFile(self.path, pre_buffer=False) as file:
                sizes = [
                    file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)
                ]
                ends = np.cumsum(sizes, dtype=np.int64)
                groups = [
                    i
                    for i, (end, size) in enumerate(zip(ends, sizes, strict=True))
                    if end > start and end - size < stop
                ]
                if not groups:
                    return
                row = int(ends[groups[0]]) - sizes[groups[0]]
                batches = file.iter_batches(
                    CHUNK_ROWS, row_groups=groups, columns=[*names, *labels]
                )
                for part, at in _within(batches, start, stop, row):
                    yield arrays_of(part, names, at, self.path, labels)
        except _READING_ERRORS as error:
            raise unreadable(self.path, "Parquet", error) from None


@dataclass(frozen=True)
class CsvColumns:
    """A CSV file with a header line."""

    path: Path
    names: list[str]
    in_folder: bool = False

    @classmethod
    def open(cls, path: Path) -> CsvColumns:
        """Read the header."""
        try:
            with csv.open_csv(path, parse_options=_parsing()) as reader:
                return cls(path, reader.schema.names)
        except _READING_ERRORS as error:
            raise unreadable(path, "CSV", error) from None

    def count_rows(self) -> int:
        """By reading the file once."""
        return sum(batch.num_rows for batch in self.text_batches())

    def chunks(
        self,
        names: Sequence[str],
        start: int = 0,
        stop: int | None = None,
        labels: Sequence[str] = (),
    ) -> Iterator[Chunk]:
        """Rows before the range are read and dropped: a CSV file has no index."""
        types = {**dict.fromkeys(names, pa.float64()), **dict.fromkeys(labels, pa.string())}
        options = csv.ConvertOptions(include_columns=[*names, *labels], column_types=types)
        try:
            with csv.open_csv(
                self.path, parse_options=_parsing(), convert_options=options
            ) as reader:
                for part, at in _within(reader, start, stop):
                    yield arrays_of(part, names, at, self.path, labels)
        except _READING_ERRORS as error:
            raise self._first_bad_value(names) or unreadable(self.path, "CSV", error) from None

    def text_batches(self) -> Iterator[pa.RecordBatch]:
        """All columns as the text that stands in the file."""
        options = csv.ConvertOptions(
            column_types=dict.fromkeys(self.names, pa.string()), strings_can_be_null=False
        )
        try:
            with csv.open_csv(
                self.path, parse_options=_parsing(), convert_options=options
            ) as reader:
                yield from reader
        except _READING_ERRORS as error:
            raise unreadable(self.path, "CSV", error) from None

    def _first_bad_value(self, names: Sequence[str]) -> ValueError | None:
        """The complaint about the first value that is no number: Arrow names no row."""
        row = 0
        for batch in self.text_batches():
            try:
                text_as_numbers(batch, names, row, self.path)
            except ValueError as error:
                return error
            row += batch.num_rows
        return None


def _within(
    batches: Iterable[pa.RecordBatch], start: int, stop: int | None, row: int = 0
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """What batches hold of a range of rows, each with its first row; they begin at `row`."""
    for batch in batches:
        first = max(start - row, 0)
        last = batch.num_rows if stop is None else min(stop - row, batch.num_rows)
        if first < last:
            yield batch.slice(first, last - first), row + first
        row += batch.num_rows
        if stop is not None and row >= stop:
            return


def _parsing() -> csv.ParseOptions:
    # Quoted text may hold line breaks; a block of a file is then cut only where a row ends.
    return csv.ParseOptions(newlines_in_values=True)
