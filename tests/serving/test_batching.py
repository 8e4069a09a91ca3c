"""Requests that arrive together are computed together; the line has an end; nobody is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from serving.stand_in import KnownEngine

from secondguess.language.engines import Draw, Question
from secondguess.language.generation import Sampling
from secondguess.serving.app import create_app
from secondguess.serving.batching import Batcher, Job
from secondguess.serving.config import ServerConfig
from secondguess.serving.counters import Counters
from secondguess.serving.errors import RefusedRequest


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def batcher(engine: KnownEngine, *, max_rows: int = 8, max_waiting: int = 4) -> Batcher:
    return Batcher(engine, max_rows=max_rows, max_waiting=max_waiting, watcher=Counters())


def job(engine: KnownEngine, seed: int = 0, rows: int = 1) -> Job:
    prompt = engine.formatter.prompt_tokens("known")
    return Job([Draw(prompt, (seed, row), Sampling()) for row in range(rows)])


def with_line(**settings: int) -> Callable[..., Callable[[], None]]:
    """A test of a line whose engine waits at its gate; it is a coroutine of both."""

    def decorate(scenario: Callable[[KnownEngine, Batcher], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            async def play() -> None:
                engine = KnownEngine()
                engine.gate = threading.Event()
                line = batcher(engine, **settings)
                line.start()
                await scenario(engine, line)
                await line.stop()

            asyncio.run(play())

        return test

    return decorate


async def at_work(engine: KnownEngine, line: Batcher, rows: int = 1) -> asyncio.Task[Any]:
    """A job that is at the gate, so that those after it wait in line."""
    task = asyncio.create_task(line.run(job(engine, rows=rows)))
    await until(lambda: engine.begun == 1)
    return task


def opened(engine: KnownEngine) -> None:
    assert engine.gate is not None
    engine.gate.set()


@with_line()
async def test_waiting_jobs_share_a_batch(engine: KnownEngine, line: Batcher) -> None:
    first = await at_work(engine, line)
    others = [asyncio.create_task(line.run(job(engine, seed, rows=3))) for seed in (1, 2, 3)]
    await until(lambda: line.waiting == 3)
    opened(engine)
    results = await asyncio.gather(first, *others)
    assert [len(each) for each in results] == [1, 3, 3, 3]
    assert engine.batches == [1, 6, 3]  # at most eight rows


@with_line()
async def test_a_large_job_is_computed_in_parts_and_lets_others_through(
    engine: KnownEngine, line: Batcher
) -> None:
    large = await at_work(engine, line, rows=20)
    small = asyncio.create_task(line.run(job(engine, seed=1, rows=2)))
    await until(lambda: line.waiting == 1)
    opened(engine)
    await small
    assert not large.done()
    drawn = await large
    assert engine.batches == [8, 2, 8, 4]
    [alone] = await line.run(Job([job(engine, rows=20).tasks[13]]))
    assert drawn[13].text == alone.text  # each in its place


@with_line(max_waiting=1)
async def test_a_request_that_was_taken_is_not_refused_halfway(
    engine: KnownEngine, line: Batcher
) -> None:
    tasks = [await at_work(engine, line)]
    tasks.append(asyncio.create_task(line.run(job(engine))))
    await until(lambda: line.waiting == 1)
    again = job(engine)
    again.admitted = True
    tasks.append(asyncio.create_task(line.run(again)))
    await until(lambda: line.waiting == 2)
    opened(engine)
    assert all(await asyncio.gather(*tasks))


@with_line(max_waiting=2)
async def test_a_full_line_refuses_and_says_when_to_come_back(
    engine: KnownEngine, line: Batcher
) -> None:
    tasks = [await at_work(engine, line)]
    tasks += [asyncio.create_task(line.run(job(engine))) for _ in range(2)]
    await until(lambda: line.waiting == 2)
    with pytest.raises(RefusedRequest) as refused:
        await line.run(job(engine))
    assert refused.value.status == 429
    assert int(refused.value.headers["Retry-After"]) >= 1
    opened(engine)
    assert all(await asyncio.gather(*tasks))


@with_line()
async def test_a_job_whose_client_has_gone_is_dropped(engine: KnownEngine, line: Batcher) -> None:
    first = await at_work(engine, line)
    gone, stays = (asyncio.create_task(line.run(job(engine, rows=2))) for _ in range(2))
    await until(lambda: line.waiting == 2)
    gone.cancel()
    await asyncio.sleep(0)
    opened(engine)
    await asyncio.gather(first, stays)
    assert engine.batches == [1, 2]


@with_line()
async def test_a_job_that_fails_does_not_take_others_with_it(
    engine: KnownEngine, line: Batcher
) -> None:
    engine.fails_on = engine.formatter.prompt_tokens("unknown")
    first = await at_work(engine, line)
    bad = asyncio.create_task(line.run(Job([Draw(engine.fails_on, (0,), Sampling())])))
    good = asyncio.create_task(line.run(job(engine, 5)))
    await until(lambda: line.waiting == 2)
    opened(engine)
    assert len(await first) == len(await good) == 1
    with pytest.raises(RuntimeError):
        await bad


@with_line()
async def test_questions_about_meanings_share_a_batch(engine: KnownEngine, line: Batcher) -> None:
    def questions(seed: int, num: int) -> Job:
        prompt = engine.formatter.prompt_tokens("known")
        return Job([Question(prompt, (seed, row), 3, str) for row in range(num)])

    first = await at_work(engine, line)
    small = [asyncio.create_task(line.run(questions(seed, 1))) for seed in (1, 2)]
    large = asyncio.create_task(line.run(questions(3, 5)))
    await until(lambda: line.waiting == 3)
    opened(engine)
    await first
    assert [len(each) for each in await asyncio.gather(*small)] == [1, 1]
    assert len(await large) == 5
    assert engine.batches == [1, 6, 6, 6, 3]  # responses, at most eight in a batch


def test_a_late_answer_is_given_up():
    async def scenario() -> None:
        engine = KnownEngine()
        engine.gate = threading.Event()
        app = create_app(engine, ServerConfig(model_name="pairs", timeout=0.1))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://here") as client,
        ):
            response = await client.post(
                "/v1/completions", json={"model": "pairs", "prompt": "known"}
            )
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "timeout"
            engine.gate.set()

    asyncio.run(scenario())
