"""Who disagrees, and what the model has not learned: `python examples/annotators/run.py`.

Loads CEBaB from --data-dir (or SECONDGUESS_DATA), embeds the reviews (cached in --out), fits the
methods, measures them on reviews that none of them saw, and writes `annotators.json` and two
pictures to --out. With --docs it also renews the page docs/annotators.md and what it shows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import draw_map, draw_reliability
from methods import PlainClassifier, ensemble_prediction, naive_prediction, pair_classifier
from page import write_page
from reviews import STARS, Reviews, embed, load_reviews
from scipy.stats import rankdata

import secondguess as sg
from secondguess.classification.heads import HeadName
from secondguess.classification.inflation import fit_inflations
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import held_out_loss
from secondguess.classification.recalibration import PairRecalibration
from secondguess.classification.splitting import split_rows
from secondguess.theory.calibration.products import scaled_products

SHARES = {"train": 0.5, "validation": 0.1, "calibration": 0.2, "test": 0.2}
NUM_MEMBERS = 8
MISS_RATE, FAILURE_RATE = 0.2, 0.05
NUM_BINS = 25
NUM_LISTED = 4
DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    """Run everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("SECONDGUESS_DATA")
    parser.add_argument("--data-dir", type=Path, default=default and Path(default))
    parser.add_argument("--out", type=Path, default=Path("out/annotators"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--docs", action="store_true", help="renew the page in docs/")
    arguments = parser.parse_args()
    if arguments.data_dir is None:
        parser.error("name the folder of cebab-v1.1.zip with --data-dir or SECONDGUESS_DATA")
    reviews = load_reviews(arguments.data_dir)
    features = embed(reviews.texts, arguments.out / "embeddings")
    result = measure(reviews, features, seed=arguments.seed, out=arguments.out)
    path = arguments.out / "annotators.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {path}")
    if arguments.docs:
        (DOCS / "results").mkdir(exist_ok=True)
        shutil.copy(path, DOCS / "results")
        for picture in ("annotators-reliability.png", "annotators-map.png"):
            shutil.copy(arguments.out / picture, DOCS / "pictures")
        write_page(result, DOCS / "annotators.md")


def measure(reviews: Reviews, features: np.ndarray, *, seed: int, out: Path) -> dict[str, Any]:
    """Fit all methods and compare them on the test reviews."""
    rng = np.random.default_rng(seed)
    parts = dict(
        zip(
            SHARES,
            split_rows(len(reviews), list(SHARES.values()), rng=rng, groups=reviews.groups),
            strict=True,
        )
    )
    data = PairData.from_responses(reviews.ratings, classes=STARS)
    predictions, losses = predict_all(features, data, parts, seed, out / "predictions")
    test = parts["test"]
    counts = data[test].counts()
    # Edits of one review are not independent: the guarantee takes one text of each.
    calibration = _one_of_each(parts["calibration"], reviews.groups, rng)

    rows = {}
    for name, prediction in predictions.items():
        rows[name] = {
            **_metrics(_take(prediction, test), counts, rng),
            "pair_loss": losses.get(name),
            **_intervals(prediction, data, calibration, test, seed),
        }
        print(f"{name:24}", {key: round(v, 4) for key, v in rows[name].items() if v}, flush=True)

    shown = {name: _take(prediction, test) for name, prediction in predictions.items()}
    draw_reliability(shown, counts, out / "annotators-reliability.png")
    ours = shown["pair, mixture"]
    disagreement = expected_disagreement(ours)
    ignorance = ours.variance.sum(axis=1)
    draw_map(disagreement, ignorance, out / "annotators-map.png")
    return {
        "experiment": "annotators",
        "command": "python examples/annotators/run.py --data-dir DIR --docs",
        "seed": seed,
        "texts": {name: len(part) for name, part in parts.items()},
        "reviews": {name: len(set(reviews.groups[part])) for name, part in parts.items()},
        "calibration_rows": len(calibration),
        "miss_rate": MISS_RATE,
        "failure_rate": FAILURE_RATE,
        "num_bins": NUM_BINS,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "machine": platform.machine(),
        "methods": rows,
        "tenths": _tenths(ours, disagreement, ignorance, counts),
        "lists": _lists(reviews, test, ours, disagreement, ignorance),
    }


def predict_all(
    features: np.ndarray, data: PairData, parts: dict[str, np.ndarray], seed: int, cache: Path
) -> tuple[dict[str, sg.Prediction], dict[str, float]]:
    """Each method's prediction of all texts, and the pair loss on the test texts where it has one.

    A method that was fitted before comes from the cache, so a run that was cut short resumes.
    """
    train, validation, test = parts["train"], parts["validation"], parts["test"]
    held = (features[validation], data[validation])
    predictions: dict[str, sg.Prediction] = {}
    losses: dict[str, float] = {}

    def fit_pair(head: HeadName) -> dict[str, np.ndarray]:
        model = pair_classifier(head, seed=seed).fit(features[train], data[train], validation=held)
        arrays: dict[str, Any] = {"steps": model.history_.best_step}
        for version, recalibration in (("", model.recalibration_), ("_raw", PairRecalibration())):
            model.recalibration_ = recalibration
            arrays["probs" + version], arrays["variance" + version] = _arrays(
                model.predict_moments(features)
            )
            arrays["loss" + version] = np.nan
            if head != "binary":
                joint = model.predict_joint(features[test])
                arrays["loss" + version] = held_out_loss(joint, data[test])
        return arrays

    def fit_plain(member: int) -> dict[str, np.ndarray]:
        model = PlainClassifier(seed=NUM_MEMBERS * seed + member)
        return {"probs": model.fit(features[train], data[train], held).predict_proba(features)}

    heads: dict[str, HeadName] = {
        "pair, mixture": "mixture",
        "pair, symmetric": "symmetric",
        "pair, classwise": "binary",
    }
    for name, head in heads.items():
        arrays = _cached(cache / f"{head}-{seed}.npz", partial(fit_pair, head))
        for label, version in ((name, ""), (f"{name}, raw", "_raw")):
            predictions[label] = sg.Prediction(
                arrays["probs" + version], arrays["variance" + version]
            )
            if np.isfinite(arrays["loss" + version]):
                losses[label] = float(arrays["loss" + version])
    members = [
        _cached(cache / f"plain-{seed}-{member}.npz", partial(fit_plain, member))["probs"]
        for member in range(NUM_MEMBERS)
    ]
    predictions["plain, p(1-p)"] = naive_prediction(members[0])
    predictions[f"ensemble of {NUM_MEMBERS}"] = ensemble_prediction(members)
    return predictions, losses


def expected_disagreement(prediction: sg.Prediction) -> np.ndarray:
    """The chance that two raters of the same text differ, by the model: 1 - sum of p(y, y)."""
    return 1 - (prediction.variance + prediction.probs**2).sum(axis=1)


def _metrics(prediction: sg.Prediction, counts: np.ndarray, rng: np.random.Generator) -> dict:
    variance = prediction.variance
    errors = sg.squared_error_estimate(prediction, counts).sum(axis=1)
    return {
        "first_order_ece": sg.first_order_ece(prediction, counts, num_bins=NUM_BINS),
        "second_order_ece": sg.second_order_ece(prediction, counts, num_bins=NUM_BINS),
        "second_order_ece_standard_error": sg.second_order_ece_standard_error(
            prediction, counts, rng=rng, num_bins=NUM_BINS
        ),
        "second_order_ece_floor": sg.second_order_ece_floor(
            prediction, counts.sum(axis=1), rng=rng, num_bins=NUM_BINS
        ).mean,
        "mean_variance": sg.mean_variance(prediction),
        "grouping_error": sg.grouping_error(prediction, counts),
        "rank_correlation": _rank_correlation(variance.sum(axis=1), errors),
        "annotator_kl": sg.annotator_kl(prediction, counts),
        "negative_variances": float(np.mean(variance < 0)),
    }


def _intervals(
    prediction: sg.Prediction,
    data: PairData,
    calibration: np.ndarray,
    test: np.ndarray,
    seed: int,
) -> dict[str, float]:
    """Width of guaranteed intervals, and how often they can miss at most, by the test ratings."""
    inflations = fit_inflations(
        _take(prediction, calibration), data[calibration], failure_rate=FAILURE_RATE, seed=seed
    )
    prediction, ratings = _take(prediction, test), data[test].labels
    interval = inflations.interval(prediction.probs, prediction.variance, MISS_RATE)
    shares = data[test].counts() / data[test].num_annotations[:, None]
    # Markov's inequality behind the intervals: P(miss) <= miss_rate E[D] / inflation.
    most = [
        MISS_RATE
        * scaled_products(p, v, ratings == c, inflation.min_variance).mean()
        / inflation.value
        for c, (p, v, inflation) in enumerate(
            zip(prediction.probs.T, prediction.variance.T, inflations.inflations, strict=True)
        )
    ]
    return {
        "inflation": float(np.mean([inflation.value for inflation in inflations.inflations])),
        "interval_width": float(interval.width.mean()),
        "worst_miss_rate": float(max(most)),
        "shares_covered": float(interval.contains(shares).mean()),
    }


def _tenths(prediction, disagreement, ignorance, counts) -> dict[str, dict[str, list[float]]]:
    """What the model expects and what the raters say, for tenths of the texts."""
    totals = counts.sum(axis=1)
    pairs = totals * (totals - 1)
    differ = 1 - (counts * (counts - 1)).sum(axis=1) / pairs
    errors = sg.squared_error_estimate(prediction, counts).sum(axis=1)
    tables = {}
    for name, expected, observed in (
        ("disagreement", disagreement, differ),
        ("ignorance", ignorance, errors),
    ):
        tenths = np.array_split(np.argsort(expected), 10)
        tables[name] = {
            "expected": [float(expected[tenth].mean()) for tenth in tenths],
            "observed": [float(observed[tenth].mean()) for tenth in tenths],
        }
    return tables


def _lists(reviews: Reviews, test, prediction, disagreement, ignorance) -> dict[str, list[dict]]:
    """The texts a practitioner asks for, one of each original review."""
    known = ignorance <= np.quantile(ignorance, 0.3)
    orders = {
        "disagree": np.argsort(np.where(known, -disagreement, np.inf)),
        "unlearned": np.argsort(-ignorance),
    }
    lists = {}
    for name, order in orders.items():
        chosen: dict[str, int] = {}
        for row in order:
            chosen.setdefault(str(reviews.groups[test[row]]), int(row))
            if len(chosen) == NUM_LISTED:
                break
        lists[name] = [
            {
                "text": reviews.texts[test[row]],
                "ratings": sorted(reviews.ratings[test[row]].tolist()),
                "probs": prediction.probs[row].round(2).tolist(),
                "disagreement": round(float(disagreement[row]), 3),
                "ignorance": round(float(ignorance[row]), 3),
            }
            for row in chosen.values()
        ]
    return lists


def _one_of_each(rows: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shuffled = rng.permutation(rows)
    _, first = np.unique(groups[shuffled], return_index=True)
    return shuffled[first]


def _cached(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, np.ndarray]:
    """What `make` gave the first time."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial_path = path.with_suffix(".partial")
        with partial_path.open("wb") as file:
            np.savez(file, **make())
        os.replace(partial_path, path)
        print(f"fitted {path.stem}", flush=True)
    with np.load(path) as arrays:
        return dict(arrays)


def _take(prediction: sg.Prediction, rows: np.ndarray) -> sg.Prediction:
    return sg.Prediction(prediction.probs[rows], prediction.variance[rows])


def _arrays(prediction: sg.Prediction) -> tuple[np.ndarray, np.ndarray]:
    return prediction.probs, prediction.variance


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


if __name__ == "__main__":
    main()
