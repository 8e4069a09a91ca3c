"""Who may write where: no output is an input, nothing is replaced unasked, one writer at a time."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from secondguess._files.locking import NO_LINK, is_still, try_lock
from secondguess._files.writing import check_folder, mode_of


def check_output(
    out: Path, inputs: Iterable[Path | str] = (), *, overwrite: bool = False, folder: bool = False
) -> None:
    """Refuse an output that is an input, or that is there and may not be replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     rows = Path(place) / "rows.csv"
    ...     _ = rows.write_text("p,v")
    ...     (Path(place) / "link.csv").symlink_to(rows)
    ...     try:
    ...         check_output(Path(place) / "link.csv", [rows], overwrite=True)
    ...     except FileExistsError as error:
    ...         print(str(error).replace(place, "."))
    ./link.csv is the input ./rows.csv; name another output.

    Files are compared by what they are, not by their names: a link to an input is that input, and
    so is a file in an input folder.

    Args:
        out: where the output is to be.
        inputs: what it is made from; names of things that are no files are passed over.
        overwrite: whether what is there may be replaced.
        folder: whether the output is a folder.

    Raises:
        OSError: as above, or there is no folder to write to, or what is there is neither a file nor
            a folder: a device, a pipe.
    """
    if out.name in ("", ".."):
        raise FileExistsError(f"{out} has no name of its own; name another output.")
    for each in map(Path, inputs):
        if _is_part_of(out, each):
            raise FileExistsError(f"{out} is the input {each}; name another output.")
    check_folder(out.parent)
    if not (mode := mode_of(out)):
        return
    if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        expected = "a folder" if folder else "a regular file"
        raise FileExistsError(f"{out} is not {expected}; name another output.")
    if not overwrite:
        raise FileExistsError(f"{out} exists; name another output, or replace it by --overwrite.")


def _is_part_of(out: Path, source: Path) -> bool:
    """Whether they are one file or folder, or what is at `out` lies in the folder `source`."""
    with suppress(OSError):
        if source.is_dir() and source.resolve() in out.resolve().parents:
            return True
        return os.path.samefile(out, source)
    return False


@contextmanager
def only_writer_of(path: Path) -> Iterator[None]:
    """Hold an output, a file or a folder; while it is held, a second writer is refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, only_writer_of(Path(place) / "out.csv"):
    ...     _ = (Path(place) / "out.csv").write_text("0.5")

    The operating system lets go of it when the process dies, however it dies. Threads of one
    process exclude each other as well.
    """
    check_folder(path.parent)
    lock = path.parent.resolve() / _lock_name(path.name)
    while True:
        # The name must be the same for all writers, so it can be planted: links are not followed.
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
        try:
            try_lock(descriptor)
        except OSError:
            os.close(descriptor)
            raise BlockingIOError(
                f"another process is writing {path}. Wait until it has ended, or name another "
                f"output."
            ) from None
        if is_still(lock, descriptor):
            break
        os.close(descriptor)  # its holder removed it between our opening and locking it
    try:
        yield
    finally:
        with suppress(OSError):  # Windows does not remove what is open
            lock.unlink()
        os.close(descriptor)


def _lock_name(name: str) -> str:
    if len(os.fsencode(name)) <= 200:
        return f".{name}.lock"
    # A name of full length leaves no room.
    return f".{hashlib.sha256(os.fsencode(name)).hexdigest()}.lock"


def private_folder(path: Path) -> None:
    """Make a folder for unfinished work that nobody else can have put anything into.

    Raises:
        OSError: there is one that is a link, belongs to another user, or that others may write to.
    """
    check_folder(path.parent)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise FileExistsError(f"{path} is not a folder; remove it, or name another output.")
    if sys.platform != "win32" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise PermissionError(
            f"others may have written to {path}; remove it, or name another output."
        )
