"""Calibration by counts against Algorithm 1 on the same rows, in time and in memory.

Run with `make bench`, or `python benchmarks/counts.py [--rows 1_000_000] [--out FILE]`. Both read
the rows as a stream in chunks of 2**18, one after the other in turn, and answer one query; the best
of some repeats counts. The Beta family reads 30,000 of the rows at most, as `fit_intervals` does.
Memory is the peak of what each allocates beside the chunk.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.theory.calibration.count_stream import CountStream
from secondguess.theory.calibration.fit_intervals import MAX_BETA_ROWS
from secondguess.theory.calibration.inflation import InflationStream
from secondguess.theory.calibration.nested import FamilyKind, NestedFamily

CHUNK = 1 << 18
MIN_VARIANCE = 0.0025


def rows(rng: np.random.Generator, size: int, k: int) -> tuple[np.ndarray, ...]:
    true_probs = rng.beta(0.6, 1.2, size)
    probs = np.clip(true_probs + rng.normal(0, 0.05, size), 0, 1)
    responses = rng.random((size, k)) < true_probs[:, None]
    return probs, np.full(size, 0.0025), responses, np.count_nonzero(responses, axis=1)


def timed(num_rows: int, k: int, kind: FamilyKind | None) -> tuple[float, float]:
    """Seconds and megabytes; Algorithm 1 where there is no family."""
    rng = np.random.default_rng(0)
    stream: Any = (
        InflationStream(min_variance=MIN_VARIANCE, num_responses=k)
        if kind is None
        else CountStream(NestedFamily(kind, MIN_VARIANCE), detection_rate=0.5)
    )
    seconds, peak = 0.0, 0
    tracemalloc.start()
    if kind == "beta":
        num_rows = min(num_rows, MAX_BETA_ROWS)
    for start in range(0, num_rows, CHUNK):
        probs, variance, responses, ones = rows(rng, min(CHUNK, num_rows - start), k)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        tick = time.perf_counter()
        if kind is None:
            stream.update(probs, variance, responses)
        else:
            stream.update(probs, variance, ones, k)
        seconds += time.perf_counter() - tick
        peak = max(peak, tracemalloc.get_traced_memory()[1] - before)
    tick = time.perf_counter()
    if kind is None:
        stream.result(0.05)
    else:
        stream.result(miss_rate=0.1, failure_rate=0.05)
    seconds += time.perf_counter() - tick
    tracemalloc.stop()
    return seconds, peak / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    kinds: tuple[FamilyKind | None, ...] = (None, "symmetric", "beta")
    lines = []
    for k in (2, 5, 50):
        best = dict.fromkeys(kinds, (np.inf, 0.0))
        for _ in range(arguments.repeats):
            for kind in kinds:
                best[kind] = min(best[kind], timed(arguments.rows, k, kind))
        for kind in kinds:
            seconds, megabytes = best[kind]
            line = {
                "rows": arguments.rows,
                "num_responses": k,
                "method": kind or "pairs",
                "seconds": seconds,
                "ratio": seconds / best[None][0],
                "megabytes": megabytes,
            }
            lines.append(line)
            print(line, flush=True)
    if arguments.out:
        record = {
            "command": "python benchmarks/counts.py --out docs/results/counts-cost.json",
            "rows": lines,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
