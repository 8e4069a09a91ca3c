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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from secondguess.language.engines import Draw, Engine
from secondguess.language.scoring import Tokens
from secondguess.serving.errors import RefusedRequest


@dataclass(eq=False)
class Job:
    """What one request needs of the engine: responses to draw, or responses to score.

    Attributes:
        draws: what to sample.
        items: prompts with responses to score.
        work: something else to have done by the engine's thread, as one row.
        admitted: whether it goes on with a request that has been taken already: such a job is not
            refused, however long the line.
        result: the scored responses, draws first, then what `work` returned.
        found: those that are there so far.
    """

    draws: list[Draw] = field(default_factory=list)
    items: list[tuple[Tokens, Tokens]] = field(default_factory=list)
    work: Callable[[], Any] | None = None
    admitted: bool = False
    result: asyncio.Future[list[Any]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    found: list[Any] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many responses are still to be computed."""
        return len(self.draws) + len(self.items) + bool(self.work) - len(self.found)


class Part(NamedTuple):
    """What a batch computes of a job."""

    job: Job
    draws: list[Draw]
    items: list[tuple[Tokens, Tokens]]
    work: list[Callable[[], Any]]

    @classmethod
    def of(cls, job: Job, rows: int) -> Part:
        """The next rows of a job, at most so many."""
        start = len(job.found)
        stop = start + rows
        items = slice(max(start - len(job.draws), 0), max(stop - len(job.draws), 0))
        work = [job.work] if job.work and stop >= start + job.rows else []
        return cls(job, job.draws[start:stop], job.items[items], work)


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
        if not job.rows:
            return []
        if len(self._line) >= self.max_waiting and not job.admitted:
            batches = 1 + sum(each.rows for each in self._line) / self.max_rows
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
            self._watcher.batch_done(sum(_rows(part) for part in batch), seconds)
            for part, result in zip(batch, results, strict=True):
                self._deliver(part.job, result)

    def _deliver(self, job: Job, result: list[Any] | Exception) -> None:
        if job.result.done():  # its client has gone
            return
        if isinstance(result, Exception):
            job.result.set_exception(result)
            return
        job.found += result
        if job.rows:
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
                if batch and job.rows > room:
                    break
                batch.append(Part.of(job, room))
                room -= _rows(batch[-1])
            self._line.popleft()
        return batch

    def _compute(self, batch: list[Part]) -> list[list[Any] | Exception]:
        """The results of a batch; a job that fails alone does not take the others with it."""
        try:
            drawn = iter(self.engine.sample([draw for part in batch for draw in part.draws]))
            scored = iter(self.engine.score([item for part in batch for item in part.items]))
            return [
                [
                    *(next(drawn) for _ in part.draws),
                    *(next(scored) for _ in part.items),
                    *(work() for work in part.work),
                ]
                for part in batch
            ]
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [result for part in batch for result in self._compute([part])]


def _rows(part: Part) -> int:
    return len(part.draws) + len(part.items) + len(part.work)
