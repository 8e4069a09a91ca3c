"""Many clients at once against `secondguess serve`, one at a time, and against plain `generate`.

    python benchmarks/serving.py --out docs/results/serving.json

The server is a process of its own; clients are tasks of this one, each with a connection that it
keeps. The model is a small GPT-2 with random weights, so that every response has its full length.
The peer is the same server around an engine that calls `generate` of `transformers` and scores
nothing. At the end SIGTERM is sent to a server under load: every request that it took must be
answered, by its own count and by ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

COMMAND = "python benchmarks/serving.py --out docs/results/serving.json"
WORDS = ("river", "stone", "maple", "signal", "garden", "winter", "copper", "harbour")
RESPONSE_LENGTH = 12


def save_model(folder: Path) -> None:
    """A GPT-2 of two layers that reads bytes, with random weights."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    from secondguess.language.formatting import PairFormat, PairFormatter
    from secondguess.language.model import PairLanguageModel

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0, **{letter: 1 + place for place, letter in enumerate(letters)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=257, n_positions=256, n_embd=128, n_layer=2, n_head=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    formatter = PairFormatter(
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>"),
        PairFormat(response_length=RESPONSE_LENGTH),
        context_length=256,
    )
    PairLanguageModel(GPT2LMHeadModel(config).eval(), formatter).save(folder)


def serve_plain(folder: Path) -> None:
    """The same server around `generate` of `transformers`, without scores."""
    import torch
    import uvicorn

    from secondguess.language.collating import pad
    from secondguess.language.engines import Draw, LocalEngine
    from secondguess.language.model import PairLanguageModel
    from secondguess.language.scoring import ScoredResponse
    from secondguess.serving.app import create_app
    from secondguess.serving.config import Defaults, ServerConfig

    class PlainEngine(LocalEngine):
        def sample(self, draws: Sequence[Draw]) -> list[ScoredResponse]:
            if not draws:
                return []
            end = self.formatter.end
            generated: Any = self.model.network.generate(  # pyright: ignore[reportCallIssue]
                pad([draw.prompt for draw in draws], end, "left"),
                attention_mask=pad([[1] * len(draw.prompt) for draw in draws], 0, "left"),
                do_sample=True,
                min_new_tokens=1,
                max_new_tokens=RESPONSE_LENGTH - 1,
                pad_token_id=end,
            )
            width = max(len(draw.prompt) for draw in draws)
            results = []
            for row in generated[:, width:].tolist():
                tokens = (*row[: row.index(end) if end in row else None], end)
                zeros = np.zeros(len(tokens))
                results.append(ScoredResponse(tokens, self.formatter.text(tokens), zeros, zeros))
            return results

    torch.set_grad_enabled(False)
    config = ServerConfig(model_name="pairs", defaults=Defaults(strategy="selective"))
    app = create_app(PlainEngine(PairLanguageModel.load(folder)), config)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, access_log=False, log_level="warning", timeout_keep_alive=75)
    )

    async def run() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(f"serving plain on http://127.0.0.1:{port}", flush=True)
        await serving

    asyncio.run(run())


@contextmanager
def server(folder: Path, *, plain: bool = False) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server in a process of its own, and the process."""
    ours = [
        *("-m", "secondguess.cli", "serve", str(folder), "--port", "0", "--name", "pairs"),
        *("--strategy", "selective", "--max-hallucination-rate", "0.5"),
    ]
    command = [__file__, "--serve-plain", str(folder)] if plain else ours
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address, "the server did not start"
        try:
            yield address[0], process
        finally:
            process.terminate()
            process.wait(60)


def resident_megabytes(process: subprocess.Popen[str]) -> float:
    """Memory of a process as Linux counts it."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


class Load:
    """What clients did and got: statuses, seconds of each answer."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.stopping = False

    async def client(self, address: str, numbers: Iterator[int]) -> None:
        """Ask one question after another, on one connection, until there are no more numbers."""
        async with httpx.AsyncClient(base_url=address, timeout=120, verify=False) as client:
            await self._ask(client, numbers)

    async def _ask(self, client: httpx.AsyncClient, numbers: Iterator[int]) -> None:
        for number in numbers:
            words = f"{WORDS[number % 8]} {WORDS[number // 8 % 8]}"
            body = {"model": "pairs", "messages": [{"role": "user", "content": words}]}
            start = time.perf_counter()
            try:
                response = await client.post("/v1/chat/completions", json=body | {"seed": number})
            except httpx.TransportError:
                if not self.stopping:
                    raise
                self.statuses["not taken"] += 1
                return
            self.seconds.append(time.perf_counter() - start)
            self.statuses[str(response.status_code)] += 1

    async def run(self, address: str, num_clients: int, numbers: Iterator[int]) -> float:
        """Seconds that the clients took together."""
        start = time.perf_counter()
        await asyncio.gather(*(self.client(address, numbers) for _ in range(num_clients)))
        return time.perf_counter() - start


def measured(address: str, num_clients: int, num_requests: int) -> dict[str, Any]:
    """Throughput and percentiles of the latency."""
    load = Load()
    seconds = asyncio.run(load.run(address, num_clients, iter(range(num_requests))))
    percentiles = np.percentile(load.seconds, [50, 90, 99, 100])
    return {
        "clients": num_clients,
        "requests": num_requests,
        "statuses": dict(load.statuses),
        "per_second": num_requests / seconds,
        "milliseconds": dict(
            zip(("p50", "p90", "p99", "max"), (1000 * percentiles).tolist(), strict=True)
        ),
    }


def stopped_under_load(
    address: str, process: subprocess.Popen[str], num_clients: int, after: float
) -> dict[str, Any]:
    """What becomes of requests when a server under load is told to stop."""
    load = Load()

    async def scenario() -> None:
        running = asyncio.create_task(load.run(address, num_clients, iter(range(10**9))))
        await asyncio.sleep(after)
        load.stopping = True
        process.send_signal(signal.SIGTERM)
        await running

    asyncio.run(scenario())
    assert process.stdout is not None
    said = process.stdout.read()
    counted = re.search(r"answered ([\d,]+) of ([\d,]+) requests", said)
    assert counted, said
    answered, taken = (int(each.replace(",", "")) for each in counted.groups())
    return {
        "statuses": dict(load.statuses),
        "taken": taken,
        "answered": answered,
        "answers_received": len(load.seconds),
        "exit_code": process.wait(60),
    }


def measure(num_clients: int, num_requests: int) -> dict[str, Any]:
    """All of it, on a model in a folder of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        save_model(folder)
        with server(folder) as (address, process):
            measured(address, num_clients, num_requests // 10)  # warm
            alone = measured(address, 1, num_requests // 10)
            before = resident_megabytes(process)
            together = measured(address, num_clients, num_requests)
            after = resident_megabytes(process)
        with server(folder, plain=True) as (address, _):
            measured(address, num_clients, num_requests // 10)
            plain = measured(address, num_clients, num_requests)
        with server(folder) as (address, process):
            stopped = stopped_under_load(address, process, num_clients, after=3.0)
        return {
            "alone": alone,
            "together": together,
            "plain": plain,
            "megabytes": {"before": before, "after": after},
            "stopped": stopped,
        }


def main() -> None:
    """Measure, print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--out", type=Path, help="where to write the measurements as JSON")
    parser.add_argument("--serve-plain", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_plain:
        serve_plain(options.serve_plain)
        return
    record = {"command": COMMAND, **measure(options.clients, options.requests)}
    print(json.dumps(record, indent=1))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
