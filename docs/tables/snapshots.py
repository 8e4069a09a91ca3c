"""Does training on more than two responses per row help? CIFAR-10H and CIFAR-10N, k = 2 to 50.

    python docs/tables/snapshots.py --data-dir DIR [--only N]

trains small mixture heads on frozen features, one cell (data, k, loss, seed) after the other, and
writes docs/results/snapshots.json when all are there; `python docs/tables/counts_page.py` puts the
tables into the page. Cells are kept in the folder `counts-cache` of the data folder, so that a run
that was cut short resumes; `--only N` ends after N new ones. All take about a quarter of an hour
on one core, features apart. Intervals are certified at the end, from the predictions that were
kept.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pages

import secondguess as sg
from secondguess.classification.estimators import PairClassifier
from secondguess.classification.fitting import LossName
from secondguess.classification.predicting import held_out_loss
from secondguess.classification.recalibration import PairRecalibration
from secondguess.experiments.cifar10h import data, frozen
from secondguess.theory.calibration.fit_intervals import fit_intervals
from secondguess.theory.higher_order import higher_order_ece, higher_order_ece_floor

SEEDS = (0, 1, 2)
ORDERS = {"CIFAR-10H": (2, 10, 40), "CIFAR-10N": (2, 3)}
"""Orders that are measured; a test row has 47 annotations at least, or 3."""

RESPONSES = {"CIFAR-10H": (2, 3, 5, 10, 50), "CIFAR-10N": (2, 3)}
MISS_RATE, NUM_BINS = 0.1, 25
CLASSIFIER: dict[str, Any] = {
    "backbone": "mlp",
    "recalibrate": "likelihood",
    "width": 64,
    "num_steps": 600,
    "batch_size": 256,
    "validate_every": 10,
}
NUM_PRETRAINING = 20_000
"""Images of CIFAR-10N that are used: half train, a quarter each calibrates and tests."""


@dataclass(frozen=True)
class Rows:
    """Features `(n, 1280)` and counts of annotations `(n, 10)`."""

    features: np.ndarray
    counts: np.ndarray


def parts(name: str, data_dir: Path) -> dict[str, Rows]:
    """Rows to train, to calibrate and to test on."""
    images = data.load(data_dir)
    if name == "CIFAR-10H":
        source, cuts = images.annotated, (0, 3000, 5000, 10_000)
    else:
        size = NUM_PRETRAINING
        source, cuts = images.pretraining[:size], (0, size // 2, size * 3 // 4, size)
    features = frozen.frozen_features(source.inputs, cache_dir=data_dir / "counts-cache").numpy()
    counts = source.responses.counts()
    names = ("training", "calibrating", "testing")
    return {
        part: Rows(features[first:last], counts[first:last])
        for part, first, last in zip(names, cuts, cuts[1:], strict=False)
    }


def thinned(counts: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """At most k of each row's annotations, drawn without replacement."""
    draws = np.minimum(counts.sum(axis=1), k)
    return np.stack(
        [rng.multivariate_hypergeometric(row, d) for row, d in zip(counts, draws, strict=True)]
    )


def measure(
    name: str, rows: dict[str, Rows], k: int, loss: LossName, seed: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One cell: train, then look at rows that nobody trained on; and the predictions for them."""
    start = time.perf_counter()
    counts = thinned(rows["training"].counts, k, np.random.default_rng([seed, k]))
    model = PairClassifier(
        "counts", classes=list(range(10)), loss=loss, random_state=seed, **CLASSIFIER
    ).fit(rows["training"].features, counts)
    record: dict[str, Any] = {"data": name, "k": k, "loss": loss, "seed": seed}
    record["steps"] = model.history_.best_step
    fitted = model.recalibration_
    record["recalibration"] = {
        "temperature": fitted.temperature,
        "correlation": fitted.correlation,
    }
    for version, recalibration in (("recalibrated", fitted), ("raw", PairRecalibration())):
        model.recalibration_ = recalibration
        record[version] = evaluate(model, rows["testing"], ORDERS[name], seed)
    model.recalibration_ = fitted
    arrays = {}
    for part in ("calibrating", "testing"):
        prediction = model.predict_moments(rows[part].features)
        arrays |= {f"{part}_probs": prediction.probs, f"{part}_variance": prediction.variance}
        arrays[f"{part}_counts"] = rows[part].counts
    record["seconds"] = round(time.perf_counter() - start, 1)
    return record, arrays


def evaluate(
    model: PairClassifier, rows: Rows, orders: tuple[int, ...], seed: int
) -> dict[str, Any]:
    """Calibration, likelihood and the quantile intervals that rest on it, on the test rows."""
    rng = np.random.default_rng(seed)
    counts, totals = rows.counts, rows.counts.sum(axis=1)
    prediction = model.predict_moments(rows.features)
    joint = model.predict_joint(rows.features)
    distribution = model.predict_distribution(rows.features)
    quantiles = distribution.interval(MISS_RATE)
    # A share is a multiple of 1/total: half of that is no miss of an interval.
    shares, half = counts / totals[:, None], 0.5 / totals[:, None]
    held = (shares >= quantiles.lower - half) & (shares <= quantiles.upper + half)
    floor = sg.second_order_ece_floor(
        prediction, totals, rng=rng, num_bins=NUM_BINS, num_simulations=5
    )
    return {
        "first_order_ece": sg.first_order_ece(prediction, counts, num_bins=NUM_BINS),
        "second_order_ece": sg.second_order_ece(prediction, counts, num_bins=NUM_BINS),
        "second_order_ece_floor": floor.mean,
        "grouping_error": sg.grouping_error(prediction, counts),
        "mean_variance": sg.mean_variance(prediction),
        "higher_order_ece": {k: higher_order_ece(distribution, counts, order=k) for k in orders},
        "higher_order_ece_floor": {
            k: higher_order_ece_floor(
                distribution, totals, order=k, rng=rng, num_simulations=5
            ).mean
            for k in orders
        },
        "log_likelihood": -held_out_loss(joint, model.read_targets(counts), snapshot=True),
        "pair_log_likelihood": -held_out_loss(joint, model.read_targets(counts)),
        "quantile_width": float(quantiles.width.mean()),
        "quantile_held": float(held.mean()),
    }


def certify(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Intervals that are guaranteed by the calibration rows, on the test rows."""
    fitted = fit_intervals(
        arrays["calibrating_probs"],
        arrays["calibrating_variance"],
        arrays["calibrating_counts"],
        miss_rate=MISS_RATE,
    )
    interval = fitted.interval(arrays["testing_probs"], arrays["testing_variance"])
    counts = arrays["testing_counts"]
    shares = counts / counts.sum(axis=1, keepdims=True)
    return {
        "width": float(interval.width.mean()),
        "held": float(interval.contains(shares).mean()),
        "by_counts": fitted.methods.count("counts"),
    }


def cells() -> Iterator[tuple[str, int, LossName, int]]:
    """With two responses per row all pairs are the one pair, and both losses are the same."""
    for seed in SEEDS:
        for name, responses in RESPONSES.items():
            for k in responses:
                yield name, k, "snapshot", seed
                if k > 2:
                    yield name, k, "all_pairs", seed


def main() -> None:
    """Measure what is not there yet, and write the result when all is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    cache = arguments.data_dir / "counts-cache" / "snapshots"
    cache.mkdir(parents=True, exist_ok=True)
    loaded: dict[str, dict[str, Rows]] = {}
    done, rows = 0, []
    for name, k, loss, seed in cells():
        path = cache / f"{name}-{k}-{loss}-{seed}.npz"
        if not path.exists():
            if done == arguments.only:
                return
            loaded[name] = loaded.get(name) or parts(name, arguments.data_dir)
            record, arrays = measure(name, loaded[name], k, loss, seed)
            print(json.dumps(record), flush=True)
            partial = path.with_suffix(".partial")
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, record=np.array(json.dumps(record)), **arrays)
            partial.replace(path)
            done += 1
    for name, k, loss, seed in cells():
        with np.load(cache / f"{name}-{k}-{loss}-{seed}.npz") as arrays:
            rows.append({**json.loads(str(arrays["record"])), "certified": certify(arrays)})
    pages.keep(
        "snapshots",
        command="python docs/tables/snapshots.py --data-dir DIR",
        seconds=sum(row["seconds"] for row in rows),
        rows=rows,
    )


if __name__ == "__main__":
    main()
