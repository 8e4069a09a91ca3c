"""How far truths that are not Dirichlet move the floor of ECE-2: measure, or only write the page.

    python docs/tables/ece_floor.py --measure

One event and a calibrated prediction; only the distribution of the truths around it differs.
Without `--measure` the table is written from the committed result.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
import pages
from pages import DOCS

from secondguess._arrays import FloatArray
from secondguess.theory.floors import DirichletTruths, simulate_floor
from secondguess.theory.records import Prediction

PAGE = "ece-floor.md"
RESULT = DOCS / "results" / "ece-floor.json"
COMMAND = "python docs/tables/ece_floor.py --measure"
NUM_ROWS = 2_000
NUM_SIMULATIONS = 400
NUM_ANNOTATIONS = (2, 10, 50, 1_000)

Draw = Callable[[np.random.Generator], FloatArray]


def laws(truths: DirichletTruths) -> dict[str, Draw]:
    """Distributions with the same means and variances."""
    mean, deviation = truths.mean[:, 1], np.sqrt(truths.variance[:, 1])

    def two_point(rng: np.random.Generator) -> FloatArray:
        present = mean + rng.choice([-1, 1], size=len(mean)) * deviation
        return np.stack([1 - present, present], axis=1)

    def exact_or_one_hot(rng: np.random.Generator) -> FloatArray:
        certain = rng.random(len(mean)) < truths.ratio
        return np.where(certain[:, None], rng.multinomial(1, truths.mean), truths.mean)

    return {
        "Dirichlet": truths.draw,
        "two-point": two_point,
        "exact or one-hot": exact_or_one_hot,
    }


def measure() -> None:
    """Write the result."""
    rng = np.random.default_rng(0)
    probs = rng.uniform(0.3, 0.7, size=NUM_ROWS)
    variance = probs * (1 - probs) * rng.uniform(0.05, 0.3, size=NUM_ROWS)
    prediction = Prediction(probs, variance)
    rows = []
    for num_annotations in NUM_ANNOTATIONS:
        for name, draw in laws(DirichletTruths.around(prediction)).items():
            floor = simulate_floor(
                prediction,
                draw,
                num_annotations,
                truths=name,
                rng=rng,
                num_simulations=NUM_SIMULATIONS,
            )
            rows.append({"num_annotations": num_annotations, **floor._asdict()})
    record = {
        "command": COMMAND,
        "num_rows": NUM_ROWS,
        "num_simulations": NUM_SIMULATIONS,
        "mean_variance": float(variance.mean()),
        "rows": rows,
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n")


def results() -> dict:
    """The committed result."""
    return json.loads(RESULT.read_text())


def floors() -> str:
    """One row per number of annotations and law."""
    record = results()
    dirichlet = {
        row["num_annotations"]: row["mean"]
        for row in record["rows"]
        if row["truths"] == "Dirichlet"
    }
    rows = [
        [
            row["truths"],
            f"{row['num_annotations']:,}",
            f"{row['mean']:.5f} ± {row['standard_deviation']:.5f}",
            f"{row['mean'] / dirichlet[row['num_annotations']]:.2f}",
        ]
        for row in record["rows"]
    ]
    heads = ["truths", "annotations per row", "floor ± spread", "times the Dirichlet floor"]
    told = (
        f"{record['num_rows']:,} rows, {record['num_simulations']} simulated worlds, mean variance "
        f"{record['mean_variance']:.4f}."
    )
    return f"{pages.table(heads, rows, num_left=1)}\n\n{told} Measured by `{record['command']}`."


def rendered() -> str:
    """The page with its table made anew."""
    return pages.filled(PAGE, {"floors": floors})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true")
    if parser.parse_args().measure:
        measure()
    (DOCS / PAGE).write_text(rendered())
