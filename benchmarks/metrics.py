"""Second-order ECE against one `np.argsort` of the same rows, in time and in memory.

Run with `make bench`, or `python benchmarks/metrics.py [--max-rows 10_000_000]`. Both sides work on
the same random variances; each time is the best of three, the two sides in turn. Memory is the peak
above the inputs, in arrays of float64 with one entry per row.
"""

from __future__ import annotations

import argparse
import tracemalloc
from collections.abc import Callable

import numpy as np
from timing import best_seconds

import secondguess as sg

NUM_CLASSES = 10


def peak_bytes(call: Callable[[], object]) -> int:
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-rows", type=int, default=10_000_000)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"{'rows':>12} {'argsort s':>10} {'ECE-2 s':>10} {'ratio':>6} {'memory, arrays':>15}")
    for num_rows in (10**5, 10**6, 10**7):
        if num_rows > arguments.max_rows:
            break
        num_examples = num_rows // NUM_CLASSES
        probs = rng.dirichlet(np.ones(NUM_CLASSES), size=num_examples)
        variance = rng.random(probs.shape) * 0.1
        counts = rng.multinomial(50, probs)
        rows = variance.reshape(-1)

        def measure(probs=probs, variance=variance, counts=counts) -> float:
            return sg.second_order_ece(sg.Prediction(probs, variance), counts)

        sort, ece = best_seconds(lambda rows=rows: np.argsort(rows), measure)
        arrays = peak_bytes(measure) / rows.nbytes
        print(f"{num_rows:>12,} {sort:>10.4f} {ece:>10.4f} {ece / sort:>6.2f} {arrays:>15.2f}")


if __name__ == "__main__":
    main()
