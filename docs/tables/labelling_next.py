"""Learning curves of three ways to choose what to label next: labelling-next.md.

    python docs/tables/labelling_next.py [--data-dir DIR]

In every round a default `PairClassifier` is fitted to the items labelled so far and tested on other
items; then it chooses the next ones of a pool. Curves are kept in the folder `labelling-cache` of
the data folder, one file for each data set, seed and way, so that a run that was cut short resumes.
Without a data folder the script only draws the picture and writes the page.

Axes: rows (n), features (d), classes (K).
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pages
from classifier_sets import Part, load

import secondguess as sg
from secondguess.classification.fit_warnings import PairFitWarning

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "labelling-next.json"
PICTURE = ROOT / "docs" / "pictures" / "labelling-next.png"
COMMAND = "python docs/tables/labelling_next.py --data-dir DIR"
PAGE = "labelling-next.md"
DATA = ("CEBaB", "CIFAR-10N")
SEEDS = range(5)
BATCH, MOST, POOL = 100, 1000, 4000
"""Items of a round, items in the end, and items to choose from."""
SHOWN = (200, 500, 1000)
MEASURES = {"log_loss": "log-loss", "grouping_error": "grouping error", "accuracy": "accuracy"}

Choose = Callable[[sg.Triage, np.random.Generator], np.ndarray]
WAYS: dict[str, Choose] = {
    "random": lambda parts, rng: rng.random(len(parts.ignorance)),
    "p(1 - p)": lambda parts, rng: parts.disagreement + parts.ignorance,
    "epistemic variance": lambda parts, rng: parts.ignorance,
}
"""The items with the largest of these numbers come next; all are sums over classes."""


def learning_curve(
    pool: Part, groups: np.ndarray, testing: Part, way: str, seed: int
) -> list[dict[str, Any]]:
    """Errors on the test items after each round; all ways of a seed begin with the same items."""
    rng = np.random.default_rng([seed, 21])
    labelled = np.arange(BATCH)  # the pool is in random order
    curve = []
    while True:
        model = sg.PairClassifier("counts", classes=list(range(pool.counts.shape[1])))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PairFitWarning)  # a hundred items are few
            model.fit(pool.features[labelled], pool.counts[labelled], groups=groups[labelled])
        curve.append({"items": len(labelled), **errors(model, testing)})
        if len(labelled) >= MOST:
            return curve
        others = np.setdiff1d(np.arange(len(pool.counts)), labelled)
        rank = WAYS[way](sg.triage(model, pool.features[others]), rng)
        chosen = others[np.argsort(-rank, kind="stable")[:BATCH]]
        labelled = np.concatenate([labelled, chosen])


def errors(model: sg.PairClassifier, testing: Part) -> dict[str, float]:
    """How far the model is off on items that nobody could choose."""
    prediction = model.predict_moments(testing.features)
    counts = testing.counts
    shares = counts / counts.sum(axis=1, keepdims=True)
    called = counts[np.arange(len(counts)), prediction.probs.argmax(axis=1)]
    log_probs = np.log(np.maximum(prediction.probs, 1e-12))
    return {
        "log_loss": -float((shares * log_probs).sum(axis=1).mean()),
        "grouping_error": sg.grouping_error(prediction, counts),
        "accuracy": float((called == counts.max(axis=1)).mean()),
    }


def run(folder: Path) -> None:
    """Measure the curves that are not there yet, and collect all."""
    cache = folder / "labelling-cache"
    cache.mkdir(exist_ok=True)
    rows = []
    for name in DATA:
        for seed in SEEDS:
            loaded = None
            for way in WAYS:
                path = cache / f"{name}-{seed}-{way.replace(' ', '')}.json"
                if not path.exists():
                    loaded = loaded or load(name, folder, seed)
                    training, testing, groups = loaded
                    pool = training.take(np.arange(POOL))
                    curve = learning_curve(pool, groups[:POOL], testing, way, seed)
                    partial = path.with_suffix(".partial")
                    partial.write_text(json.dumps(curve))
                    partial.replace(path)
                    print(name, seed, way, curve[-1], flush=True)
                for point in json.loads(path.read_text()):
                    rows.append({"data": name, "seed": seed, "way": way, **point})
    RESULTS.write_text(json.dumps({"command": COMMAND, "rows": rows}, indent=1) + "\n")


def measured() -> list[dict[str, Any]]:
    """Every point of every curve."""
    return json.loads(RESULTS.read_text())["rows"]


def values(rows: list[dict[str, Any]], data: str, way: str, items: int, key: str) -> np.ndarray:
    """One number per seed."""
    found = {
        row["seed"]: row[key]
        for row in rows
        if (row["data"], row["way"], row["items"]) == (data, way, items)
    }
    return np.array([found[seed] for seed in sorted(found)])


def table_of_differences(rows: list[dict[str, Any]]) -> str:
    """Every way at three sizes, beside random labelling from the same start."""
    heads = ["data", "chosen by", "items"]
    heads += [part for name in MEASURES.values() for part in (name, "beside random")]
    lines = []
    for data in DATA:
        for items in SHOWN:
            for way in WAYS:
                cells = [data, way, f"{items:,}"]
                for key in MEASURES:
                    mine = values(rows, data, way, items, key)
                    gap = mine - values(rows, data, "random", items, key)
                    cells.append(f"{mine.mean():.3f}")
                    cells.append("" if way == "random" else mean_and_error(gap))
                lines.append(cells)
    return pages.table(heads, lines) + f"\n\nMeasured by `{COMMAND}`."


def mean_and_error(gap: np.ndarray) -> str:
    """A paired difference, and its standard error over seeds."""
    return f"{gap.mean():+.3f} ± {gap.std(ddof=1) / np.sqrt(len(gap)):.3f}"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Means over seeds with their standard errors."""
    from secondguess.displays.look import COLOURS, DASHES, house_look, new_figure, save

    shown = ("log_loss", "grouping_error")
    with house_look():
        figure, axes = new_figure(len(DATA), len(shown), panel=(3.6, 2.6))
        for line, data in zip(axes, DATA, strict=True):
            for ax, key in zip(line, shown, strict=True):
                for number, way in enumerate(WAYS):
                    items = sorted({row["items"] for row in rows if row["data"] == data})
                    found = np.stack([values(rows, data, way, each, key) for each in items])
                    noise = found.std(axis=1, ddof=1) / np.sqrt(found.shape[1])
                    style = {"color": COLOURS[number], "linestyle": DASHES[number]}
                    mean = found.mean(axis=1)
                    ax.errorbar(items, mean, noise, label=way, capsize=2, **style)
                ax.set(xlabel="labelled items", ylabel=MEASURES[key], title=data)
        axes[0][0].legend()
        save(figure, path)


TABLES = {"differences": lambda: table_of_differences(measured())}


def main() -> None:
    """Measure, draw, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    folder = parser.parse_args().data_dir
    if folder is not None:
        run(folder)
    draw(measured(), PICTURE)
    (pages.DOCS / PAGE).write_text(pages.filled(PAGE, TABLES))


if __name__ == "__main__":
    main()
