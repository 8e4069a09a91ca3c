"""Signals that ask a training run to end: noted when they come, obeyed after the step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NOTED = (signal.SIGINT, signal.SIGTERM)


class TrainingStopped(KeyboardInterrupt):
    """A training ended by a signal after a step, with a checkpoint to resume from.

    Attributes:
        signal: the number of the signal.
    """

    def __init__(self, number: int, step: int, directory: Path | None) -> None:
        self.signal = number
        super().__init__(
            f"stopped by {signal.Signals(number).name} after step {step}, with a checkpoint in "
            f"{directory}; run the same command again to resume."
        )


@contextmanager
def caught_signals(*, enabled: bool) -> Iterator[list[int]]:
    """A list of one number: the first SIGINT or SIGTERM that came, 0 before.

    The second one does what it would have done without this. Only the main thread can catch
    signals; in others, nothing is caught.
    """
    caught = [0]
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, frame: Any) -> None:
        caught[0] = number
        restore()

    def restore() -> None:
        for each, handler in earlier.items():
            signal.signal(each, handler)

    earlier = {each: signal.getsignal(each) for each in _NOTED}
    for each in _NOTED:
        signal.signal(each, note)
    try:
        yield caught
    finally:
        restore()
