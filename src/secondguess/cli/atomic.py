"""Files that are either complete or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """A new file (or folder) beside `path` to write to, moved to `path` if nothing went wrong.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     with replacing(Path(place) / "note.txt") as partial:
    ...         _ = partial.write_text("all of it")
    ...     os.listdir(place)
    ['note.txt']

    Args:
        path: where the result should be.
        folder: whether it is a folder; one that exists already is refused, not replaced.
    """
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is not a folder; make it first, or write elsewhere.")
    if folder and path.exists():
        raise ValueError(f"{path} exists; name a new folder for the output.")
    place = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        partial = place / path.name
        if folder:
            partial.mkdir()
        yield partial
        os.replace(partial, path)
    finally:
        shutil.rmtree(place, ignore_errors=True)
