"""Muon here against `torch.optim.Muon`: `python benchmarks/muon.py`.

A step on the matrices of a transformer of 4 blocks, as a ratio to torch's, which rounds to bfloat16
and goes matrix by matrix, and as a ratio to a step of AdamW on the same weights.
"""

from __future__ import annotations

import time
from statistics import median

import torch
from torch import nn

from secondguess.learning.muon import Muon

WIDTHS = (64, 128, 512)


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


def main() -> None:
    """Print the ratios."""
    print("width   torch's Muon / ours   ours / AdamW")
    for width in WIDTHS:
        ours = seconds(Muon(weights(width)))
        theirs = seconds(torch.optim.Muon(weights(width)))
        adamw = seconds(torch.optim.AdamW(weights(width), fused=True))
        print(f"{width:5}   {theirs / ours:19.1f}   {ours / adamw:12.1f}")


if __name__ == "__main__":
    main()
