"""Data of experiments: where the user keeps them, and parts of them at random."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

DATA_VARIABLE = "SECONDGUESS_DATA"

ItemT = TypeVar("ItemT")


def find_data(given: Path | str | None, *, expected: str) -> Path:
    """Where data are: what was given, or else what the variable `SECONDGUESS_DATA` says.

    >>> find_data("~/norms", expected="a folder with words").name
    'norms'

    Args:
        given: a path, or None.
        expected: what it should be the path of, for the error.

    Raises:
        FileNotFoundError: neither names anything.
    """
    chosen = given or os.environ.get(DATA_VARIABLE)
    if not chosen:
        raise FileNotFoundError(
            f"no data were named; pass data_dir or set {DATA_VARIABLE} to {expected}"
        )
    return Path(chosen).expanduser()


def find_file(given: Path | str | None, name: str, *, source: str) -> Path:
    """The file of this name: what was given, see `find_data`, or a file in it, however deep.

    Args:
        given: a file, a folder, or None.
        name: how the file in a folder is called.
        source: what it is and where to get it, for the error.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = find_data(given, expected=f"the path of {name}, or of its folder.")
    found = [path] if path.is_file() else sorted(path.rglob(name))
    if not found:
        raise FileNotFoundError(f"{path} has no {name}; expected {source}.")
    return found[0]


def random_parts(items: Sequence[ItemT], sizes: Sequence[int], *, seed: int) -> list[list[ItemT]]:
    """Distinct items at random, as many for each part as its size says.

    >>> [len(part) for part in random_parts("abcdefghij", (4, 2, 3), seed=0)]
    [4, 2, 3]
    """
    if sum(sizes) > len(items):
        raise ValueError(
            f"sizes is {tuple(sizes)}; expected numbers that sum to at most {len(items)}, which is "
            f"how many items there are."
        )
    order = np.random.default_rng([seed, 0]).permutation(len(items))
    parts = np.split(order, np.cumsum(sizes))[:-1]
    return [[items[index] for index in part] for part in parts]
