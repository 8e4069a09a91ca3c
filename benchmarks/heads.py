"""Cost of the heads against the number of classes: `python benchmarks/heads.py [--plot PATH]`.

A training step (forward, loss, backward, no optimizer) of one head on 128 features with a batch of
64, as a ratio to a plain softmax head of the same number of classes in the same run; and the peak
memory of a step above the head's own weights, each in a process of its own. With --plot, a picture.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from secondguess.classification.heads import ClasswisePairHead, MixturePairHead, SymmetricPairHead
from secondguess.classification.losses import (
    EIGENVALUE_WEIGHT,
    negative_eigenvalue_penalty,
    pair_loss,
)
from secondguess.classification.table_joint import TableJoint

NUM_FEATURES, BATCH_SIZE = 128, 64
CLASSES = {
    "plain": (10, 30, 100, 300, 1000, 3000, 10_000),
    "mixture": (10, 30, 100, 300, 1000, 3000, 10_000),
    "classwise": (10, 30, 100, 300, 1000, 3000, 10_000),
    "symmetric": (10, 30, 100, 300),
    "symmetric + penalty": (10, 30, 100, 300),
}


def make_step(name: str, num_classes: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """A head and a function that gives the loss of a batch."""
    features = torch.randn(BATCH_SIZE, NUM_FEATURES)
    y1, y2 = torch.randint(num_classes, (2, BATCH_SIZE))
    if name == "plain":
        plain = nn.Linear(NUM_FEATURES, num_classes)
        return plain, lambda: nn.functional.cross_entropy(plain(features), y1)
    kinds = {"mixture": MixturePairHead, "classwise": ClasswisePairHead}
    head = kinds.get(name, SymmetricPairHead)(NUM_FEATURES, num_classes)

    def loss() -> Tensor:
        joint = head(features)
        value = pair_loss(joint, y1, y2)
        if name == "symmetric + penalty":
            assert isinstance(joint, TableJoint)
            value = value + EIGENVALUE_WEIGHT * negative_eigenvalue_penalty(joint)
        return value

    return head, loss


def measure(name: str, num_classes: int) -> dict[str, float]:
    """Median seconds of a step, and peak memory above the weights in MB (this process only)."""
    import resource

    torch.manual_seed(0)
    head, loss = make_step(name, num_classes)
    weights = sum(parameter.numel() for parameter in head.parameters()) * 4 / 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loss().backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    seconds = []
    while len(seconds) < 5 or (sum(seconds) < 0.5 and len(seconds) < 200):
        head.zero_grad()
        start = time.perf_counter()
        loss().backward()
        seconds.append(time.perf_counter() - start)
    return {"milliseconds": 1e3 * float(np.median(seconds)), "weights": weights, "memory": peak}


def main() -> None:
    """Measure each point in a process of its own and print ratios to the plain head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--point", nargs=2, metavar=("HEAD", "CLASSES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        torch.set_num_threads(1)
        print(json.dumps(measure(arguments.point[0], int(arguments.point[1]))))
        return
    points: dict[str, dict[int, dict[str, float]]] = {}
    print(f"{'head':20} {'K':>6} {'ms/step':>8} {'x plain':>8} {'weights MB':>11} {'step MB':>8}")
    for name, classes in CLASSES.items():
        points[name] = {}
        for num_classes in classes:
            command = [sys.executable, __file__, "--point", name, str(num_classes)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            point = points[name][num_classes] = json.loads(output)
            ratio = point["milliseconds"] / points["plain"][num_classes]["milliseconds"]
            print(
                f"{name:20} {num_classes:>6} {point['milliseconds']:>8.2f} {ratio:>8.1f} "
                f"{point['weights']:>11.1f} {point['memory']:>8.0f}",
                flush=True,
            )
    if arguments.plot:
        draw(points, arguments.plot)


def draw(points: dict[str, dict[int, dict[str, float]]], path: Path) -> None:
    """Time and memory of a step against the number of classes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    for axes, key, label in zip(
        figure.subplots(1, 2),
        ("milliseconds", "memory"),
        ("milliseconds per step", "peak MB of a step above the weights"),
        strict=True,
    ):
        for name, row in points.items():
            axes.loglog(list(row), [max(p[key], 0.1) for p in row.values()], "o-", ms=3, label=name)
        axes.set_xlabel("number of classes K")
        axes.set_ylabel(label)
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    main()
