"""Who is told how far a run is. What bars look like is `secondguess.training.progress`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from secondguess.training.progress import steps_told_to

_told: ContextVar[Callable[[str, float], None] | None] = ContextVar("who is told", default=None)


@contextmanager
def progress_told_to(listener: Callable[[str, float], None]) -> Iterator[None]:
    """Inside, runs call `listener(part, share_done)` as they go on, and draw no bars.

    >>> heard = []
    >>> with progress_told_to(lambda part, share_done: heard.append((part, share_done))):
    ...     tell_progress("training", 0.5)
    >>> heard
    [('training', 0.5)]
    """
    token = _told.set(listener)
    try:
        yield
    finally:
        _told.reset(token)


def tell_progress(part: str, share_done: float) -> None:
    """Tell the listener, if there is one."""
    if listener := _told.get():
        listener(part, share_done)


@contextmanager
def part_progress(part: str, *, before: float, share: float) -> Iterator[None]:
    """Turn the steps of a part's training into the share of the whole run that is done.

    Args:
        part: its name.
        before: the share of the run that is done when the part begins.
        share: that the part is of the run.
    """
    tell_progress(part, before)
    if _told.get() is None:
        yield
        return
    with steps_told_to(
        lambda step, num_steps: tell_progress(part, before + share * step / num_steps)
    ):
        yield
