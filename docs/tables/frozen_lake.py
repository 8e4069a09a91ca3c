"""Put the tables made from committed runs in docs/results into docs/frozen-lake.md.

python docs/tables/frozen_lake.py
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pages
from pages import DOCS, run_title, table

from secondguess.experiments.frozen_lake.walks import HIDDEN

PAGE = "frozen-lake.md"
results = partial(pages.results, "frozen-lake")
EXACT = "discount 1"
SHARES = {
    "over_lake": "plain samples over the lake",
    "unsafe": "plain samples on the unsafe cell",
    "accepted": "samples accepted",
    "accepted_among_always_safe": "always-safe samples accepted",
    "over_lake_among_accepted": "accepted walks over the lake",
    "unsafe_among_accepted": "accepted walks on the unsafe cell",
}
DISTANCES = {
    "log_confidence_std": "standard deviation of log C, model minus exact",
    "confidence_correlation": "correlation of C with the exact one",
    "confidence_mean_absolute_difference": "mean absolute difference of C",
    "threshold_for_1_percent": "gap up to which 1 % are over the lake",
}


def hidden() -> str:
    """The networks beside the exact predictor, under the hidden view."""
    runs = [run["metrics"]["samples"]["hidden"] for run in results()]
    exact = results()[-1]["metrics"]["exact"][EXACT]["hidden"]
    rows = [[name, *(f"{run[key]:.2%}" for run in [*runs, exact])] for key, name in SHARES.items()]
    rows += [[name, *(f"{run[key]:.3f}" for run in runs), ""] for key, name in DISTANCES.items()]
    return table(["hidden view", *map(run_title, results()), "exact predictor"], rows, num_left=1)


def cells() -> str:
    """How far log C is from the exact one, by the cells of the lake that a walk touches."""
    runs = [by_cells(run) for run in results() if run["preset"] == "cpu"]
    rows = [
        [name, *(form.format(np.mean([run[i][key] for run in runs])) for i in range(len(runs[0])))]
        for key, name, form in (
            ("share", "share of the samples", "{:.1%}"),
            ("exact_confidence", "mean C of the exact predictor", "{:.2f}"),
            ("log_confidence_std", "standard deviation of log C, model minus exact", "{:.4f}"),
        )
    ]
    counts = [f"{each['lake_cells']:.0f}" for each in runs[0]]
    return table(["cells of the lake", *counts[:-1], f"{counts[-1]} or more"], rows, num_left=1)


def by_cells(run: dict[str, Any]) -> list[dict[str, float]]:
    """What a run measured under the hidden view, by the cells that walks touch."""
    return run["metrics"]["samples"]["hidden_by_lake_cells"]


def visible() -> str:
    """The same under the nine visible views, all together."""
    keys = ("over_lake", "unsafe", "accepted", "unsafe_among_accepted")
    rows = []
    for run in results():
        metrics = run["metrics"]
        crossing = [
            sum(answer["over_lake"] for view, answer in top1.items() if int(view) != HIDDEN)
            for top1 in (metrics["samples"]["top1"], metrics["exact"][EXACT]["top1"])
        ]
        shares = (f"{metrics['samples']['visible'][key]:.2%}" for key in keys)
        rows.append([run_title(run), *shares, *map(str, crossing)])
    heads = ["over the lake", "on the unsafe cell", "accepted", "unsafe, of the accepted"]
    crossings = ["top-1 crosses", "the exact one's"]
    return table(["visible views", *heads, *crossings], rows, num_left=1)


def distance() -> str:
    """Nats above the exact predictor at the end of the training."""
    keys = ("hidden_y1", "hidden_y2", "visible_y1", "visible_y2")
    rows = [
        [
            run_title(run),
            f"{run['config']['num_steps']:,} x {run['config']['batch_size']}",
            *(f"{run['metrics']['training']['distance_from_exact'][key]:.4f}" for key in keys),
        ]
        for run in results()
    ]
    heads = ["hidden, y1", "hidden, y2", "visible, y1", "visible, y2"]
    return table(["run", "steps x pairs", *heads], rows, num_left=1)


def claims() -> str:
    """Every claim, by preset."""
    return pages.claims(results(), itemgetter("preset"))


TABLES = {
    "hidden": hidden,
    "cells": cells,
    "visible": visible,
    "distance": distance,
    "claims": claims,
}


rendered = partial(pages.filled, PAGE, TABLES)

if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
