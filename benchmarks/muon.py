"""Muon here against `torch.optim.Muon`, and what it learns in the steps of AdamW.

    python benchmarks/muon.py
    python benchmarks/muon.py --train 1200

A step on the matrices of a transformer of 4 blocks, as a ratio to torch's, which rounds to bfloat16
and goes matrix by matrix, and as a ratio to a step of AdamW on the same weights. With --train, the
Frozen Lake network of the preset `quick` is trained for that many steps with each, and compared
with the exact predictor on the same held-out pairs.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from torch import nn

from secondguess.experiments.frozen_lake.run import PRESETS, lake_parts
from secondguess.training.muon import Muon

WIDTHS = (64, 128)
SHOWN = ("hidden_y1", "hidden_y2", "visible_y1", "visible_y2", "log_confidence_std")


def weights(width: int) -> list[nn.Parameter]:
    """The matrices of 4 blocks, with gradients."""
    shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    made = [nn.Parameter(torch.randn(shape)) for _ in range(4) for shape in shapes]
    for weight in made:
        weight.grad = torch.randn_like(weight)
    return made


def seconds(optimizer: torch.optim.Optimizer, num_steps: int = 15) -> float:
    """Median seconds of a step."""
    optimizer.step()
    taken = []
    for _ in range(num_steps):
        start = time.perf_counter()
        optimizer.step()
        taken.append(time.perf_counter() - start)
    return median(taken)


def distance_from_exact(num_steps: int, matrix_learning_rate: float | None) -> dict[str, float]:
    """How far the Frozen Lake network is from the exact predictor after some steps."""
    changes = {"num_steps": num_steps, "matrix_learning_rate": matrix_learning_rate}
    parts = {part.name: part for part in lake_parts(replace(PRESETS["quick"], **changes))}
    with TemporaryDirectory() as directory:
        trained = parts["training"].compute(Path(directory), {})
    return trained.metrics["distance_from_exact"]


def main() -> None:
    """Print the ratios, or what each learned."""
    parser = argparse.ArgumentParser(description="Muon against its peers.")
    parser.add_argument("--train", type=int, metavar="STEPS", help="train a network with each")
    arguments = parser.parse_args()
    if arguments.train:
        print("         " + "".join(f"{name:>20}" for name in SHOWN))
        for name, rate in (("AdamW", None), ("Muon", PRESETS["quick"].matrix_learning_rate)):
            found = distance_from_exact(arguments.train, rate)
            print(f"{name:9}" + "".join(f"{found[key]:20.4f}" for key in SHOWN), flush=True)
        return
    print("width   torch's Muon / ours   ours / AdamW")
    for width in WIDTHS:
        ours = seconds(Muon(weights(width)))
        theirs = seconds(torch.optim.Muon(weights(width)))
        adamw = seconds(torch.optim.AdamW(weights(width), fused=True))
        print(f"{width:5}   {theirs / ours:19.1f}   {ours / adamw:12.1f}")


if __name__ == "__main__":
    main()
