"""Guaranteed thresholds beside MAPIE's risk control: how often they fail, how much they answer.

Run with `python benchmarks/thresholds.py`. Scores are uniform, and the chance of an error is a
known function of the score, so the error rate above any threshold is known. MAPIE is measured
beside ours if it can be imported (`pip install --no-deps --target FOLDER mapie`, with FOLDER in
PYTHONPATH).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.theory.calibration.thresholds import guaranteed_threshold

NUM_SETS, NUM_SETS_OF_PEER = 1000, 200
SIZES = (300, 1000)
MAX_ERROR_RATE = FAILURE_RATE = 0.05
GRID = np.linspace(0, 1, 20_001)

ErrorRate = Callable[[FloatArray], FloatArray]
Rule = Callable[[FloatArray, FloatArray], float]

WORLDS: dict[str, ErrorRate] = {
    "errors fall with the score": lambda score: 0.5 * (1 - score) ** 3,
    "none above 0.3, many below": lambda score: np.where(score > 0.3, 0.01, 0.6),
    "the score says nothing, 6 % wrong": lambda score: np.full_like(score, 0.06),
    "wrong at the very top": lambda score: np.where(score > 0.97, 0.9, 0.02),
}


def ours(scores: FloatArray, wrong: FloatArray) -> float:
    """Our threshold; infinite where there is none."""
    return guaranteed_threshold(
        scores, wrong, max_error_rate=MAX_ERROR_RATE, failure_rate=FAILURE_RATE
    ).value


def mapie(method: str) -> Rule:
    """MAPIE's loosest valid threshold for a precision of one minus the error rate."""
    from mapie.risk_control import (  # pyright: ignore[reportMissingImports]
        BinaryClassificationController,
    )

    def rule(scores: FloatArray, wrong: FloatArray) -> float:
        controller = BinaryClassificationController(
            predict_function=lambda column: np.stack([1 - column[:, 0], column[:, 0]], axis=1),
            risk="precision",
            target_level=1 - MAX_ERROR_RATE,
            confidence_level=1 - FAILURE_RATE,
            fwer_method=method,
            list_predict_params=np.linspace(0, 0.99, 100),
        )
        controller.calibrate(scores[:, None], 1 - wrong.astype(int))
        return float(np.min(controller.valid_predict_params, initial=np.inf))

    return rule


def rules() -> dict[str, tuple[Rule, int]]:
    """What is compared, with the number of sets for each."""
    found: dict[str, tuple[Rule, int]] = {"secondguess": (ours, NUM_SETS)}
    try:
        name = f"MAPIE {version('mapie')}"
        for method in ("bonferroni_holm", "fixed_sequence"):
            found[f"{name}, {method}"] = (mapie(method), NUM_SETS_OF_PEER)
    except ImportError:
        print("MAPIE is not there; its rows are left out")
    return found


def measure(world: ErrorRate, size: int, rule: Rule, num_sets: int) -> dict[str, Any]:
    """How one rule does on as many sets of marked answers."""
    above = np.cumsum(world(GRID)[::-1])[::-1] / np.arange(len(GRID), 0, -1)
    allowed = GRID[above <= MAX_ERROR_RATE]
    values, start = [], time.process_time()
    for seed in range(num_sets):
        rng = np.random.default_rng([seed, size])
        scores = rng.random(size)
        wrong = (rng.random(size) < world(scores)).astype(float)
        values.append(rule(scores, wrong))
    seconds = (time.process_time() - start) / num_sets
    found = np.array(values)
    places = np.searchsorted(GRID, np.minimum(found, 1.0)).clip(max=len(GRID) - 1)
    failed = np.isfinite(found) & (above[places] > MAX_ERROR_RATE)
    return {
        "num_sets": num_sets,
        "failures": int(failed.sum()),
        "answered": float(np.mean(1 - np.minimum(found, 1.0))),
        "answerable": float(1 - allowed.min()) if len(allowed) else 0.0,
        "milliseconds": 1000 * seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to write the result")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # MAPIE warns wherever it finds no threshold
    rows = []
    for name, world in WORLDS.items():
        for size in SIZES:
            for title, (rule, num_sets) in rules().items():
                found = measure(world, size, rule, num_sets)
                rows.append({"world": name, "size": size, "rule": title, **found})
                print(
                    f"{name:<35} {size:>5} {title:<32} fails {found['failures'] / num_sets:.3f} "
                    f"answers {found['answered']:.3f} of {found['answerable']:.3f}",
                    flush=True,
                )
    if arguments.out:
        command = f"python benchmarks/thresholds.py --out {arguments.out}"
        arguments.out.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
