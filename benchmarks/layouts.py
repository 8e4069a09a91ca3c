"""How much a constant start of the second response helps, and which layout to use.

Run with `python benchmarks/layouts.py`. One small transformer learns the digits-of-pi task of
appendix F.3 from the same pairs in the same order, in three formats: `positions` (no padding,
position_ids jump), `padded` (as in the paper) and, for comparison, `shifted`: no padding and
positions that run on, so that the start of y2 depends on the length of y1. Held-out losses are in
nats per pair; what no model can beat on digits it cannot know is 9.891.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Literal

import numpy as np
import torch

from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.pairs import SEPARATOR, vocabulary
from secondguess.experiments.digits_of_pi.questions import digits_at, question, sample_offsets
from secondguess.language.collating import Batch, collate_pairs
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.shared_prompts import pair_loss
from secondguess.language.tokenizer import word_tokenizer
from secondguess.models.transformer import (
    SinusoidalTransformerConfig,
    SinusoidalTransformerForCausalLM,
)
from secondguess.training.loop import TrainingConfig, train

Arm = Literal["positions", "padded", "shifted"]
BATCH_SIZE = 128


def batch_of(formatter: PairFormatter, arm: Arm, rng: np.random.Generator, size: int) -> Batch:
    offsets = sample_offsets(rng.random(size))
    columns = grammar().sample(np.repeat(digits_at(offsets), 2), rng.random(2 * size))
    responses = [formatter.response_tokens(grammar().sentences[column]) for column in columns]
    pairs = [
        formatter.lay_out(formatter.prompt_tokens(question(int(offset))), first, second)
        for offset, first, second in zip(offsets, responses[::2], responses[1::2], strict=True)
    ]
    batch = collate_pairs(pairs, end=formatter.end)
    if arm == "shifted":
        batch["position_ids"] = torch.arange(batch["input_ids"].shape[1]).expand_as(
            batch["input_ids"]
        )
    return batch


def run_arm(arm: Arm, num_steps: int, seed: int) -> tuple[float, float, float]:
    """Held-out nats per pair, seconds of training, and tokens per pair."""
    tokenizer = word_tokenizer(vocabulary())
    config = SinusoidalTransformerConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=64,
        initializer_range=0.1,
    )
    layout = "padded" if arm == "padded" else "positions"
    formatter = PairFormatter(
        tokenizer, PairFormat(response_length=10, layout=layout, separator=SEPARATOR)
    )
    torch.manual_seed(seed)
    network: Any = SinusoidalTransformerForCausalLM(config)
    num_tokens = 0

    def batch_at(step: int) -> Batch:
        nonlocal num_tokens
        batch = batch_of(formatter, arm, np.random.default_rng([seed, step]), BATCH_SIZE)
        num_tokens += int(batch["attention_mask"].sum())
        return batch

    start = time.perf_counter()
    train(
        network,
        loss=pair_loss,
        batch_at=batch_at,
        config=TrainingConfig(num_steps=num_steps, learning_rate=3e-3, warmup_steps=50),
    )
    seconds = time.perf_counter() - start
    with torch.no_grad():
        held_out = batch_of(formatter, arm, np.random.default_rng([seed, 10**9]), 4096)
        loss = float(pair_loss(network, held_out))
    return loss, seconds, num_tokens / (num_steps * BATCH_SIZE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arms: tuple[Arm, ...] = ("positions", "padded", "shifted")
    results = {arm: [] for arm in arms}
    for seed in range(arguments.seeds):
        for arm in arms:
            results[arm].append(run_arm(arm, arguments.steps, seed))
    print(f"{arguments.steps} steps of {BATCH_SIZE} pairs, {arguments.seeds} seed(s), one thread")
    print(f"{'layout':>10} {'tokens per pair':>15} {'seconds':>8}  held-out nats per pair, by seed")
    for arm, rows in results.items():
        losses, seconds, tokens = zip(*rows, strict=True)
        shown = "  ".join(f"{loss:.3f}" for loss in losses)
        print(f"{arm:>10} {np.mean(tokens):>15.1f} {np.mean(seconds):>8.1f}  {shown}")


if __name__ == "__main__":
    main()
