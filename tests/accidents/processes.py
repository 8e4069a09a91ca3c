"""Processes of a warm parent, to be killed, stopped and counted.

A child is a fork of this process, in a session of its own, with everything imported already: it
begins its work at once, and dies as any process does. The parent must not have run anything that
starts threads (no training), for a fork has only one of them.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from secondguess._files import writing

SECONDS_TO_END = 5.0
"""How long after a kill a process may still be there."""


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        code: its exit code, or minus the signal that ended it.
        said: what it wrote on standard output and standard error.
        left: how many processes of its session there were after `SECONDS_TO_END`.
    """

    code: int
    said: str
    left: int


@dataclass(frozen=True)
class Child:
    """A process at work.

    Attributes:
        pid: its number, and that of its session.
        output: the file of what it says.
    """

    pid: int
    output: Path

    def send(self, number: int) -> None:
        """A signal, as another user's `kill` would send it; nothing if it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended(self) -> Ended:
        """Wait for its end, and for that of all that it started."""
        _, status = os.waitpid(self.pid, 0)
        patience = time.monotonic() + SECONDS_TO_END
        while (left := _session(self.pid)) and time.monotonic() < patience:
            time.sleep(0.02)
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, self.output.read_text(errors="replace"), len(left))


def start(work: Callable[[], object], output: Path) -> Child:
    """Begin a piece of work; returns when it has begun.

    Args:
        work: what to do; exit codes and exceptions are those of a script.
        output: a file for what it says.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    ready, begin = os.pipe()
    pid = os.fork()
    if pid:
        os.close(begin)
        os.read(ready, 1)
        os.close(ready)
        return Child(pid, output)
    os.setsid()
    with output.open("w", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        # Where this was started in the background, interrupts are ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # A fresh process looks for what killed ones left; the parent has done so already.
        writing._cleared.clear()
        os.write(begin, b"1")
        code = 1
        try:
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except KeyboardInterrupt:  # what runs commands hears it; this one came between
            code = 128 + signal.SIGINT
        except BaseException as error:
            import traceback

            traceback.print_exception(error)
        finally:
            file.flush()
            # Not by the parent's handlers at exit.
            os._exit(code)


def unbroken(work: Callable[[], object], output: Path) -> float:
    """Do a piece of work to its end in a child; the seconds that it took."""
    child, began = start(work, output), time.perf_counter()
    ended = child.ended()
    assert ended.code == 0, ended.said
    return time.perf_counter() - began


def wait_within(rng: random.Random, seconds: float) -> None:
    """A moment between now and so many seconds from now."""
    until = time.perf_counter() + rng.random() * seconds
    if (rest := until - time.perf_counter()) > 0.002:
        time.sleep(rest - 0.001)
    while time.perf_counter() < until:
        pass


def _session(leader: int) -> list[int]:
    """The processes of a session that are neither gone nor waiting to be counted as gone."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            # After the name in parentheses: state, parent, group, session.
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state not in "ZX":
                found.append(int(entry.name))
    return found
