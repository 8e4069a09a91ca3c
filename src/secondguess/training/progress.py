"""How far a long piece of work is: bars on a terminal, plain lines elsewhere, or whoever listens.

The one progress bar of the package; everything that takes long shows itself here. It writes to
standard error, because standard output is for results. Needs rich, and nothing that trains.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from secondguess._text import shown

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY = 30.0
"""Seconds between two lines where there is no terminal, at most."""
TOLD_EVERY = 10.0
"""Seconds between two tellings of work that runs side by side, at most, news or not."""

Tell = Callable[[str, str, float], None]
"""Takes the label of a piece of work, the part it is at, and the share of it that is done."""


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
def progress_side_by_side(efforts: Mapping[str, float]) -> Iterator[Tell]:
    """A function that shows how far each of several pieces of work is that run at the same time.

    On a terminal there is a bar for each, and one for all. Elsewhere a line is written for each new
    part, and at least every half minute.

    >>> with progress_side_by_side({"regression": 2.0, "frozen lake": 4.0}) as tell:
    ...     tell("regression", "intervals", 0.8)  # a line on standard error, or a bar

    Args:
        efforts: by label, how long a piece takes compared with the others, roughly.
    """
    if not sys.stderr.isatty():
        yield lines_of_parts(lambda line: print(shown(line), file=sys.stderr, flush=True))
        return
    from rich.markup import escape

    with _bars() as bars:
        everything = bars.add_task("everything", total=sum(efforts.values()), state="")
        bars.update(everything, visible=len(efforts) > 1)
        tasks = {
            label: bars.add_task(escape(shown(label)), total=1.0, start=False, state="")
            for label in efforts
        }
        done = dict.fromkeys(efforts, 0.0)

        def tell(label: str, part: str, share_done: float) -> None:
            bars.start_task(tasks[label])
            state = escape(shown(f"{share_done:.0%} {part}"))
            bars.update(tasks[label], completed=share_done, state=state)
            done[label] = efforts[label] * share_done
            bars.update(everything, completed=sum(done.values()))

        yield tell


def lines_of_parts(
    write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Tell:
    """Write a line for each new part, and one at least every half minute.

    >>> tell = lines_of_parts(print)
    >>> tell("toy", "training", 0.1)
    toy: training (10% done)
    >>> tell("toy", "training", 0.2)  # too soon
    >>> tell("toy", "samples", 0.9)
    toy: samples (90% done)
    """
    last: dict[str, tuple[str, float]] = {}

    def tell(label: str, part: str, share_done: float) -> None:
        last_part, told_at = last.get(label, ("", 0.0))
        # The next telling may be `TOLD_EVERY` seconds away, which would be too late.
        if part != last_part or clock() - told_at > LINE_EVERY - TOLD_EVERY:
            last[label] = (part, clock())
            write(f"{label}: {part} ({share_done:.0%} done)")

    return tell


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.console import Console
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
    with Progress(*columns, console=Console(stderr=True)) as bars:
        yield bars


@contextmanager
def _bar(label: str) -> Iterator[Show]:
    from rich.markup import escape

    with _bars() as bar:
        task = bar.add_task(escape(shown(label)), total=None, state="")

        def show(done: float, total: float | None, note: str = "") -> None:
            state = escape(shown(_state(done, total, note)))
            bar.update(task, completed=done, total=total, state=state)

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
            line = shown(f"{label}: {latest[0]}, {minutes}:{seconds:02}")
            print(line, file=sys.stderr, flush=True)

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
