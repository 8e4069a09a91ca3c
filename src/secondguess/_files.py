"""The only writer of files: whole or not at all, on disk before it is named, one writer at a time.

A file or a folder is made under a temporary name beside its place and renamed when it is complete
and flushed. A process that is killed, or a machine that stops, at any moment leaves what was there
before or the new one, never a mixture. A temporary name is `.NAME.RANDOM.unfinished`: a folder that
only this user can enter and that did not exist before, so that nothing planted in a shared folder
is followed or overwritten. What killed writers left behind in a folder is removed by the next
process that writes there.

A folder is written with a manifest, the SHA-256 of each of its files, which `check_manifest`
compares with the files when the folder is read. It finds damage and mixtures; it is no signature,
for whoever can change the files can change the manifest too.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


MANIFEST = "manifest.json"
"""The file in a folder that lists the others."""

_KIND, _FORMAT = "secondguess manifest", 1
_UNFINISHED, _EARLIER = ".unfinished", ".earlier"
_cleared: set[Path] = set()  # once per folder and process: a folder may have many files
_NO_LINK, _FOLDER = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_DIRECTORY", 0)


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
    if _mode(path) and not (stat.S_ISREG(_mode(path)) or stat.S_ISLNK(_mode(path))):
        raise FileExistsError(f"{path} is not a regular file; name another output.")
    with _place_beside(path) as place:
        unfinished = place / path.name
        yield unfinished
        _flush(unfinished)
        os.replace(unfinished, path)
        _flush(path.parent)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A new folder to write files to, which takes the place of `path` if nothing goes wrong.

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
    with _place_beside(path) as place:
        _check_replaceable(path)
        unfinished = place / path.name
        unfinished.mkdir()
        yield unfinished
        names = _names_in(unfinished)
        content = {name: _sha256(unfinished / name) for name in names}
        manifest = {"kind": _KIND, "format": _FORMAT, "files": content}
        (unfinished / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        for name in (*names, MANIFEST):
            _flush(unfinished / name)
        for folder, _, _ in os.walk(unfinished):
            _flush(Path(folder))
        _check_replaceable(path)
        if not path.exists():
            os.rename(unfinished, path)
        elif not _exchanged(unfinished, path):
            # Killed between these two, `recover` puts the earlier folder back.
            os.rename(path, place / f"{path.name}{_EARLIER}")
            os.rename(unfinished, path)
        _flush(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


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


def recover(path: Path) -> None:
    """Put a folder back whose replacement was killed between two renames (never on Linux)."""
    if not path.exists() and path.parent.is_dir():
        _clear(path.parent)


@contextmanager
def only_writer_of(path: Path) -> Iterator[None]:
    """Hold an output, a file or a folder; while it is held, a second writer is refused.

    >>> with tempfile.TemporaryDirectory() as place, only_writer_of(Path(place) / "out.csv"):
    ...     write_text(Path(place) / "out.csv", "0.5")

    The operating system lets go of it when the process dies, however it dies. Threads of one
    process exclude each other as well.
    """
    lock = path.parent.resolve() / f".{path.name}.lock"
    _check_folder(path.parent)
    while True:
        # The name must be the same for all writers, so it can be planted: links are not followed.
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
        try:
            _try_lock(descriptor)
        except OSError:
            os.close(descriptor)
            raise BlockingIOError(
                f"another process is writing {path}. Wait until it has ended, or name another "
                f"output."
            ) from None
        if _is_still(lock, descriptor):
            break
        os.close(descriptor)  # its holder removed it between our opening and locking it
    try:
        yield
    finally:
        with suppress(OSError):  # Windows does not remove what is open
            lock.unlink()
        os.close(descriptor)


@contextmanager
def _place_beside(path: Path) -> Iterator[Path]:
    """A private new folder beside `path`, removed in the end; what others left there goes first."""
    _check_folder(path.parent)
    recover(path)
    if path.parent.resolve() not in _cleared:
        _clear(path.parent)
    while True:
        prefix = f".{path.name[:60]}."  # a name of full length would not leave room
        place = Path(tempfile.mkdtemp(prefix=prefix, suffix=_UNFINISHED, dir=path.parent))
        with suppress(BlockingIOError):  # another writer took it for one that was left behind
            held = _lock_folder(place)
            break
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if held is not None:
            os.close(held)


def _clear(folder: Path) -> None:
    """Remove what dead writers left in a folder, after what they moved aside is back."""
    _cleared.add(folder.resolve())
    with os.scandir(folder) as entries:
        places = [Path(entry.path) for entry in entries if entry.name.endswith(_UNFINISHED)]
    for place in places:
        with suppress(BlockingIOError):
            if (held := _lock_folder(place)) is None:
                continue
            for earlier in place.glob(f"*{_EARLIER}"):
                if not _mode(path := folder / earlier.name.removesuffix(_EARLIER)):
                    os.rename(earlier, path)
                    _flush(folder)
            shutil.rmtree(place, ignore_errors=True)
            os.close(held)


def _lock_folder(place: Path) -> int | None:
    """A descriptor that holds the folder until it is closed; None where folders cannot be held.

    Raises:
        BlockingIOError: someone else holds it, or has removed it.
    """
    try:
        descriptor = os.open(place, os.O_RDONLY | _FOLDER | _NO_LINK)
    except FileNotFoundError:
        raise BlockingIOError from None
    except OSError:
        return None
    try:
        _try_lock(descriptor)
        if not _is_still(place, descriptor):
            raise BlockingIOError
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return descriptor


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder; make it first, or write elsewhere.")


def _check_replaceable(path: Path) -> None:
    if not _mode(path):
        return
    if not stat.S_ISDIR(_mode(path)):
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


def _mode(path: Path) -> int:
    """What is at a path, links not followed; 0 for nothing."""
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


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
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        files = manifest["files"]
        if manifest["kind"] != _KIND or not isinstance(files, dict):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} is damaged; expected the manifest of a saved folder.") from None
    if manifest.get("format") != _FORMAT:
        raise ValueError(
            f"{path} has format {manifest.get('format')!r}; this version reads format {_FORMAT}."
        )
    return files


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange two folders at once; False where the system or file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0
