"""A training step of an adapter against one of all weights: time, and peak memory.

Run with `python benchmarks/adapters.py`. The model has the shapes of SmolLM2-135M and random
weights; a step is one of `fit`'s, forwards, backwards and AdamW, on pairs of responses to prompts
of their own. Each side runs in a process of its own, so that its peak is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from secondguess.language.adapters import Adapter
from secondguess.language.collating import Batch
from secondguess.language.shared_prompts import pair_loss

SIDES = {
    "all weights": (0, None),
    "adapter of rank 16": (16, None),
    "adapter of rank 16, upper half of the layers": (16, 15),
}
"""Rank, and number of layers."""
NUM_TOKENS = 32


def new_network() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=49_152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
        )
    )


def new_batch(num_pairs: int) -> Batch:
    """Prompts of half the tokens, and two responses in the other half."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, 49_152, (num_pairs, NUM_TOKENS), generator=generator)
    labels = tokens.clone()
    labels[:, : NUM_TOKENS // 2] = -100
    return {
        "input_ids": tokens,
        "position_ids": torch.arange(NUM_TOKENS).expand(num_pairs, -1),
        "attention_mask": torch.ones_like(tokens),
        "labels": labels,
    }


def measure(side: str, num_pairs: int, repeats: int) -> dict[str, float]:
    """Seconds of processor time of a step, the least of some, and what the process needs."""
    rank, num_layers = SIDES[side]
    network = new_network()
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trained: torch.nn.Module = network
    if rank:
        trained = Adapter(network, rank, base="random", seed=0, num_layers=num_layers)
    parameters = [each for each in trained.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    batch, seconds = new_batch(num_pairs), []
    for _ in range(repeats + 1):
        start = time.process_time()
        pair_loss(network, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": min(seconds[1:]),
        "peak_megabytes": peak / 1024,
        "loaded_megabytes": loaded / 1024,
        "trained_parameters": float(sum(each.numel() for each in parameters)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=8, help="per step")
    parser.add_argument("--side", choices=SIDES, help="measure this side only, and print JSON")
    parser.add_argument("--out", type=Path, help="where to write the result")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.side is not None:
        print(json.dumps(measure(arguments.side, arguments.pairs, arguments.repeats)))
        return
    rows = []
    for side in SIDES:
        sizes = ["--pairs", str(arguments.pairs), "--repeats", str(arguments.repeats)]
        command = [sys.executable, __file__, "--side", side, *sizes]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows.append({"side": side, **json.loads(told)})
        print(
            f"{side:<46} {rows[-1]['trained_parameters']:>12,.0f} weights, step "
            f"{rows[-1]['seconds']:.2f} s ({rows[-1]['seconds'] / rows[0]['seconds']:.2f}), peak "
            f"{rows[-1]['peak_megabytes']:,.0f} MB",
            flush=True,
        )
    if arguments.out:
        command = f"python benchmarks/adapters.py --out {arguments.out}"
        record = {"command": command, "pairs": arguments.pairs, "rows": rows}
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
