"""Training of the two sequence models: some real steps, and what all of them would take.

    python benchmarks/sequence_training.py --preset cpu
    python benchmarks/sequence_training.py --preset paper --rows 32 --steps 2

The transformers are built and trained for a few steps, at published size on a part of their batch.
A step is linear in the rows of its batch, so the whole training takes the time per row times all
rows (a little less: the optimiser works once per step, whatever the rows). The peer is a matrix
product of 2048 x 2048, whose speed the training reaches a share of, counted as if every row read
its prompt.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from secondguess.experiments.digits_of_pi import run as pi
from secondguess.experiments.digits_of_pi.pairs import PiPairs
from secondguess.experiments.frozen_lake import run as lake
from secondguess.experiments.frozen_lake.exact import ExactPredictor
from secondguess.experiments.frozen_lake.pairs import LakePairs, WalkSource
from secondguess.training.loop import TrainingConfig, train


def main() -> None:
    """Print one line for each of the two."""
    parser = argparse.ArgumentParser(description="A few training steps of the sequence models.")
    parser.add_argument("--preset", choices=["quick", "cpu", "paper"], default="cpu")
    parser.add_argument("--rows", type=int, help="pairs of a part of a batch; default: all")
    parser.add_argument("--steps", type=int, default=100, help="steps that are timed")
    arguments = parser.parse_args()
    peak = matrix_product_speed()
    print(
        f"matrix product of 2048 x 2048: {peak / 1e9:.0f} GFLOP/s with {torch.get_num_threads()} "
        f"threads"
    )
    for name, prepare in (("digits of pi", digits_of_pi), ("Frozen Lake", frozen_lake)):
        config, network, loss, batch_at = prepare(arguments.preset, arguments.rows)
        rows = arguments.rows or config.batch_size
        training = TrainingConfig(
            num_steps=arguments.steps + 1,
            learning_rate=config.learning_rate,
            matrix_learning_rate=config.matrix_learning_rate,
            clip_norm=config.clip_norm,
            average_decay=config.average_decay,
        )
        seconds, loss_value = time_steps(network, loss, batch_at, training)
        tokens = batch_at(0)["input_ids"].shape[1]
        parameters = network.num_parameters()
        # forward 2, backward 4 operations per parameter and token
        speed = 6 * parameters * tokens * rows / seconds
        minutes = seconds / rows * config.batch_size * config.num_steps / 60
        print(
            f"{name}: {parameters / 1e6:.1f} million parameters, {seconds:.2f} s for a step of "
            f"{rows} pairs of {tokens} tokens (loss {loss_value:.1f}), "
            f"{speed / peak:.0%} of the matrix product; {config.num_steps:,} steps of "
            f"{config.batch_size:,} would take {_duration(minutes)} here"
        )


def digits_of_pi(preset: str, rows: int | None) -> tuple[Any, Any, Callable, Callable]:
    """Configuration, network, loss and data of the digits-of-pi training."""
    config = pi.PRESETS[preset]
    pairs = PiPairs(config.layout)
    source = pi.training_batches(replace(config, batch_size=rows or config.batch_size), pairs)
    return config, pi.fresh_model(config, pairs).network, pairs.layout.loss, source


def frozen_lake(preset: str, rows: int | None) -> tuple[Any, Any, Callable, Callable]:
    """The same of Frozen Lake."""
    config = lake.PRESETS[preset]
    pairs = LakePairs(config.layout)
    walks = WalkSource(
        batch_size=rows or config.batch_size,
        seed=0,
        hidden_share=config.hidden_share,
        soft_targets=config.soft_targets,
        num_buckets=config.num_buckets,
    )
    source = pairs.source(ExactPredictor().policies, walks)
    return config, lake.fresh_model(config, pairs).network, pairs.loss, source


def time_steps(
    network: nn.Module, loss: Callable, batch_at: Callable, config: TrainingConfig
) -> tuple[float, float]:
    """Seconds of a step, the first one left out, and the last loss."""
    start = [0.0]

    def timed_batch(step: int) -> Any:
        if step == 1:
            start[0] = time.perf_counter()
        return batch_at(step)

    history = train(network, loss=loss, batch_at=timed_batch, config=config)
    return (time.perf_counter() - start[0]) / (config.num_steps - 1), float(history.losses[-1])


def _duration(minutes: float) -> str:
    return f"{minutes:.1f} minutes" if minutes < 1440 else f"{minutes / 1440:.0f} days"


def matrix_product_speed() -> float:
    """Floating-point operations per second."""
    matrix = torch.randn(2048, 2048)
    start = time.perf_counter()
    for _ in range(4):
        torch.mm(matrix, matrix)
    return 4 * 2 * 2048**3 / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
