"""Time of `PairClassifier.fit` beside scikit-learn's `MLPClassifier` on the same rows.

    python benchmarks/classifier_fit.py [--rows 1000 50000] [--out docs/results/classifier-fit.json]

Both with their defaults, in seconds of the processor, one after the other in one process. The
world has 32 features, 5 classes, log-odds that are in part products of features, and three labels
per item; the MLP learns the most frequent label of each item.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neural_network import MLPClassifier

from secondguess import PairClassifier

COMMAND = "python benchmarks/classifier_fit.py --out docs/results/classifier-fit.json"


def world(num_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features `(n, 32)` and counts `(n, 5)`."""
    features = rng.normal(size=(num_rows, 32))
    weights, curved = rng.normal(size=(2, 32, 5)) / np.sqrt(32)
    logits = 2 * features @ weights + 2 * (features * np.roll(features, 1, axis=1)) @ curved
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    return features, rng.multinomial(3, probs / probs.sum(axis=1, keepdims=True))


def seconds(fit: Any) -> float:
    """Of the processor."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an MLP that has not converged says so
        fit()
    return time.process_time() - start


def measure(num_rows: int) -> dict[str, Any]:
    """Both fits on one world."""
    features, counts = world(num_rows, np.random.default_rng(0))
    labels = counts.argmax(axis=1)
    pair = seconds(lambda: PairClassifier("counts").fit(features, counts))
    plain = seconds(lambda: MLPClassifier(random_state=0).fit(features, labels))
    return {
        "rows": num_rows,
        "pair_classifier": round(pair, 2),
        "mlp_classifier": round(plain, 2),
        "ratio": round(pair / plain, 2),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 1000, 5000, 50_000])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    seconds(lambda: PairClassifier("counts").fit(*world(500, np.random.default_rng(1))))  # warm up
    rows = []
    for num_rows in arguments.rows:
        rows.append(measure(num_rows))
        print(json.dumps(rows[-1]), flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"command": COMMAND, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
