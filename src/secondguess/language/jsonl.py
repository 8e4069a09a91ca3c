"""JSON lines in, JSON lines out: in fixed windows, each written whole or not at all.

Window i holds the lines from i * size on, and what is computed for it may depend on nothing but
these lines and the settings. Its output is a file of its own under `OUT.parts`, named after its
number and a digest of its lines, until all windows are there and are joined to `OUT`. So a run that
was killed resumes without repeating or losing a line, several processes share the windows without
speaking to each other, and correcting a line costs one window. A window's file says what it was
made from and what it holds; one that does not is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from filecmp import cmp
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from secondguess._files import (
    Line,
    check_output,
    check_regular,
    private_folder,
    read_document,
    read_lines,
    remove_folder,
    replacing,
    write_document,
    write_text,
)
from secondguess.language.formatting import FormatError

Row = dict[str, Any]

_SETTINGS, _WINDOW, _FORMAT = "secondguess unfinished job", "secondguess window", 1

_SETTINGS_FILE = "settings.json"

SKIPPED = "skipped"
"""The key of the reason in the output of a line that was skipped."""


class BadLineError(ValueError):
    """A line that cannot be used; the message names file and line."""

    def __init__(self, path: Path, line: int, problem: object) -> None:
        super().__init__(f"{path}, line {line}: {problem}")


def parse_line(path: Path, line: Line) -> Row:
    """One line as a row.

    >>> parse_line(Path("data.jsonl"), Line(3, 20, b"{'prompt'", 9))
    Traceback (most recent call last):
    ...
    secondguess.language.jsonl.BadLineError: data.jsonl, line 3: broken JSON (Expecting property
    name enclosed in double quotes at character 2).
    """
    try:
        row = line.parse()
    except ValueError as error:
        raise BadLineError(path, line.number, error) from None
    if not isinstance(row, dict):
        found = f"a {type(row).__name__}; expected an object, {{...}}."
        raise BadLineError(path, line.number, found)
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
    lines: tuple[Line, ...]

    @property
    def digest(self) -> str:
        """A short name for the content; of a line that is too long, its length counts."""
        digest = hashlib.blake2b(digest_size=8)
        for line in self.lines:
            digest.update(f"{line.size} ".encode() + line.text + b"\n")
        return digest.hexdigest()

    def rows(self) -> Iterator[Line]:
        """The lines, without blank ones."""
        return (line for line in self.lines if not line.is_blank)


def read_windows(path: Path, size: int) -> Iterator[Window]:
    """The windows of a file, one in memory at a time."""
    lines = read_lines(path)
    index = 0
    while chunk := list(islice(lines, size)):
        yield Window(path, index, index * size + 1, tuple(chunk))
        index += 1


def count_lines(path: Path) -> int:
    """How many lines a file has, a last one without line break included."""
    return sum(1 for _ in read_lines(path))


def parse_rows(
    window: Window, check: Callable[[Row], Any], *, skip_bad: bool
) -> Iterator[tuple[int, Row, Any]]:
    """Line number, row and what `check` made of it; a reason as text where the line is skipped.

    Raises:
        BadLineError: for the first bad line, unless bad lines are skipped.
    """
    for line in window.rows():
        try:
            row = parse_line(window.path, line)
            try:
                checked = check(row)
            except FormatError as error:
                raise BadLineError(window.path, line.number, error) from None
        except BadLineError as error:
            if not skip_bad:
                raise
            yield line.number, {}, str(error)
            continue
        yield line.number, row, checked


def as_text(rows: Iterable[Row]) -> str:
    """Rows as JSON lines."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


@dataclass(frozen=True, kw_only=True)
class WindowedJob:
    """Work on a file of JSON lines that can be killed at any moment and shared by processes.

    Attributes:
        source: the input.
        out: the output; it appears when everything is done.
        settings: whatever else the output depends on; a job only resumes with its own settings.
        window_size: how many lines are worked on together.
        inputs: what else the output is made from, and must not be.
        overwrite: whether an output that is there is replaced.
        process_index: which of the processes this is.
        num_processes: how many share the windows.
    """

    source: Path
    out: Path
    settings: Mapping[str, Any]
    window_size: int
    inputs: Sequence[Path] = ()
    overwrite: bool = False
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
        check_regular(self.source)
        # An unfinished job of ours may have been killed right after its output was there.
        overwrite = self.overwrite or self.parts.exists()
        check_output(self.out, [self.source, *self.inputs], overwrite=overwrite)
        private_folder(self.parts)
        path = self.parts / _SETTINGS_FILE
        if not path.exists():
            write_document(path, _SETTINGS, _FORMAT, {"settings": self._settings})
        what = "the settings of an unfinished job; remove the folder"
        found = read_document(path, _SETTINGS, _FORMAT, what=what).get("settings")
        if not isinstance(found, dict):
            raise ValueError(f"{path} is damaged; expected {what}.")
        changed = [
            f"{key}: {found.get(key)!r} before, {self._settings.get(key)!r} now"
            for key in sorted(found.keys() | self._settings.keys())
            if found.get(key) != self._settings.get(key)
        ]
        if changed:
            raise ValueError(
                f"{self.parts} holds an unfinished run with other settings "
                f"({'; '.join(changed)}). Repeat them to resume, or remove the folder."
            )

    @cached_property
    def _settings(self) -> dict[str, Any]:
        settings = {**self.settings, "window_size": self.window_size}
        return json.loads(json.dumps(settings, default=str))

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
            if not self.is_finished(window):
                self.keep(window, as_text(work(window)))
            on_window(len(window.lines))

    def forget_if_unused(self) -> None:
        """Remove the folder of a job that ended before it finished a window."""
        with suppress(OSError):
            if [path.name for path in self.parts.iterdir()] == [_SETTINGS_FILE]:
                remove_folder(self.parts)

    def is_finished(self, window: Window) -> bool:
        """Whether the rows of a window are there, as they were kept."""
        return self._finished(window) is not None

    def keep(self, window: Window, rows: str) -> None:
        """Keep the rows of a window, as `as_text` wrote them, until all are there."""
        head = json.dumps(self._identity(window, rows.encode()))
        write_text(self.part(window), f"{head}\n{rows}")

    def _identity(self, window: Window, content: bytes) -> Row:
        """What the first line of a window's file says: what it was made from, and what follows."""
        made_from = json.dumps([self._settings, window.index, window.digest], sort_keys=True)
        return {
            "kind": _WINDOW,
            "format": _FORMAT,
            "made_from": hashlib.sha256(made_from.encode()).hexdigest(),
            "content": hashlib.sha256(content).hexdigest(),
        }

    def _finished(self, window: Window) -> bytes | None:
        """The rows of a finished window; None if there is no file of it, or another one."""
        path = self.part(window)
        if not path.is_file() or path.is_symlink():
            return None
        head, _, content = path.read_bytes().partition(b"\n")
        wanted = json.dumps(self._identity(window, content)).encode()
        return content if head == wanted else None

    def join(self) -> tuple[int, int]:
        """Put the windows together; how many rows there are, and how many were skipped."""
        num_rows = num_skipped = 0
        with replacing(self.out) as unfinished:
            with unfinished.open("wb") as joined:
                for window in read_windows(self.source, self.window_size):
                    content = self._finished(window)
                    if content is None:
                        raise ValueError(
                            f"{self.source} was changed while it was read; run the command again."
                        )
                    for line in content.splitlines(keepends=True):
                        joined.write(line)
                        num_rows += 1
                        num_skipped += SKIPPED in json.loads(line)
            if self.out.exists() and not self.overwrite and not cmp(self.out, unfinished, False):
                raise FileExistsError(
                    f"{self.out} appeared in the meantime; move it, or replace it by --overwrite."
                )
        # One entry at a time: a list of all windows would grow with the file.
        with os.scandir(self.parts) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):  # left by a writer that was killed
                    shutil.rmtree(entry)
                else:
                    os.unlink(entry)
        self.parts.rmdir()
        return num_rows, num_skipped
