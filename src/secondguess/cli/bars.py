"""How far experiments are that run side by side: one bar each, or lines without a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from secondguess.experiments.processes import TOLD_EVERY, Job, Listener

LINE_EVERY = 30.0
"""Seconds between two lines about one job, at most."""


@contextmanager
def job_progress(jobs: Sequence[Job]) -> Iterator[Listener]:
    """A listener that shows a bar per job, and one for all; lines where there is no terminal."""
    console = Console()
    if not console.is_terminal:
        yield line_listener(lambda line: console.print(line, soft_wrap=True, highlight=False))
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        total = sum(job.effort for job in jobs)
        overall = bars.add_task("everything", total=total) if len(jobs) > 1 else None
        tasks = {job.title: bars.add_task(job.title, total=1.0, start=False) for job in jobs}
        effort_done = dict.fromkeys(tasks, 0.0)

        def listener(job: Job, part: str, share_done: float) -> None:
            task = tasks[job.title]
            bars.start_task(task)
            bars.update(task, completed=share_done, description=f"{job.title}: {part}")
            effort_done[job.title] = job.effort * share_done
            if overall is not None:
                bars.update(overall, completed=sum(effort_done.values()))

        yield listener


def line_listener(
    write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Listener:
    """A listener that writes a line for each new part, and one at least every half minute.

    >>> from pathlib import Path
    >>> job = Job(title="toy", run=Path, seeds=[0], preset="quick", out=Path("out"))
    >>> tell = line_listener(print)
    >>> tell(job, "training", 0.1)
    toy: training (10% done)
    >>> tell(job, "training", 0.2)  # too soon
    >>> tell(job, "samples", 0.9)
    toy: samples (90% done)
    """
    last: dict[str, tuple[str, float]] = {}

    def listener(job: Job, part: str, share_done: float) -> None:
        last_part, told_at = last.get(job.title, ("", 0.0))
        # News of a silent job come every `TOLD_EVERY` seconds: the next ones would be too late.
        if part != last_part or clock() - told_at > LINE_EVERY - TOLD_EVERY:
            last[job.title] = (part, clock())
            write(f"{job.title}: {part} ({share_done:.0%} done)")

    return listener
