"""Requests that arrive together are computed together; the line has an end; nobody is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import httpx
import pytest
from serving.stand_in import KnownEngine

from secondguess.language.engines import Draw
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
    return Job(draws=[Draw(prompt, (seed, row), Sampling()) for row in range(rows)])


def test_waiting_jobs_share_a_batch():
    async def scenario() -> None:
        engine = KnownEngine()
        engine.gate = threading.Event()
        line = batcher(engine)
        line.start()
        first = asyncio.create_task(line.run(job(engine)))
        await until(lambda: engine.begun == 1)  # it is at work, and waits for the gate
        others = [asyncio.create_task(line.run(job(engine, seed, rows=3))) for seed in (1, 2, 3)]
        await until(lambda: line.waiting == 3)
        engine.gate.set()
        results = await asyncio.gather(first, *others)
        assert [len(each) for each in results] == [1, 3, 3, 3]
        assert engine.batches == [1, 6, 3]  # at most eight rows
        await line.stop()

    asyncio.run(scenario())


def test_a_large_job_is_computed_in_parts_and_lets_others_through():
    async def scenario() -> None:
        engine = KnownEngine()
        engine.gate = threading.Event()
        line = batcher(engine)
        line.start()
        large = asyncio.create_task(line.run(job(engine, rows=20)))
        await until(lambda: engine.begun == 1)
        small = asyncio.create_task(line.run(job(engine, seed=1, rows=2)))
        await until(lambda: line.waiting == 1)
        engine.gate.set()
        await small
        assert not large.done()
        drawn = await large
        assert engine.batches == [8, 2, 8, 4]
        [alone] = await line.run(Job(draws=[job(engine, rows=20).draws[13]]))
        assert drawn[13].text == alone.text  # each in its place
        await line.stop()

    asyncio.run(scenario())


def test_a_request_that_was_taken_is_not_refused_halfway():
    async def scenario() -> None:
        engine = KnownEngine()
        engine.gate = threading.Event()
        line = batcher(engine, max_waiting=1)
        line.start()
        tasks = [asyncio.create_task(line.run(job(engine)))]
        await until(lambda: engine.begun == 1)
        tasks.append(asyncio.create_task(line.run(job(engine))))
        await until(lambda: line.waiting == 1)
        again = job(engine)
        again.admitted = True
        tasks.append(asyncio.create_task(line.run(again)))
        await until(lambda: line.waiting == 2)
        engine.gate.set()
        assert all(await asyncio.gather(*tasks))
        await line.stop()

    asyncio.run(scenario())


def test_a_full_line_refuses_and_says_when_to_come_back():
    async def scenario() -> None:
        engine = KnownEngine()
        engine.gate = threading.Event()
        line = batcher(engine, max_waiting=2)
        line.start()
        tasks = [asyncio.create_task(line.run(job(engine)))]
        await until(lambda: engine.begun == 1)
        tasks += [asyncio.create_task(line.run(job(engine))) for _ in range(2)]
        await until(lambda: line.waiting == 2)
        with pytest.raises(RefusedRequest) as refused:
            await line.run(job(engine))
        assert refused.value.status == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        engine.gate.set()
        assert all(await asyncio.gather(*tasks))
        await line.stop()

    asyncio.run(scenario())


def test_a_job_whose_client_has_gone_is_dropped():
    async def scenario() -> None:
        engine = KnownEngine()
        engine.gate = threading.Event()
        line = batcher(engine)
        line.start()
        first = asyncio.create_task(line.run(job(engine)))
        await until(lambda: engine.begun == 1)
        gone, stays = (asyncio.create_task(line.run(job(engine, rows=2))) for _ in range(2))
        await until(lambda: line.waiting == 2)
        gone.cancel()
        await asyncio.sleep(0)
        engine.gate.set()
        await asyncio.gather(first, stays)
        assert engine.batches == [1, 2]
        await line.stop()

    asyncio.run(scenario())


def test_a_job_that_fails_does_not_take_others_with_it():
    async def scenario() -> None:
        engine = KnownEngine()
        engine.fails_on = engine.formatter.prompt_tokens("unknown")
        engine.gate = threading.Event()
        line = batcher(engine)
        line.start()
        first = asyncio.create_task(line.run(job(engine)))
        await until(lambda: engine.begun == 1)
        bad = asyncio.create_task(line.run(Job(draws=[Draw(engine.fails_on, (0,), Sampling())])))
        good = asyncio.create_task(line.run(job(engine, 5)))
        await until(lambda: line.waiting == 2)
        engine.gate.set()
        assert len(await first) == len(await good) == 1
        with pytest.raises(RuntimeError):
            await bad
        await line.stop()

    asyncio.run(scenario())


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
