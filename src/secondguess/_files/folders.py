"""The writer of folders: all files at once, with a manifest that is checked on reading.

The manifest holds the SHA-256 of each file, which `check_manifest` compares with the files. It
finds damage and mixtures; it is no signature, for whoever can change the files can change the
manifest too.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from secondguess._files.reading import read_document
from secondguess._files.writing import (
    EARLIER,
    flush,
    mode_of,
    place_beside,
    recover,
    write_document,
)

MANIFEST = "manifest.json"
"""The file in a folder that lists the others."""

_KIND, _FORMAT = "secondguess manifest", 1


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A new folder to write files to, which takes the place of `path` if nothing goes wrong.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     for version in ("first", "second"):
    ...         with replacing_folder(Path(place) / "model") as unfinished:
    ...             _ = (unfinished / f"{version}.txt").write_text("all of it")
    ...     sorted(os.listdir(Path(place) / "model"))
    ['manifest.json', 'second.txt']

    All files change at once, and a manifest is written with them.

    Raises:
        OSError: `path` is no folder, or holds files that were not written this way: they would be
            lost.
    """
    with place_beside(path) as place:
        _check_replaceable(path)
        unfinished = place / path.name
        unfinished.mkdir()
        yield unfinished
        names = _names_in(unfinished)
        content = {name: _sha256(unfinished / name) for name in names}
        write_document(unfinished / MANIFEST, _KIND, _FORMAT, {"files": content})
        for name in names:  # some libraries make files that only their owner may read
            shutil.copymode(unfinished / MANIFEST, unfinished / name)
        for name in (*names, MANIFEST):
            flush(unfinished / name)
        for folder, _, _ in os.walk(unfinished):
            flush(Path(folder))
        _check_replaceable(path)
        if not path.exists():
            os.rename(unfinished, path)
        elif not _exchanged(unfinished, path):
            # Killed between these two, `recover` puts the earlier folder back.
            os.rename(path, place / f"{path.name}{EARLIER}")
            os.rename(unfinished, path)
        flush(path.parent)


def check_manifest(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a folder that `replacing_folder` wrote, if all are as written.

    Files that begin with a dot, and `README.md`, may be added: nothing reads them.

    Raises:
        OSError: the folder or its manifest is missing.
        ValueError: the manifest is damaged, or a file is missing, changed or was added; the message
            names it.
    """
    recover(folder)
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(
            f"{folder / MANIFEST} is missing; expected a folder that secondguess saved."
        )
    wanted = _read_manifest(folder)
    found = {name: _sha256(folder / name) for name in _names_in(folder) if name in wanted}
    problems = [f"{name} is missing" for name in wanted if name not in found]
    problems += [f"{name} was changed" for name in found if found[name] != wanted[name]]
    problems += [f"{name} was added" for name in _added(folder, wanted)]
    if problems:
        raise ValueError(
            f"{folder} is not as it was saved: {'; '.join(problems)}. Save it again, or copy the "
            f"whole folder again from where it came from."
        )
    return found


def manifest_digest(folder: Path) -> str | None:
    """What tells the content of a saved folder from any other; None if it has no manifest."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return None
    return hashlib.blake2b(manifest.read_bytes(), digest_size=16).hexdigest()


def _check_replaceable(path: Path) -> None:
    if not mode_of(path):
        return
    if not stat.S_ISDIR(mode_of(path)):
        raise FileExistsError(f"{path} is not a folder; name another output.")
    try:
        lost = _added(path, _read_manifest(path))
    except (OSError, ValueError):
        lost = _names_in(path)
    if lost:
        raise FileExistsError(
            f"{path} holds {lost[0]}{' and more' if len(lost) > 1 else ''}, which secondguess did "
            f"not save there and which would be lost; name another folder."
        )


def _names_in(folder: Path) -> list[str]:
    """All files of a folder but the manifest, by their path in it with slashes."""
    return sorted(
        name
        for parent, _, files in os.walk(folder)
        for file in files
        if (name := Path(parent, file).relative_to(folder).as_posix()) != MANIFEST
    )


def _added(folder: Path, manifest: dict[str, str]) -> list[str]:
    names = [name for name in _names_in(folder) if name not in manifest]
    return [name for name in names if not name.startswith(".") and name != "README.md"]


def _read_manifest(folder: Path) -> dict[str, str]:
    record = read_document(folder / MANIFEST, _KIND, _FORMAT, what="the manifest of a saved folder")
    files = record.get("files")
    if not isinstance(files, dict) or not all(isinstance(each, str) for each in files.values()):
        raise ValueError(
            f"{folder / MANIFEST} is damaged; expected the manifest of a saved folder."
        )
    return files


def _sha256(path: Path) -> str:
    if not path.is_file():  # a pipe would be waited for
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange two folders at once; False where the system or file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0
