"""How much less noisy the gradients of digits of pi are when draws are spread evenly.

    python benchmarks/even_draws.py
    python benchmarks/even_draws.py --run out/digits-of-pi/cpu/seed-0

The gradient of a window of steps, added up at fixed weights (those of a run, or fresh ones), is
drawn once per seed, with independent and with even draws of the same number of pairs. The noise is
the root of its mean squared distance from the mean over all seeds. The peer is that of independent
draws.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedModel

from secondguess.experiments.digits_of_pi.pairs import PiPairs
from secondguess.experiments.digits_of_pi.run import (
    PRESETS,
    PiConfig,
    fresh_model,
    training_batches,
)
from secondguess.experiments.sequence_models import load_model


def main() -> None:
    """Print one line per window."""
    parser = argparse.ArgumentParser(description="Gradient noise with and without even draws.")
    parser.add_argument("--run", type=Path, help="directory of one seed; default: fresh weights")
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seeds", type=int, default=8)
    arguments = parser.parse_args()
    config = PRESETS["cpu"]
    pairs = PiPairs(config.layout)
    network = (load_model(arguments.run) if arguments.run else fresh_model(config, pairs)).network
    network.eval()
    for window in arguments.windows:
        independent, even = (
            noise(network, pairs, replace(config, even_draws=even_draws), window, arguments.seeds)
            for even_draws in (False, True)
        )
        print(
            f"{window} steps of {config.batch_size} pairs, {arguments.seeds} seeds: noise "
            f"{independent:.4f} with independent draws, {even:.4f} with even ones, "
            f"{independent / even:.1f} times less"
        )


def noise(
    network: PreTrainedModel, pairs: PiPairs, config: PiConfig, window: int, num_seeds: int
) -> float:
    """Root mean squared distance of a window's mean gradient from its mean over seeds."""
    gradients = []
    for seed in range(num_seeds):
        batch_at = training_batches(replace(config, seed=seed), pairs)
        network.zero_grad()
        for step in range(window):
            (pairs.layout.loss(network, batch_at(step)) / window).backward()
        gradients.append(
            torch.cat([each.grad.ravel() for each in network.parameters() if each.grad is not None])
        )
    stacked = torch.stack(gradients)
    squared = (stacked - stacked.mean(dim=0)).square().sum() / (num_seeds - 1)
    return float(squared.sqrt())


if __name__ == "__main__":
    main()
