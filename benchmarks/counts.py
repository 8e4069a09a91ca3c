"""Calibration by counts against Algorithm 1 on the same rows, in time and in memory.

Run with `make bench`, or `python benchmarks/counts.py [--rows 1_000_000] [--out FILE]`. Both read
the rows as a stream in chunks of 2**18, one after the other in turn, and answer one query; the best
of some repeats counts. The Beta family reads 30,000 of the rows at most, as `fit_intervals` does.
Memory is the peak of what each allocates beside the chunk, for all rows and for a quarter of them.
Then `fit_intervals` from end to end,
choice included, against `calibrate`, which chooses a cut-off and certifies; and a training step of
the snapshot loss against one of the pair loss, forward and backward, on a mixture head.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import secondguess as sg
from secondguess.classification.batches import AnnotationBatch, PairBatch
from secondguess.classification.heads import PairModel, build_head
from secondguess.classification.losses import pair_model_loss
from secondguess.classification.pairs import PairData
from secondguess.models.residual_mlp import ResidualMLP
from secondguess.theory.calibration.count_stream import CountStream
from secondguess.theory.calibration.inflation import InflationStream
from secondguess.theory.calibration.interval_plan import MAX_BETA_ROWS
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


def end_to_end(num_rows: int, k: int, repeats: int) -> list[dict[str, Any]]:
    """`fit_intervals` against `calibrate` on the same rows in memory, in turn."""
    probs, variance, responses, ones = rows(np.random.default_rng(1), num_rows, k)
    calls: dict[str, Callable[[], object]] = {
        "`calibrate`": lambda: sg.calibrate(probs, variance, responses),
        "`fit_intervals`, `auto`": lambda: sg.fit_intervals(probs, variance, ones, k),
        "`fit_intervals`, `counts`": lambda: sg.fit_intervals(
            probs, variance, ones, k, method="counts"
        ),
    }
    best = dict.fromkeys(calls, np.inf)
    for _ in range(repeats):
        for name, call in calls.items():
            tick = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - tick)
    first = best["`calibrate`"]
    return [
        {"rows": num_rows, "num_responses": k, "method": m, "seconds": b, "ratio": b / first}
        for m, b in best.items()
    ]


def training_steps(k: int, repeats: int) -> list[dict[str, Any]]:
    """Seconds of a step on 256 rows of 1,280 features and 10 classes, k annotations each."""
    generator = torch.Generator().manual_seed(0)
    backbone = ResidualMLP(1280, width=64, hidden_width=256, generator=generator)
    model = PairModel(backbone, build_head("mixture", backbone.num_features, 10))
    rng = np.random.default_rng(0)
    data = PairData.from_counts(rng.multinomial(k, rng.dirichlet(np.full(10, 0.3), 256)))
    inputs = torch.randn(256, 1280, generator=generator)
    pairs = data.draw(rng)
    batches = {
        "pair": PairBatch(inputs, *torch.from_numpy(pairs).unbind(1)),
        "all_pairs": AnnotationBatch(
            inputs, torch.from_numpy(data.labels), torch.from_numpy(data.multiplicity)
        ),
    }
    batches["snapshot"] = batches["all_pairs"]
    best = dict.fromkeys(batches, np.inf)
    for _ in range(10 * repeats):
        for name, batch in batches.items():
            tick = time.perf_counter()
            pair_model_loss(model, batch, snapshot=name == "snapshot").backward()
            best[name] = min(best[name], time.perf_counter() - tick)
    return [
        {"loss": n, "num_responses": k, "seconds": b, "ratio": b / best["pair"]}
        for n, b in best.items()
    ]


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
                "megabytes_for_a_quarter": timed(arguments.rows // 4, k, kind)[1],
            }
            lines.append(line)
            print(line, flush=True)
    whole, steps = [], []
    for k in (2, 5, 50):
        whole += end_to_end(arguments.rows, k, arguments.repeats)
        steps += training_steps(k, arguments.repeats)
    for line in (*whole, *steps):
        print(line, flush=True)
    if arguments.out:
        record = {
            "command": "python benchmarks/counts.py --out docs/results/counts-cost.json",
            "rows": lines,
            "end_to_end": whole,
            "steps": steps,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
