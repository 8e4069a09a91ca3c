"""Which items to answer: two rankings against three losses: displays.md.

    python docs/tables/rankings.py [--data-dir DIR]

A default `PairClassifier` is fitted to 1,000 items of each data set, five times with other items,
and answers the better half of the test items by each ranking. Without a data folder the script only
writes the page.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pages
from classifier_sets import load

import secondguess as sg
from secondguess.displays import RiskCoverageDisplay

NAME = "rankings"
COMMAND = "python docs/tables/rankings.py --data-dir DIR"
PAGE = "displays.md"
DATA = ("CEBaB", "CIFAR-10H", "CIFAR-10N", "blurred digits", "teacher", "moons")
NUM_SEEDS, NUM_ITEMS = 5, 1000
RANKINGS = ("probability", "variance")
LOSSES = {
    "majority": "labels against the majority",
    "disagreement": "annotators who chose otherwise",
    "squared_error": "squared error of probabilities",
}


def measure(name: str, folder: Path, seed: int) -> dict[str, Any]:
    """The risk at half coverage by each ranking, and of all items."""
    from matplotlib.figure import Figure

    training, testing, groups = load(name, folder, seed)
    rows, classes = np.arange(NUM_ITEMS), list(range(training.counts.shape[1]))
    model = sg.PairClassifier("counts", classes=classes)
    model.fit(training.features[rows], training.counts[rows], groups=groups[rows])
    record: dict[str, Any] = {"data": name, "seed": seed}
    for loss in LOSSES:
        for by in RANKINGS:
            risk = RiskCoverageDisplay.from_estimator(
                model,
                testing.features,
                testing.counts,
                by=by,
                loss=loss,  # pyright: ignore[reportArgumentType]
                ax=Figure().subplots(),
            ).curve.risk
            record[f"{loss} by {by}"] = float(risk[len(risk) // 2 - 1])
            record[f"{loss} of all"] = float(risk[-1])  # the same by either
    return record


def measured() -> list[dict[str, Any]]:
    """One record for each data set and seed."""
    return pages.kept(NAME)["rows"]


def table_of_risks(rows: list[dict[str, Any]]) -> str:
    """The better half by each ranking, and the paired difference over seeds."""
    heads = ["data", "mean loss", "all items", "half by probability", "half by variance"]
    heads += ["variance beside probability"]
    lines = []
    for data in DATA:
        mine = [row for row in rows if row["data"] == data]
        for loss, title in LOSSES.items():
            found = {
                key: np.array([row[f"{loss} {key}"] for row in mine])
                for key in ("of all", "by probability", "by variance")
            }
            gap = found["by variance"] - found["by probability"]
            noise = gap.std(ddof=1) / np.sqrt(len(gap))
            cells = [f"{values.mean():.3f}" for values in found.values()]
            lines.append([data, title, *cells, f"{gap.mean():+.3f} ± {noise:.3f}"])
    return pages.table(heads, lines) + f"\n\nMeasured by `{COMMAND}`."


TABLES = {"rankings": lambda: table_of_risks(measured())}


def main() -> None:
    """Measure, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    folder = parser.parse_args().data_dir
    if folder is not None:
        start = time.process_time()
        rows = [measure(name, folder, seed) for name in DATA for seed in range(NUM_SEEDS)]
        seconds = time.process_time() - start
        pages.keep(NAME, command=COMMAND, seconds=seconds, rows=rows)
    (pages.DOCS / PAGE).write_text(pages.filled(PAGE, TABLES))


if __name__ == "__main__":
    main()
