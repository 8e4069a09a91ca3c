"""Runs experiments side by side, each in a process of its own with one thread.

The networks are small: two threads of one run mostly wait for each other, and on a busy
machine much longer. One thread also makes a seed give the same bits whatever else runs, because
sums are never split another way. So there are as many processes as usable cores. Each has its
threads set before torch is loaded, gives its memory back, and may crash without taking the others
along.

A process (`python -m secondguess.experiments.processes`) reads a pickled `Job` from standard input
and writes one JSON object per line to standard output: how far it is, the directory of each seed
that is finished, a mistake in its options. Everything else it prints goes to its log.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from secondguess._files import only_writer_of
from secondguess.experiments.jobs import Job
from secondguess.experiments.threads import ONE_THREAD
from secondguess.report.files import read_claims
from secondguess.report.sections import Claim
from secondguess.training.progress import TOLD_EVERY, Tell

_GRACE = 4.0
"""Seconds that a process has to save its work after its parent has died."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended.

    Attributes:
        job: what was to be done.
        directories: of the seeds that are finished, or of what puts them together.
        error: the last line of the log of a job that crashed; None if it did not.
        mistake: what is wrong with the options or files that the job was given, or None.
    """

    job: Job
    directories: tuple[Path, ...]
    error: str | None = None
    mistake: str | None = None

    @property
    def claims(self) -> list[Claim]:
        """The claims of all seeds."""
        return [
            claim
            for directory in dict.fromkeys(self.directories)
            for claim in read_claims(directory)
        ]


def usable_cores() -> int:
    """The cores that this process may use.

    >>> usable_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_side_by_side(
    jobs: Sequence[Job], tell: Tell, *, num_processes: int | None = None
) -> list[Outcome]:
    """Run or resume all jobs, those with the largest effort first; a crash stops no other job.

    Args:
        jobs: what to do.
        tell: told how far each running job is, by its title, at least every `TOLD_EVERY` seconds.
        num_processes: how many run at a time; None for as many as usable cores.

    Returns:
        One outcome per job, in the order of `jobs`.

    Raises:
        BlockingIOError: another process runs one of the jobs, with the same output.
        KeyboardInterrupt: after the running jobs have ended; finished parts and checkpoints stay.
    """
    waiting = sorted(range(len(jobs)), key=lambda index: -jobs[index].effort)
    outcomes: dict[int, Outcome] = {}
    events: Queue[tuple[_Running, dict[str, Any] | None]] = Queue()
    with _only_writer_of_all(jobs), _processes() as running:
        while waiting or running:
            while waiting and len(running) < (num_processes or usable_cores()):
                index = waiting.pop(0)
                running[index] = _Running(index, jobs[index])
                Thread(target=running[index].read, args=(events,), daemon=True).start()
            with suppress(Empty):
                process, event = events.get(timeout=1.0)
                if event is None:
                    outcomes[process.index] = running.pop(process.index).outcome()
                else:
                    process.hear(event)
            for process in running.values():
                process.tell(tell)
    return [outcomes[index] for index in range(len(jobs))]


class _Running:
    """A process at work on a job, and what it has said so far."""

    def __init__(self, index: int, job: Job) -> None:
        self.index, self.job = index, job
        self._part, self._share_done, self._told_at = "starting", 0.0, -math.inf
        self._directories: list[Path] = []
        self._mistake: str | None = None
        with job.log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "secondguess.experiments.processes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | ONE_THREAD,
                # Ctrl-C of a terminal would reach it twice: from there and from `stop`.
                start_new_session=True,
            )
        assert self._process.stdin is not None
        # It stays open: when it is closed, however that comes about, the process ends.
        pickle.dump(job, self._process.stdin)
        self._process.stdin.flush()

    def read(self, events: Queue[tuple[_Running, dict[str, Any] | None]]) -> None:
        """Pass on what the process says, then None."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                events.put((self, json.loads(line)))
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        events.put((self, None))

    def hear(self, event: Mapping[str, Any]) -> None:
        """Keep what the process has said."""
        if "part" in event:
            self._part, self._share_done = event["part"], event["share_done"]
            self._told_at = -math.inf
        if "directory" in event:
            self._directories.append(Path(event["directory"]))
        self._mistake = event.get("mistake", self._mistake)

    def tell(self, tell: Tell) -> None:
        """Pass the news on, or the old news where there has been silence for long."""
        if time.monotonic() - self._told_at >= TOLD_EVERY:
            self._told_at = time.monotonic()
            tell(self.job.title, self._part, self._share_done)

    def stop(self) -> None:
        """Interrupt the process, as Ctrl-C would."""
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        """Until the process has ended."""
        self._process.wait()

    def outcome(self) -> Outcome:
        """How the job ended."""
        error = None
        if self._process.returncode != 0:
            lines = self.job.log.read_text(encoding="utf-8").splitlines()
            error = next((line for line in reversed(lines) if line.strip()), "no message")
        if self._mistake is not None:  # it is told; a traceback helps nobody
            self.job.log.unlink(missing_ok=True)
        directories = tuple(self._directories)
        return Outcome(job=self.job, directories=directories, error=error, mistake=self._mistake)


@contextmanager
def _only_writer_of_all(jobs: Sequence[Job]) -> Iterator[None]:
    """Hold the logs of all jobs, which stand for their results; new folders go if left empty."""
    with ExitStack() as held:
        for job in jobs:
            for folder in (job.out, job.log.parent):
                if not folder.exists():
                    folder.mkdir(parents=True, exist_ok=True)
                    held.callback(_remove_if_empty, folder)
            held.enter_context(only_writer_of(job.log))
        yield


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _processes() -> Iterator[dict[int, _Running]]:
    """Processes at work; those that are left when something goes wrong are interrupted."""
    running: dict[int, _Running] = {}
    try:
        yield running
    finally:
        for process in running.values():
            process.stop()
        for process in running.values():
            process.wait()


def main() -> None:
    """Do the job that standard input holds."""
    from secondguess._processes import die_with  # not where only `--help` is wanted

    # A process that was started in the background would ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr
    job: Job = pickle.load(sys.stdin.buffer)
    die_with(sys.stdin.fileno(), grace=_GRACE)
    try:
        _run_seeds(job, lambda event: print(json.dumps(event), file=events))
    except (ValueError, OSError) as error:
        # The log is on the same disk as the results: when it is full, no file may be named.
        unnamed = isinstance(error, OSError) and str(job.out) not in str(error)
        where = f" ({job.title}, in {job.out})" if unnamed else ""
        print(json.dumps({"mistake": f"{error}{where}"}), file=events)
        raise


def _run_seeds(job: Job, tell: Callable[[dict[str, Any]], None]) -> None:
    from secondguess.experiments.progress import progress_told_to
    from secondguess.experiments.runner import only_parts

    for done, seed in enumerate(job.seeds):

        def told(part: str, share_done: float, done: int = done) -> None:
            tell({"part": part, "share_done": (done + share_done) / len(job.seeds)})

        with progress_told_to(told), only_parts(job.parts):
            directory = job.run(preset=job.preset, out=job.out, seed=seed, **job.options)
        tell({"directory": str(directory)})


if __name__ == "__main__":
    main()
