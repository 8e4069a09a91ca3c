"""Values that should not be where they are, and damage to the bytes of files."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 2, 1e308, -1e308, 2**62, 2**63, 10**400, 0.5, "", "text", "\x00"),
    *("\x1b]0;x\x07", "\ud800", "\u202e", "nan", "1_0", [], [1], [[]], {}, {"a": 1}, [None]),
]
ODD_BYTES = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"{",
    b"[" * 50_000,
    b"NaN",
    b"null",
    b"\n",
]


def damage(rng: random.Random, file: Path) -> None:
    """Cut, change or replace the bytes of a file."""
    if file.is_dir():
        file = rng.choice(sorted(file.iterdir()))
    content = bytearray(file.read_bytes())
    match rng.choice(["cut", "flip", "replace", "insert", "pipe"]):
        case "cut":
            content = content[: rng.randrange(len(content) + 1)]
        case "flip":
            for _ in range(rng.randint(1, 8)):
                content[rng.randrange(len(content))] = rng.randrange(256)
        case "replace":
            content = bytearray(rng.choice(ODD_BYTES))
        case "insert":
            at = rng.randrange(len(content) + 1)
            content[at:at] = rng.choice(ODD_BYTES)
        case _:
            file.unlink()
            os.mkfifo(file)
            return
    file.write_bytes(content)
