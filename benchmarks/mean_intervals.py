"""Bounds for a bounded mean against one `np.histogram` of the same values, in time and in memory.

Run with `make bench`, or `python benchmarks/mean_intervals.py [--max-rows 1_000_000_000] [--out
FILE]`. The values are drawn with replacement from a million values of S (Algorithm 1 on the
one-dimensional task, min_variance 0.02²), so their mean is known exactly, and streamed in chunks of
2**20. Every row of the table is a process of its own. Seconds are those of the bound alone, reading
the stream and the final query, without making the values; the peer, for betting, is the sum of the
times of `np.histogram` with 8,192 cells over the same chunks, in turn with them. Memory is the peak
of what the bound allocates beside the chunk.

A second table compares both on arrays in memory, as a caller of either function has them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any, get_args

import numpy as np
from timing import best_seconds

import secondguess as sg
from secondguess.experiments.regression.data import sample_pairs
from secondguess.experiments.regression.half_blind import half_blind_predictor
from secondguess.theory.calibration.means import MeanMethod
from secondguess.theory.calibration.products import scaled_products

CUTOFF = 0.02**2
LOW, HIGH = -0.25 / CUTOFF, 1 / CUTOFF
CHUNK = 1 << 20
CELLS = 8192
FAILURE_RATE = 0.05


def pool() -> np.ndarray:
    inputs, responses = sample_pairs(1 << 20, np.random.default_rng(0))
    prediction = half_blind_predictor(inputs)
    return scaled_products(prediction.probs, prediction.variance, responses, CUTOFF)


def stream(num_rows: int, method: MeanMethod) -> dict[str, Any]:
    """One row of the table, measured in this process."""
    values = pool()
    rng = np.random.default_rng(num_rows)
    chunk = values[:0]
    bound_seconds = histogram_seconds = 0.0
    peak = 0
    tracemalloc.start()
    mean = sg.BoundedMean(LOW, HIGH, method)
    for start in range(0, num_rows, CHUNK):
        size = min(CHUNK, num_rows - start)
        chunk = values[rng.integers(0, len(values), size, dtype=np.int32)]
        tracemalloc.reset_peak()
        tick = time.perf_counter()
        mean.update(chunk)
        tock = time.perf_counter()
        peak = max(peak, tracemalloc.get_traced_memory()[1] - chunk.nbytes)
        bound_seconds += tock - tick
        if method == "betting":
            np.histogram(chunk, CELLS, (LOW, HIGH))
            histogram_seconds += time.perf_counter() - tock
    del chunk
    tracemalloc.reset_peak()
    tick = time.perf_counter()
    bound = mean.upper(FAILURE_RATE)
    query_seconds = time.perf_counter() - tick
    return {
        "rows": num_rows,
        "method": method,
        "mean": float(values.mean()),
        "bound": bound,
        "seconds": bound_seconds + query_seconds,
        "query_seconds": query_seconds,
        "histogram_seconds": histogram_seconds or None,
        "megabytes": max(peak, tracemalloc.get_traced_memory()[1]) / 1e6,
    }


def in_memory(num_rows: int, repeats: int = 5) -> dict[str, Any]:
    """One array, both functions, best of some repeats in turn."""
    values = np.resize(pool(), num_rows)
    ours, histogram = best_seconds(
        lambda: sg.mean_upper_bound(values, low=LOW, high=HIGH, failure_rate=FAILURE_RATE),
        lambda: np.histogram(values, CELLS, (LOW, HIGH)),
        repeats=repeats,
    )
    return {"rows": num_rows, "seconds": ours, "histogram_seconds": histogram}


def in_own_process(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-rows", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, help="keep the results there; go on from what is done")
    parser.add_argument("--one", nargs=2, metavar=("ROWS", "METHOD"), help=argparse.SUPPRESS)
    parser.add_argument("--array", type=int, metavar="ROWS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(stream(int(arguments.one[0]), arguments.one[1])))
        return
    if arguments.array:
        print(json.dumps(in_memory(arguments.array)))
        return
    record: dict[str, Any] = {"rows": [], "array": None}
    if arguments.out and arguments.out.exists():
        record = json.loads(arguments.out.read_text())
    record["command"] = (
        "python benchmarks/mean_intervals.py --max-rows 1_000_000_000 "
        "--out docs/results/mean-intervals-speed.json"
    )
    done = {(row["rows"], row["method"]) for row in record["rows"]}

    def save() -> None:
        if arguments.out:
            arguments.out.write_text(json.dumps(record, indent=1) + "\n")

    print(f"{'rows':>13} {'method':>9} {'bound':>8} {'s':>9} {'ns/row':>7} {'/hist':>6} {'MB':>6}")
    sizes = [10**power for power in range(4, 10) if 10**power <= arguments.max_rows]
    for num_rows in sizes:
        for method in get_args(MeanMethod):
            if (num_rows, method) in done:
                continue
            row = in_own_process("--one", str(num_rows), method)
            record["rows"].append(row)
            save()
            peer = row["histogram_seconds"]
            ratio = f"{row['seconds'] / peer:.2f}" if peer else ""
            print(
                f"{num_rows:>13,} {method:>9} {row['bound']:>8.4f} {row['seconds']:>9.4f} "
                f"{1e9 * row['seconds'] / num_rows:>7.1f} {ratio:>6} {row['megabytes']:>6.1f}",
                flush=True,
            )
    if record["array"] is None:
        record["array"] = in_own_process("--array", str(min(10**7, arguments.max_rows)))
        save()
    array = record["array"]
    ratio = array["seconds"] / array["histogram_seconds"]
    print(
        f"one array of {array['rows']:,}: betting {array['seconds']:.3f} s, np.histogram "
        f"{array['histogram_seconds']:.3f} s, ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
