"""Processes that die with their parent, however it dies.

A watching thread waits for the end of something that only the parent holds open, and then ends its
own process at once. It works where the parent was killed and could tell nobody.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from threading import Thread


def die_with(held_open: int, grace: float = 0.0) -> None:
    """End this process when a pipe is closed whose other end the parent holds.

    Args:
        held_open: the descriptor of this end, from which nothing else is read.
        grace: seconds between an interrupt, on which work may be saved, and the end.
    """

    def watch() -> None:
        connection.wait([held_open])
        if grace:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(grace)
        os._exit(1)

    Thread(target=watch, daemon=True, name="dies with its parent").start()


@contextmanager
def worker_pool(num_workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes to submit work to, which are gone when this ends or when its process dies.

    Whatever goes wrong, an interrupt included, they are stopped in the midst of their work.
    """
    pool = ProcessPoolExecutor(num_workers, get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    # Ctrl-C of a terminal reaches all processes; the parent hears it and stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None
    die_with(parent.sentinel)
