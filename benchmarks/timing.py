"""How long calls take, in turns, so that what slows the machine down slows all of them."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_seconds(
    *calls: Callable[[], object],
    repeats: int = 3,
    seconds: float = 0.0,
    warm_up: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """The seconds of each call's fastest turn.

    Args:
        calls: what to compare.
        repeats: turns of each, at least.
        seconds: how long to go on taking turns, at least.
        warm_up: whether each has one more turn first that does not count.
        clock: `time.process_time` where other processes are busy.
    """
    if warm_up:
        for call in calls:
            call()
    best = [float("inf")] * len(calls)
    turns, end = 0, time.perf_counter() + seconds
    while turns < repeats or time.perf_counter() < end:
        turns += 1
        for index, call in enumerate(calls):
            start = clock()
            call()
            best[index] = min(best[index], clock() - start)
    return best
