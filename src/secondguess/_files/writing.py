"""The writer of files: whole or not at all, on disk before it is named.

A file is made under a temporary name beside its place and renamed when it is complete and flushed.
A process that is killed, or a machine that stops, at any moment leaves what was there before or the
new one, never a mixture. A temporary name is `.NAME.RANDOM.unfinished`: a folder that only this
user can enter and that did not exist before, so that nothing planted in a shared folder is followed
or overwritten. What killed writers of this user left behind in a folder is removed by the next
process that writes there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from secondguess._files.locking import lock_folder

EARLIER = ".earlier"
"""What the name of a folder ends with while its successor takes its place."""

_UNFINISHED = ".unfinished"
_PLACE = re.compile(rf"\..*\.[a-z0-9_]{{8}}{re.escape(_UNFINISHED)}", re.DOTALL)
_cleared: set[Path] = set()  # once per folder and process: a folder may have many files


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write a new file to, which takes the place of `path` if nothing goes wrong.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     with replacing(Path(place) / "note.txt") as unfinished:
    ...         _ = unfinished.write_text("all of it")
    ...     os.listdir(place)
    ['note.txt']

    A link at `path` is replaced itself; what it points to stays as it is.

    Raises:
        OSError: `path` is a folder or a device, or its folder does not exist.
    """
    if mode_of(path) and not (stat.S_ISREG(mode_of(path)) or stat.S_ISLNK(mode_of(path))):
        raise FileExistsError(f"{path} is not a regular file; name another output.")
    with place_beside(path) as place:
        unfinished = place / path.name
        yield unfinished
        flush(unfinished)
        os.replace(unfinished, path)
        flush(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_document(path: Path, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """Write a JSON file of ours, which says its kind and format; `read_document` checks them."""
    write_json(path, {"kind": kind, "format": version, **content})


def recover(path: Path) -> None:
    """Put a folder back whose replacement was killed between two renames (never on Linux)."""
    if not path.exists() and path.parent.is_dir():
        _clear(path.parent)


@contextmanager
def place_beside(path: Path) -> Iterator[Path]:
    """A private new folder beside `path`, removed in the end; what others left there goes first."""
    check_folder(path.parent)
    recover(path)
    if path.parent.resolve() not in _cleared:
        _clear(path.parent)
    while True:
        # A name of full length would not leave room.
        beginning = os.fsdecode(os.fsencode(path.name)[:100])
        place = Path(tempfile.mkdtemp(prefix=f".{beginning}.", suffix=_UNFINISHED, dir=path.parent))
        with suppress(BlockingIOError):  # another writer took it for one that was left behind
            held = lock_folder(place)
            break
    try:
        yield place
    except OSError as error:
        if type(error) is not OSError or error.filename is not None:
            raise
        raise OSError(f"{path} cannot be written: {error}.") from error  # a full disk names no file
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if held is not None:
            os.close(held)


def remove_folder(path: Path) -> None:
    """Remove a folder of unfinished work; killed meanwhile, it is there whole or not at all."""
    with place_beside(path) as place:
        os.rename(path, place / path.name)


def _clear(folder: Path) -> None:
    """Remove what dead writers left in a folder, after what they moved aside is back."""
    _cleared.add(folder.resolve())
    with os.scandir(folder) as entries:
        places = [Path(entry.path) for entry in entries if _is_ours(entry)]
    for place in places:
        with suppress(BlockingIOError):
            if (held := lock_folder(place)) is None:
                continue
            for earlier in place.glob(f"*{EARLIER}"):
                if not mode_of(path := folder / earlier.name.removesuffix(EARLIER)):
                    os.rename(earlier, path)
                    flush(folder)
            shutil.rmtree(place, ignore_errors=True)
            os.close(held)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Whether `place_beside` made it for this user: others may have planted it, or named it so."""
    if not _PLACE.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
        return False
    found = entry.stat(follow_symlinks=False)
    if sys.platform == "win32":
        return True
    return found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700


def check_folder(folder: Path) -> None:
    """Complain where there is no folder to write to."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder; make it first, or write elsewhere.")


def mode_of(path: Path) -> int:
    """What is at a path, links not followed; 0 for nothing."""
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
