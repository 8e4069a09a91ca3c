"""Requests that arrive together are computed together, in one thread, in the order they came.

The event loop takes requests and waits; one worker thread runs the engine. While a batch runs,
further jobs wait in line, and the next batch takes as many of them as fit. A job larger than a
batch is computed in parts, and the others in line have their turn in between. A job whose client
has gone is dropped before its next batch starts.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, NamedTuple, Protocol

from secondguess.language.engines import Draw, Engine, Question
from secondguess.language.scoring import Tokens
from secondguess.serving.errors import RefusedRequest

Task = Draw | Question | tuple[Tokens, Tokens]
"""A response to draw, a question to judge, or a prompt with a response to score."""


@dataclass(eq=False)
class Job:
    """What one request needs of the engine.

    Attributes:
        tasks: what to compute.
        admitted: whether it goes on with a request that has been taken already: such a job is not
            refused, however long the line.
        result: what the engine found, one entry per task.
        found: the entries that are there so far.
    """

    tasks: Sequence[Task]
    admitted: bool = False
    result: asyncio.Future[list[Any]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    found: list[Any] = field(default_factory=list)

    @property
    def left(self) -> Sequence[Task]:
        """The tasks still to be computed."""
        return self.tasks[len(self.found) :]

    def first_of(self, rows: int) -> Sequence[Task]:
        """The next tasks, at most so many rows, but one in any case."""
        sizes = accumulate(map(_size, self.left))
        return self.left[: max(1, sum(size <= rows for size in sizes))]


class Part(NamedTuple):
    """What a batch computes of a job."""

    job: Job
    tasks: Sequence[Task]


class Watcher(Protocol):
    """Is told about batches."""

    def batch_done(self, rows: int, seconds: float) -> None:
        """A batch was computed."""


class Batcher:
    """A line of jobs before an engine.

    Args:
        engine: does the work.
        max_rows: how many responses a batch has at most.
        max_waiting: how many jobs may wait; one more is refused with status 429.
        watcher: is told about batches.
    """

    def __init__(
        self, engine: Engine, *, max_rows: int, max_waiting: int, watcher: Watcher
    ) -> None:
        self.engine, self.max_rows, self.max_waiting = engine, max_rows, max_waiting
        self._watcher = watcher
        self._line: deque[Job] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="secondguess-engine")
        self._task: asyncio.Task[None] | None = None
        self._seconds_per_batch = 1.0

    @property
    def waiting(self) -> int:
        """How many jobs are in line."""
        return len(self._line)

    def start(self) -> None:
        """Begin to work; call it inside the running event loop."""
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """End after the batch at work; jobs still in line are refused."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for job in self._line:
            if not job.result.done():
                job.result.set_exception(RefusedRequest(503, "the server is shutting down."))
        self._thread.shutdown()

    async def run(self, job: Job) -> list[Any]:
        """Wait in line and return the results; cancelling this drops the job."""
        if not job.tasks:
            return []
        if len(self._line) >= self.max_waiting and not job.admitted:
            batches = 1 + sum(_rows(each.left) for each in self._line) / self.max_rows
            seconds = math.ceil(min(batches * self._seconds_per_batch, 60))
            raise RefusedRequest(
                429,
                f"{len(self._line)} requests are waiting, as many as may; try again in "
                f"{seconds} seconds.",
                code="queue_full",
                headers={"Retry-After": str(max(seconds, 1))},
            )
        self._line.append(job)
        self._arrived.set()
        return await job.result

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            batch = self._next_batch()
            if not batch:
                self._arrived.clear()
                continue
            start = time.perf_counter()
            loop = asyncio.get_running_loop()
            results = await loop.run_in_executor(self._thread, self._compute, batch)
            seconds = time.perf_counter() - start
            self._seconds_per_batch += 0.2 * (seconds - self._seconds_per_batch)
            self._watcher.batch_done(sum(_rows(part.tasks) for part in batch), seconds)
            for part, result in zip(batch, results, strict=True):
                self._deliver(part.job, result)

    def _deliver(self, job: Job, result: list[Any] | Exception) -> None:
        if job.result.done():  # its client has gone
            return
        if isinstance(result, Exception):
            job.result.set_exception(result)
            return
        job.found += result
        if job.left:
            self._line.append(job)
            self._arrived.set()
        else:
            job.result.set_result(job.found)

    def _next_batch(self) -> list[Part]:
        batch: list[Part] = []
        room = self.max_rows
        while self._line:
            job = self._line[0]
            if not job.result.done():
                if batch and _rows(job.left) > room:
                    break
                batch.append(Part(job, job.first_of(room)))
                room -= _rows(batch[-1].tasks)
            self._line.popleft()
        return batch

    def _compute(self, batch: list[Part]) -> list[list[Any] | Exception]:
        """The results of a batch; a job that fails alone does not take the others with it."""
        try:
            found = iter(self._results([task for part in batch for task in part.tasks]))
            return [list(islice(found, len(part.tasks))) for part in batch]
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [result for part in batch for result in self._compute([part])]

    def _results(self, tasks: Sequence[Task]) -> list[Any]:
        """One entry per task, each kind of task in one call of the engine."""
        draws = [task for task in tasks if isinstance(task, Draw)]
        questions = [task for task in tasks if isinstance(task, Question)]
        items = [task for task in tasks if not isinstance(task, Draw | Question)]
        found = {
            Draw: iter(self.engine.sample(draws)),
            Question: iter(self.engine.judge(questions) if questions else []),
            tuple: iter(self.engine.score(items)),
        }
        return [next(found[type(task)]) for task in tasks]


def _rows(tasks: Sequence[Task]) -> int:
    return sum(map(_size, tasks))


def _size(task: Task) -> int:
    """How many responses it asks for."""
    return task.num_samples if isinstance(task, Question) else 1
