"""Named columns of a file, read in chunks: Parquet, CSV, or `.npy` files mapped into memory.

`open_columns` picks the reader by the name of the file. Readers hand out NumPy arrays and know
nothing of what the columns mean; a value that is missing is an error that names row and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, parquet

Chunk = dict[str, NDArray[Any]]

CHUNK_ROWS = 1 << 18


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
    if not path.exists():
        raise ValueError(f"{path} does not exist.")
    suffix = path.suffix.lower()
    if path.is_dir() or suffix == ".npy":
        return NpyColumns.open(path)
    if suffix in (".parquet", ".pq"):
        return ParquetColumns.open(path)
    if suffix == ".csv":
        return CsvColumns.open(path)
    raise ValueError(
        f"{path} has an unknown type; expected .parquet, .csv, .npy or a folder of .npy columns."
    )


def require(columns: Columns, names: Sequence[str]) -> None:
    """Complain about the first column that is not there."""
    for name in names:
        if name not in columns.names:
            raise ValueError(
                f"{columns.path} has no column {name!r}; it has {', '.join(columns.names)}."
            )


@dataclass(frozen=True)
class ParquetColumns:
    """A Parquet file."""

    path: Path
    schema: pa.Schema
    num_rows: int

    @classmethod
    def open(cls, path: Path) -> ParquetColumns:
        """Read the footer."""
        try:
            with parquet.ParquetFile(path) as file:
                return cls(path, file.schema_arrow, file.metadata.num_rows)
        except pa.ArrowException as error:
            raise _unreadable(path, "Parquet", error) from None

    @property
    def names(self) -> list[str]:
        """The columns, in the order of the file."""
        return self.schema.names

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows and columns."""
        try:
            with parquet.ParquetFile(self.path) as file:
                yield from file.iter_batches(CHUNK_ROWS)
        except pa.ArrowException as error:
            raise _unreadable(self.path, "Parquet", error) from None

    def arrays(self, batch: pa.RecordBatch, names: Sequence[str], row: int) -> Chunk:
        """Some columns of a batch; `row` is the number of its first row in complaints."""
        return _arrays(batch, names, row, self.path)

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
                for batch in batches:
                    first, last = max(start - row, 0), min(stop - row, batch.num_rows)
                    if first < last:
                        part = batch.slice(first, last - first)
                        yield _arrays(part, names, row + first, self.path, labels)
                    row += batch.num_rows
        except pa.ArrowException as error:
            raise _unreadable(self.path, "Parquet", error) from None


@dataclass(frozen=True)
class CsvColumns:
    """A CSV file with a header line."""

    path: Path
    names: list[str]

    @classmethod
    def open(cls, path: Path) -> CsvColumns:
        """Read the header."""
        try:
            with csv.open_csv(path) as reader:
                return cls(path, reader.schema.names)
        except pa.ArrowException as error:
            raise _unreadable(path, "CSV", error) from None

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
        row = 0
        try:
            with csv.open_csv(self.path, convert_options=options) as reader:
                for batch in reader:
                    last = batch.num_rows if stop is None else min(stop - row, batch.num_rows)
                    first = max(start - row, 0)
                    if first < last:
                        part = batch.slice(first, last - first)
                        yield _arrays(part, names, row + first, self.path, labels)
                    row += batch.num_rows
                    if stop is not None and row >= stop:
                        return
        except pa.ArrowException as error:
            raise self._first_bad_value(names) or _unreadable(self.path, "CSV", error) from None

    def text_batches(self) -> Iterator[pa.RecordBatch]:
        """All columns as the text that stands in the file."""
        options = csv.ConvertOptions(
            column_types=dict.fromkeys(self.names, pa.string()), strings_can_be_null=False
        )
        try:
            with csv.open_csv(self.path, convert_options=options) as reader:
                yield from reader
        except pa.ArrowException as error:
            raise _unreadable(self.path, "CSV", error) from None

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


@dataclass(frozen=True)
class NpyColumns:
    """Arrays in `.npy` files, mapped into memory."""

    path: Path
    names: list[str]
    num_rows: int

    @classmethod
    def open(cls, path: Path) -> NpyColumns:
        """Look at the headers."""
        arrays = cls._arrays(path)
        if not arrays:
            raise ValueError(f"{path} holds no .npy files; expected one <column>.npy per column.")
        sizes = {name: len(array) for name, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the columns of {path} differ in length: {sizes}; expected one.")
        return cls(path, list(arrays), next(iter(sizes.values())))

    @staticmethod
    def _arrays(path: Path) -> dict[str, NDArray[Any]]:
        try:
            if path.is_dir():
                arrays = {
                    file.stem: np.load(file, mmap_mode="r") for file in sorted(path.glob("*.npy"))
                }
            else:
                array = np.load(path, mmap_mode="r")
                if not array.dtype.names:
                    raise ValueError("it has no named fields")
                arrays = {name: array[name] for name in array.dtype.names}
        except (ValueError, EOFError) as error:
            raise _unreadable(path, "NumPy", error) from None
        for name, array in arrays.items():
            if array.ndim != 1:
                raise ValueError(f"{path}: column {name!r} has shape {array.shape}; expected (n,).")
        return arrays

    def count_rows(self) -> int:
        """From the headers."""
        return self.num_rows

    def chunks(
        self,
        names: Sequence[str],
        start: int = 0,
        stop: int | None = None,
        labels: Sequence[str] = (),
    ) -> Iterator[Chunk]:
        """Maps the files anew for every chunk, so that pages already read can be given back."""
        stop = self.num_rows if stop is None else stop
        for first in range(start, stop, CHUNK_ROWS):
            arrays = self._arrays(self.path)
            last = min(first + CHUNK_ROWS, stop)
            yield {name: np.array(arrays[name][first:last]) for name in [*names, *labels]}


def text_as_numbers(batch: pa.RecordBatch, names: Sequence[str], row: int, path: Path) -> Chunk:
    """Columns of text as float64; `row` is the number of the first row in complaints."""
    chunk: Chunk = {}
    for name in names:
        try:
            chunk[name] = batch.column(name).cast(pa.float64()).to_numpy()
        except pa.ArrowException:
            for at, text in enumerate(batch.column(name).to_pylist()):
                try:
                    float(text)
                except ValueError:
                    raise _bad_value(path, name, row + at, repr(text)) from None
            raise
    return chunk


def _arrays(
    batch: pa.RecordBatch, names: Sequence[str], row: int, path: Path, labels: Sequence[str] = ()
) -> Chunk:
    chunk: Chunk = {}
    for name in [*names, *labels]:
        column = batch.column(name)
        if column.null_count:
            at = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise _bad_value(path, name, row + at, "empty")
        chunk[name] = column.to_numpy(zero_copy_only=False)
        if name in labels:
            chunk[name] = chunk[name].astype(np.str_)
        elif chunk[name].dtype.kind not in "biuf":
            raise ValueError(f"{path}: column {name!r} holds {column.type}; expected numbers.")
    return chunk


def _bad_value(path: Path, name: str, row: int, what: str) -> ValueError:
    return ValueError(f"{path}: column {name!r}, row {row} is {what}; expected a number.")


def _unreadable(path: Path, kind: str, error: Exception) -> ValueError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ValueError(f"{path} cannot be read as a {kind} file ({reason}); is it complete?")
