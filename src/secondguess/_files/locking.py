"""Locks on files and folders that the operating system lets go of when their holder dies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def try_lock(descriptor: int) -> None:
        """Hold an open file until it is closed; `OSError` if someone else holds it."""
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def try_lock(descriptor: int) -> None:
        """Hold an open file until it is closed; `OSError` if someone else holds it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Opening a name with this fails where it is a link."""

_FOLDER = getattr(os, "O_DIRECTORY", 0)


def lock_folder(place: Path) -> int | None:
    """A descriptor that holds the folder until it is closed; None where folders cannot be held.

    Raises:
        BlockingIOError: someone else holds it, or has removed it.
    """
    try:
        descriptor = os.open(place, os.O_RDONLY | _FOLDER | NO_LINK)
    except FileNotFoundError:
        raise BlockingIOError from None
    except OSError:
        return None
    try:
        try_lock(descriptor)
        if not is_still(place, descriptor):
            raise BlockingIOError
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return descriptor


def is_still(path: Path, descriptor: int) -> bool:
    """Whether a name still belongs to the file that was opened by it."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
