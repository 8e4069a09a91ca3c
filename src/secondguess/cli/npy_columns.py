"""Columns in `.npy` files: a folder with one file per column, or one file with named fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess._files import check_regular
from secondguess.cli.column_values import Chunk, as_labels, check_numbers, unreadable

CHUNK_ROWS = 1 << 18


@dataclass(frozen=True)
class NpyColumns:
    """Arrays in `.npy` files, mapped into memory."""

    path: Path
    names: list[str]
    num_rows: int
    in_folder: bool = True

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
                arrays = {file.stem: _mapped(file) for file in sorted(path.glob("*.npy"))}
            else:
                array = _mapped(path)
                if not array.dtype.names:
                    raise ValueError("it has no named fields")
                arrays = {name: array[name] for name in array.dtype.names}
        except (ValueError, EOFError, OverflowError, SyntaxError, TypeError) as error:
            raise unreadable(path, "NumPy", error) from None
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
            chunk = {name: np.array(arrays[name][first:last]) for name in names}
            for name, values in chunk.items():
                check_numbers(self.path, name, values, values.dtype)
            yield chunk | {name: as_labels(arrays[name][first:last]) for name in labels}


def _mapped(path: Path) -> NDArray[Any]:
    check_regular(path)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (TokenError, SyntaxError) as error:  # NumPy reads the header as Python
        raise ValueError(f"{path} has a damaged header ({error}); write it again.") from error
