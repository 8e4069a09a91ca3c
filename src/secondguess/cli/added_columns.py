"""A copy of a file with columns added, written chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from secondguess._files import replacing, replacing_folder
from secondguess.cli.column_values import Chunk, text_as_numbers
from secondguess.cli.columns import Columns, CsvColumns, ParquetColumns
from secondguess.cli.npy_columns import NpyColumns

Compute = Callable[[Chunk, int], Chunk]
"""From the columns of some rows, and the number of the first one, to the columns to add."""


def write_added(
    columns: Columns, out: Path, needed: Sequence[str], added: Sequence[str], compute: Compute
) -> int:
    """Write the file; returns how many rows it has.

    Parquet and CSV files are copied with their columns (CSV text as it stands, with quotes where
    they are needed); for `.npy` columns the output is a folder with the added ones only.
    """
    for name in added:
        if name in columns.names:
            raise ValueError(f"{columns.path} already has a column {name!r}; name the new ones.")
        if added.count(name) > 1:
            raise ValueError(f"two columns to add are named {name!r}; expected one name each.")
    if isinstance(columns, ParquetColumns):
        _require_suffix(out, (".parquet", ".pq"))
        return _write_parquet(columns, out, needed, added, compute)
    if isinstance(columns, CsvColumns):
        _require_suffix(out, (".csv",))
        return _write_csv(columns, out, needed, added, compute)
    assert isinstance(columns, NpyColumns)
    return _write_npy(columns, out, needed, added, compute)


def _require_suffix(out: Path, suffixes: tuple[str, ...]) -> None:
    if out.suffix.lower() not in suffixes:
        raise ValueError(f"the output is named {out.name}; expected {suffixes[0]}, as the input.")


def _with_added(batch: pa.RecordBatch, added: Chunk) -> pa.RecordBatch:
    for name, values in added.items():
        batch = batch.append_column(name, pa.array(values))
    return batch


def _write_parquet(
    columns: ParquetColumns,
    out: Path,
    needed: Sequence[str],
    added: Sequence[str],
    compute: Compute,
) -> int:
    row = 0
    with replacing(out) as partial:
        schema = columns.schema
        for name in added:
            schema = schema.append(pa.field(name, pa.float64()))
        with parquet.ParquetWriter(partial, schema) as writer:
            for batch in columns.batches():
                chunk = columns.arrays(batch, needed, row)
                writer.write_batch(_with_added(batch, compute(chunk, row)).cast(schema))
                row += batch.num_rows
    return row


def _write_csv(
    columns: CsvColumns, out: Path, needed: Sequence[str], added: Sequence[str], compute: Compute
) -> int:
    row = 0
    fields = [(name, pa.string()) for name in columns.names]
    schema = pa.schema([*fields, *((name, pa.float64()) for name in added)])
    with replacing(out) as partial, csv.CSVWriter(partial, schema) as writer:
        for batch in columns.text_batches():
            chunk = text_as_numbers(batch, needed, row, columns.path)
            writer.write_batch(_with_added(batch, compute(chunk, row)))
            row += batch.num_rows
    return row


def _write_npy(
    columns: NpyColumns, out: Path, needed: Sequence[str], added: Sequence[str], compute: Compute
) -> int:
    for name in added:
        if name in ("", ".", "..") or set(name) & set("/\\\0"):
            raise ValueError(f"a column is to be named {name!r}; expected the name of a file.")
    row = 0
    with replacing_folder(out) as partial, ExitStack() as files:
        # Written piece by piece, not mapped: on a full disk a mapping ends the process.
        opened = {name: files.enter_context((partial / f"{name}.npy").open("xb")) for name in added}
        for file in opened.values():
            header = {"descr": "<f8", "fortran_order": False, "shape": (columns.num_rows,)}
            np.lib.format.write_array_header_1_0(file, header)
        for chunk in columns.chunks(needed):
            for name, values in compute(chunk, row).items():
                opened[name].write(np.asarray(values, dtype="<f8").tobytes())
            row += len(chunk[needed[0]])
    return row
