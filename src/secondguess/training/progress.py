"""How far a long piece of work is: bars on a terminal, plain lines elsewhere, or whoever listens.

The one progress bar of the package; everything that takes long shows itself here. It writes to
standard error, because standard output is for results. Needs rich, and nothing that trains.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

LINE_EVERY = 30.0
"""Seconds between two lines where there is no terminal."""


class Show(Protocol):
    """Tells how much is done; `total` is None where that is not known."""

    def __call__(self, done: float, total: float | None, note: str = "") -> None:
        """Take what is said as the present state; calls cost next to nothing."""
        ...


_listener: ContextVar[Callable[[int, int], None] | None] = ContextVar("who is told", default=None)


@contextmanager
def steps_told_to(listener: Callable[[int, int], None]) -> Iterator[None]:
    """Inside, work with a label calls `listener(steps_done, num_steps)` and shows nothing.

    >>> heard = []
    >>> with steps_told_to(lambda done, total: heard.append((done, total))):
    ...     with progress("training") as show:
    ...         show(10, 200)
    >>> heard
    [(10, 200)]
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def progress(label: str | None, *, line_every: float = LINE_EVERY) -> Iterator[Show]:
    """A function that shows how far something is.

    >>> with progress("training") as show:  # done within seconds: no line
    ...     show(10, 200, "loss 0.5")

    Args:
        label: what to call the work; None to show nothing.
        line_every: seconds between two lines where there is no terminal.
    """
    listener = _listener.get()
    if label is None:
        yield lambda done, total, note="": None
    elif listener is not None:
        yield lambda done, total, note="": listener(int(done), int(total or 0))
    elif sys.stderr.isatty():
        with _bar(label) as show:
            yield show
    else:
        with _lines(label, line_every) as show:
            yield show


@contextmanager
def _bar(label: str) -> Iterator[Show]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(escape(label), total=None, state="")

        def show(done: float, total: float | None, note: str = "") -> None:
            bar.update(task, completed=done, total=total, state=escape(_state(done, total, note)))

        yield show


@contextmanager
def _lines(label: str, line_every: float) -> Iterator[Show]:
    # A thread, because a single step may take longer than the time between two lines.
    start, ended = time.monotonic(), threading.Event()
    latest: list[str] = []
    told: list[str] = []

    def tell() -> None:
        if latest:
            told[:] = latest
            minutes, seconds = divmod(round(time.monotonic() - start), 60)
            print(f"{label}: {latest[0]}, {minutes}:{seconds:02}", file=sys.stderr, flush=True)

    def tell_now_and_then() -> None:
        while not ended.wait(line_every):
            tell()

    def show(done: float, total: float | None, note: str = "") -> None:
        latest[:] = [_state(done, total, note)]

    thread = threading.Thread(target=tell_now_and_then, daemon=True)
    thread.start()
    try:
        yield show
    finally:
        ended.set()
        thread.join()
        if told and told != latest:
            tell()


def _state(done: float, total: float | None, note: str) -> str:
    """The words of a bar or a line.

    >>> _state(1200, 5000, "loss 0.31")
    '1,200/5,000 loss 0.31'
    """
    of = "" if total is None else f"/{total:,.0f}"
    return f"{done:,.0f}{of} {note}".rstrip()
