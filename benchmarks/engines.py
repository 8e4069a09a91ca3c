"""Sampling and scoring by vLLM against the same model in this process, in one run.

    SECONDGUESS_VLLM_PYTHON=PYTHON python benchmarks/engines.py --out docs/results/engines.json

PYTHON is the interpreter of an environment with vLLM. The model is a small Llama with random
weights in the padded layout; both sides have one thread and the same candidates. They take turns,
and the fastest turn of each counts, so that other work on the machine touches both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from timing import best_seconds

from secondguess.language.engines import Draw, LocalEngine
from secondguess.language.engines_vllm import VllmEngine
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.generation import Sampling
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import totals
from secondguess.theory.decoding import decode_selective

COMMAND = "python benchmarks/engines.py --out docs/results/engines.json"
CONTEXT = 512
NUM_RESPONSES = 32
REPEATS = 7


def padded_model(response_length: int = 6) -> PairLanguageModel:
    """A Llama of two layers that reads bytes, with random weights."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0, **{letter: 1 + place for place, letter in enumerate(letters)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # vLLM wants heads of 32, 64, ...
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = LlamaForCausalLM(config).eval()
        for parameter in network.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.15)
    formatter = PairFormatter(
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>"),
        PairFormat(response_length=response_length, layout="padded"),
        context_length=CONTEXT,
    )
    return PairLanguageModel(network, formatter)


@contextmanager
def vllm_server(python: str, folder: Path) -> Iterator[str]:
    """The address of a vLLM server for the model in a folder; it ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    # `vllm serve` wants a distribution of that name, which the package for CPUs does not have.
    command = [
        *(python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)),
        *("--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(CONTEXT)),
        *("--dtype", "float32", "--enforce-eager", "--block-size", "32"),
        *("--distributed-executor-backend", "uni", "--generation-config", "vllm"),
        # On CPUs, a prompt with a seed that is read in two parts ends the server.
        "--no-enable-chunked-prefill",
    ]
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment = {
        **inherited,
        "OMP_NUM_THREADS": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    address = f"http://127.0.0.1:{port}"
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            while not _healthy(address):
                if process.poll() is not None:
                    log.seek(0)
                    raise RuntimeError(log.read()[-3000:].decode(errors="replace"))
                time.sleep(1)
            yield address
        finally:
            process.terminate()
            process.wait(60)


def _healthy(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health").status_code == 200
    except httpx.HTTPError:
        return False


def measure(local: LocalEngine, remote: VllmEngine) -> dict[str, Any]:
    """Costs for prompts of two lengths, and whether both engines say the same."""
    rows, largest, equal, decided = [], 0.0, 0, 0
    for length in (40, 200):
        prompts = [
            local.formatter.prompt_tokens((f"{number:03}" * length)[:length])
            for number in range(NUM_RESPONSES)
        ]
        draws = [Draw(prompt, (place,), Sampling()) for place, prompt in enumerate(prompts)]
        theirs = remote.sample(draws)
        items = [(prompt, each.tokens) for prompt, each in zip(prompts, theirs, strict=True)]
        ours = local.score(items)
        for one, other in zip(ours, theirs, strict=True):
            pairs = (
                (one.log_marginal, other.log_marginal),
                (one.log_self_conditional, other.log_self_conditional),
            )
            largest = max(largest, *(float(np.abs(a - b).max()) for a, b in pairs))
        for rate in (0.05, 0.1, 0.2, 0.5, 0.9):
            one, other = (
                decode_selective(each, totals(each), max_hallucination_rate=rate)
                for each in (ours, theirs)
            )
            decided += len(one)
            equal += sum(a.abstained == b.abstained for a, b in zip(one, other, strict=True))
        seconds = best_seconds(
            *(partial(engine.sample, draws) for engine in (local, remote)),
            *(partial(engine.score, items) for engine in (local, remote)),
            repeats=REPEATS,
            warm_up=True,
        )
        costs = [1000 * each / NUM_RESPONSES for each in seconds]
        rows.append(
            {
                "prompt_tokens": length,
                "local": {"sample": costs[0], "score": costs[2]},
                "vllm": {"sample": costs[1], "score": costs[3]},
            }
        )
    return {
        "responses": NUM_RESPONSES,
        "turns": REPEATS,
        "rows": rows,
        "largest_difference": largest,
        "decisions": decided,
        "equal_decisions": equal,
    }


def main() -> None:
    """Measure, print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to write the measurements as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        model = padded_model()
        model.save(folder)
        with vllm_server(os.environ["SECONDGUESS_VLLM_PYTHON"], folder) as address:
            remote = VllmEngine.connect(address, folder)
            found = measure(LocalEngine(model), remote)
    record = {"command": COMMAND, **found}
    print(json.dumps(record, indent=1))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
