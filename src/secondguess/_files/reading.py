"""The reader of JSON and of JSON lines: complete checks, limits that are stated, one wording.

A file is refused that is not a regular one (a pipe would be waited for), as is text that is not
UTF-8 (a mark at its beginning may say so), `NaN` and its kin, which are not JSON, and what is
nested deeper than `MAX_DEPTH`. A line is read into memory up to `MAX_LINE_BYTES`; of a longer one
only the length is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

MAX_LINE_BYTES = 1 << 24
"""The longest line of JSON lines that is read: 16 MiB."""

MAX_FILE_BYTES = 1 << 25
"""The largest JSON file that is read: 32 MiB."""

MAX_DEPTH = 100
"""How deep lists and objects may be nested."""

_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line of a file, without its end.

    Attributes:
        number: of the line, from 1.
        offset: where it begins, in bytes.
        text: what it holds; empty if it is too long to be read.
        size: how many bytes it has, give or take its end.
    """

    number: int
    offset: int
    text: bytes
    size: int

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing on it."""
        return self.size <= MAX_LINE_BYTES and not self.text.strip()

    def parse(self) -> Any:
        """What the line says; a `ValueError` with the reason if that is not JSON."""
        if self.size > MAX_LINE_BYTES:
            raise ValueError(
                f"the line has {self.size:,} bytes; expected at most {MAX_LINE_BYTES:,}."
            )
        return parse_json(self.text)


def read_lines(path: Path, start: int = 0) -> Iterator[Line]:
    """The lines of a file one by one, from the byte `start` on, in bounded memory."""
    check_regular(path)
    with path.open("rb") as file:
        file.seek(start)
        number, offset = 1, start
        while text := file.readline(MAX_LINE_BYTES + 2):
            length, last = len(text), text
            while not last.endswith(b"\n") and (last := file.readline(1 << 20)):
                length, text = length + len(last), b""
            kept = text.rstrip(b"\r\n")
            size = len(kept) if text else length
            if size > MAX_LINE_BYTES:
                kept = b""
            yield Line(number, offset, kept.removeprefix(b"" if offset else _MARK), size)
            number, offset = number + 1, offset + length


def parse_json(text: bytes, *, constants: bool = False) -> Any:
    """What a text says; a `ValueError` with the reason if it is not JSON.

    >>> parse_json(b'{"p": NaN}')
    Traceback (most recent call last):
    ...
    ValueError: broken JSON (NaN is not JSON).

    Args:
        text: the text.
        constants: allow `NaN` and `Infinity`, which Python writes.
    """
    try:
        content = json.loads(
            text.decode("utf-8-sig"), parse_constant=None if constants else _refuse
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start + 1}).") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"broken JSON ({error.msg} at character {error.pos + 1}).") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # NaN, or a whole number of thousands of digits
        raise ValueError(f"broken JSON ({str(error).split(';')[0]}).") from None
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _is_deep(content):
        raise _too_deep()
    return content


def read_json(path: Path, *, at_most: int = MAX_FILE_BYTES, constants: bool = False) -> Any:
    """What a JSON file says.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, too large, or not JSON; the message names it.
    """
    check_regular(path)
    with path.open("rb") as file:
        # As much is set aside as is asked for: not more than there is.
        text = file.read(min(at_most, os.fstat(file.fileno()).st_size) + 1)
    if len(text) > at_most:
        raise ValueError(f"{path} has more than {at_most:,} bytes; expected at most as many.")
    try:
        return parse_json(text, constants=constants)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def read_document(path: Path, kind: str, version: int, *, what: str) -> dict[str, Any]:
    """What `write_document` wrote: the entries of the file, but for its kind and format.

    Args:
        path: the file.
        kind: what it must say it is.
        version: the format that this version reads.
        what: what was expected, for the message.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else, damaged, or of another format; the message says which.
    """
    try:
        record = read_json(path, constants=True)
    except ValueError as error:
        raise ValueError(f"{path} is damaged; expected {what} ({error})") from None
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise ValueError(f"{path} is something else, or damaged; expected {what}.")
    if record.get("format") != version or isinstance(record["format"], bool):
        raise ValueError(
            f"{path} has format {record.get('format')!r}; this version reads format {version}."
        )
    return {name: value for name, value in record.items() if name not in ("kind", "format")}


def check_regular(path: Path) -> None:
    """Refuse what is not a file: a folder, a device, or a pipe, which would be waited for."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    if not path.is_file():
        raise ValueError(f"{path} is not a file.")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _too_deep() -> ValueError:
    return ValueError(f"nested too deep; expected at most {MAX_DEPTH} lists and objects.")


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(MAX_DEPTH + 1):
        containers = [each for each in level if isinstance(each, dict | list)]
        level = [
            inner
            for each in containers
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not containers:
            return False
    return True
