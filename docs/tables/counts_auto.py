"""How good the choice of `fit_intervals(method="auto")` is: docs/intervals-from-counts.md.

    python docs/tables/counts_auto.py

writes docs/results/intervals-from-counts-auto.json and keeps the cells that are in it already, so
that a run that was cut short resumes; `python docs/tables/counts_page.py` puts the table into the
page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from intervals_from_counts import METHODS, MISS_RATE, RESULTS, SYMMETRIC, worlds

from secondguess.theory.calibration.fit_intervals import fit_intervals

PATH = RESULTS / "intervals-from-counts-auto.json"
FRESH = ("a drift that is not stated", "one in ten is a coin")
"""Laws that were tried only after the rule of `auto` was settled, on other draws of the others."""


def auto_worlds(
    rng: np.random.Generator, size: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Name, truths, predictions, stated variances; those in `FRESH` were not looked at before."""
    kind = rng.random(size)
    truths = np.where(kind < 0.6, rng.beta(0.3, 8, size), rng.beta(8, 0.3, size))
    truths = np.where(kind < 0.9, truths, rng.random(size))
    errors = rng.normal(0, 0.04, size) * (rng.random(size) < 0.3)
    yield "mostly agreed", truths, np.clip(truths + errors, 0, 1), np.full(size, 0.0016)
    truths, deviation = rng.beta(3, 3, size), rng.choice([0.02, 0.1, 0.2], size)
    probs = np.clip(truths + deviation * rng.normal(size=size), 0, 1)
    yield "three precisions, stated", truths, probs, deviation**2
    truths, lost = rng.random(size), rng.random(size) < 0.04
    probs = np.clip(truths + rng.normal(0, 0.02, size), 0, 1)
    yield "one in 25 far off", truths, np.where(lost, rng.random(size), probs), np.full(size, 1e-3)
    truths = rng.beta(1, 20, size)
    probs = np.clip(truths * rng.gamma(8, 1 / 8, size), 0, 1)
    yield "a rare answer", truths, probs, 0.01 * truths
    truths = np.clip(rng.choice([0.3, 0.65], size) + rng.normal(0, 0.05, size), 0, 1)
    yield "two schools of thought", truths, np.full(size, 0.475), np.full(size, 0.033)
    truths, deviation = rng.beta(2, 5, size), rng.gamma(2, 0.03, size)
    probs = np.clip(truths + deviation * rng.standard_t(4, size), 0, 1)
    yield "overconfident by half", truths, probs, deviation**2 / 4
    truths = np.where(rng.random(size) < 0.7, rng.integers(0, 2, size), rng.beta(4, 4, size))
    sure = rng.random(size) < 0.5
    probs = np.where(sure, truths, 0.15 + 0.7 * truths)
    yield "a few certain items", truths, probs, np.where(sure, 1e-4, 0.01)
    truths = rng.beta(1, 4, size)
    yield "a drift that is not stated", truths, 0.9 * truths + 0.1, np.full(size, 4e-4)
    truths, coin = rng.choice([0.02, 0.98], size), rng.random(size) < 0.1
    probs = np.clip(truths + rng.uniform(-0.02, 0.02, size), 0, 1)
    truths = np.where(coin, 0.5, truths)
    yield "one in ten is a coin", truths, probs, np.full(size, 1e-3)


def auto(replicates: int) -> None:
    """`auto` against pairs and counts, and how often its choice leads astray."""
    rows = json.loads(PATH.read_text())["rows"] if PATH.exists() else []
    done = {(row["world"], row["num_responses"], row["rows"]) for row in rows}
    for k in (2, 8, 30):
        for size, draws in ((300, 8), (1500, 4)):
            widths: dict[str, dict[str, list[float]]] = {}
            for draw in range(draws):
                rng = np.random.default_rng([2024, k, size, draw])
                for name, truths, probs, variance in auto_worlds(rng, size + 2000):
                    # Drawn for cells that are done too: the next ones follow in the stream.
                    ones, new = rng.binomial(k, truths), slice(size, None)
                    if (name, k, size) in done:
                        continue
                    for method in METHODS:
                        fitted = fit_intervals(
                            probs[:size], variance[:size], ones[:size], k, method=method, seed=draw
                        )
                        width = fitted.interval(probs[new], variance[new]).width.mean()
                        widths.setdefault(name, {}).setdefault(method, []).append(float(width))
            for name, found in widths.items():
                means = {method: float(np.mean(values)) for method, values in found.items()}
                cell = {"world": name, "num_responses": k, "rows": size, "draws": draws}
                cell["fresh"] = name in FRESH
                rows.append({**cell, "widths": means})
                keep(rows)
    for k in (5, 50):
        if ("truths just outside the ends", k, 300) in done:
            continue
        world = worlds(SYMMETRIC, k)["truths just outside the ends, the rest certain"]
        failed = 0
        for replicate in range(replicates):
            drawn = world.draw(np.random.default_rng([k, replicate]), 300)
            fitted = fit_intervals(*drawn, method="auto", seed=replicate)
            interval = fitted.interval(world.probs, world.variance)
            failed += world.missed((interval.lower, interval.upper)) > MISS_RATE
        cell = {"world": "truths just outside the ends", "num_responses": k, "rows": 300}
        rows.append({**cell, "replicates": replicates, "failures": int(failed)})
        keep(rows)


def keep(rows: list[dict[str, Any]]) -> None:
    """Write what there is so far."""
    record = {"command": "python docs/tables/counts_auto.py", "rows": rows}
    PATH.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(rows[-1]), flush=True)


if __name__ == "__main__":
    auto(1000)
