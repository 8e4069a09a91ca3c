"""JSON lines in, JSON lines out: in fixed windows, each written whole or not at all.

Window i holds the lines from i * size on, and what is computed for it may depend on nothing but
these lines and the settings. Its output is a file of its own under `OUT.parts`, named after its
number and a digest of its lines, until all windows are there and are joined to `OUT`. So a run that
was killed resumes without repeating or losing a line, several processes share the windows without
speaking to each other, and correcting a line costs one window.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from secondguess._files import replacing, write_json, write_text
from secondguess.language.formatting import FormatError

Row = dict[str, Any]

SKIPPED = "skipped"
"""The key of the reason in the output of a line that was skipped."""


class BadLineError(ValueError):
    """A line that cannot be used; the message names file and line."""

    def __init__(self, path: Path, line: int, problem: object) -> None:
        super().__init__(f"{path}, line {line}: {problem}")


def parse_line(path: Path, line: int, text: bytes | str) -> Row:
    """One line as a row.

    >>> parse_line(Path("data.jsonl"), 3, "{'prompt'")
    Traceback (most recent call last):
    ...
    secondguess.language.jsonl.BadLineError: data.jsonl, line 3: broken JSON (Expecting property
    name enclosed in double quotes at character 2).
    """
    try:
        row = json.loads(text)
    except UnicodeDecodeError as error:
        raise BadLineError(path, line, f"not UTF-8 text ({error.reason}).") from None
    except json.JSONDecodeError as error:
        problem = f"broken JSON ({error.msg} at character {error.pos + 1})."
        raise BadLineError(path, line, problem) from None
    if not isinstance(row, dict):
        raise BadLineError(path, line, f"a {type(row).__name__}; expected an object, {{...}}.")
    return row


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive lines of a file.

    Attributes:
        path: the file.
        index: number of the window, from 0.
        first_line: number of its first line, from 1.
        lines: the lines, unparsed.
    """

    path: Path
    index: int
    first_line: int
    lines: tuple[bytes, ...]

    @property
    def digest(self) -> str:
        """A short name for the content."""
        return hashlib.blake2b(b"\n".join(self.lines), digest_size=8).hexdigest()

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Line numbers and lines, without blank lines."""
        numbered = enumerate(self.lines, start=self.first_line)
        return ((number, line) for number, line in numbered if line.strip())


def read_windows(path: Path, size: int) -> Iterator[Window]:
    """The windows of a file, one in memory at a time."""
    with path.open("rb") as file:
        lines = (line.rstrip(b"\r\n") for line in file)
        index = 0
        while chunk := list(islice(lines, size)):
            yield Window(path, index, index * size + 1, tuple(chunk))
            index += 1


def count_lines(path: Path) -> int:
    """How many lines a file has, a last one without line break included."""
    with path.open("rb") as file:
        return sum(1 for _ in file)


def parse_rows(
    window: Window, check: Callable[[Row], Any], *, skip_bad: bool
) -> Iterator[tuple[int, Row, Any]]:
    """Line number, row and what `check` made of it; a reason as text where the line is skipped.

    Raises:
        BadLineError: for the first bad line, unless bad lines are skipped.
    """
    for line, text in window.rows():
        try:
            row = parse_line(window.path, line, text)
            try:
                checked = check(row)
            except FormatError as error:
                raise BadLineError(window.path, line, error) from None
        except BadLineError as error:
            if not skip_bad:
                raise
            yield line, {}, str(error)
            continue
        yield line, row, checked


@dataclass(frozen=True, kw_only=True)
class WindowedJob:
    """Work on a file of JSON lines that can be killed at any moment and shared by processes.

    Attributes:
        source: the input.
        out: the output; it appears when everything is done.
        settings: whatever else the output depends on; a job only resumes with its own settings.
        window_size: how many lines are worked on together.
        process_index: which of the processes this is.
        num_processes: how many share the windows.
    """

    source: Path
    out: Path
    settings: Mapping[str, Any]
    window_size: int
    process_index: int = 0
    num_processes: int = 1

    @property
    def parts(self) -> Path:
        """Where finished windows wait for the others."""
        return self.out.with_name(self.out.name + ".parts")

    def part(self, window: Window) -> Path:
        """The file of a finished window."""
        return self.parts / f"{window.index:08d}-{window.digest}.jsonl"

    def prepare(self) -> None:
        """Check that the job can run, and make its folder."""
        if not self.source.is_file():
            raise ValueError(f"{self.source} is not a file.")
        if self.out.exists() and not self.parts.exists():
            raise ValueError(f"{self.out} exists; remove it, or name another output.")
        if not self.out.parent.is_dir():
            raise ValueError(f"{self.out.parent} is not a folder; make it first.")
        self.parts.mkdir(exist_ok=True)
        path = self.parts / "settings.json"
        settings = {**self.settings, "window_size": self.window_size}
        if not path.exists():
            write_json(path, settings)
        found = json.loads(path.read_text(encoding="utf-8"))
        changed = [
            f"{key}: {found.get(key)!r} before, {settings.get(key)!r} now"
            for key in sorted(found.keys() | settings.keys())
            if found.get(key) != settings.get(key)
        ]
        if changed:
            raise ValueError(
                f"{self.parts} holds an unfinished run with other settings "
                f"({'; '.join(changed)}). Repeat them to resume, or remove the folder."
            )

    def run(
        self, work: Callable[[Window], list[Row]], on_window: Callable[[int], None] = lambda _: None
    ) -> None:
        """Do this process's share of the windows that are not done yet.

        Args:
            work: the output rows of a window.
            on_window: told how many lines each window had.
        """
        for window in read_windows(self.source, self.window_size):
            if window.index % self.num_processes != self.process_index:
                continue
            path = self.part(window)
            if not path.exists():
                rows = work(window)
                write_text(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
            on_window(len(window.lines))

    def join(self) -> tuple[int, int]:
        """Put the windows together; how many rows there are, and how many were skipped."""
        num_rows = num_skipped = 0
        with replacing(self.out) as unfinished, unfinished.open("wb") as joined:
            for window in read_windows(self.source, self.window_size):
                for line in self.part(window).read_bytes().splitlines(keepends=True):
                    joined.write(line)
                    num_rows += 1
                    num_skipped += SKIPPED in json.loads(line)
        # One entry at a time: a list of all windows would grow with the file.
        with os.scandir(self.parts) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):  # left by a writer that was killed
                    shutil.rmtree(entry)
                else:
                    os.unlink(entry)
        self.parts.rmdir()
        return num_rows, num_skipped
