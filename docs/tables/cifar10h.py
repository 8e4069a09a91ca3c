"""Put the tables made from docs/results/cifar10h-*.json into docs/cifar10h.md.

    python docs/tables/cifar10h.py

`cifar10h-cpu.json` is the `seed-all/result.json` of `secondguess reproduce cifar10h --preset cpu`;
`cifar10h-cost.json` is written by `docs/tables/cifar10h_cost.py`.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pages
from pages import DOCS

from secondguess.experiments.cifar10h import tables

PAGE = "cifar10h.md"
results = partial(pages.results, "cifar10h")


def result(name: str) -> dict[str, Any]:
    """A committed measurement."""
    return json.loads((DOCS / "results" / f"cifar10h-{name}.json").read_text())


def setting() -> str:
    """How the run was made, and what it took."""
    run = result("cpu")
    minutes = sum(run["seconds"].values()) / 60
    machine = run["machine"]
    return (
        f"`secondguess reproduce cifar10h --preset {run['preset']}`, {minutes:.0f} minutes on the "
        f"clock, tuning included, on {machine['processor']}."
    )


def finding() -> str:
    """ECE-2 of every method in every variant, with its standard error over seeds and its floor."""
    run = result("cpu")
    metrics = run["metrics"]
    seeds = {name: max(len(row["kl"]) for row in rows.values()) for name, rows in metrics.items()}
    rows = []
    for name in metrics["original"]:
        cells = []
        for found in (metrics[variant][name] for variant in tables.TITLES):
            ece = tables.mean_and_error(found["second_order_ece"], 3)
            cells.append(f"{ece} ({np.mean(found['second_order_ece_floor']):.3f})")
        features = f"{run['preset']}, {run['config']['backbone']}"
        rows.append([tables.row_title(name), features, *cells])
    heads = [
        f"{title}, {seeds[variant]} seed{'s' if seeds[variant] > 1 else ''}"
        for variant, title in tables.TITLES.items()
    ]
    return pages.table(["method", "preset, features", *heads], rows)


def naive() -> str:
    """The judged pair models minus the naive network, with the noise of the difference."""
    rows = [
        [
            tables.row_title(row),
            tables.TITLES[variant],
            {"accuracy": "accuracy, per cent", "kl": "KL"}[name],
            *(
                "" if found[key] is None else f"{found[key]:+.4f}".replace("+", signed)
                for key, signed in (
                    ("mean", "+"),
                    ("standard_error", ""),
                    ("standard_error_of_seeds", ""),
                )
            ),
        ]
        for variant, by_row in result("cpu")["minus_naive"].items()
        for row, differences in by_row.items()
        for name, found in differences.items()
    ]
    heads = ["method", "variant", "of", "difference", "standard error", "of the seeds alone"]
    return pages.table(heads, rows, num_left=3)


def claims() -> str:
    """Every claim once, by variant, with what the paper has there."""
    found: dict[str, dict[str, str]] = {}
    for claim in result("cpu")["claims"]:
        variant, _, name = claim["name"].partition(": ")
        verdict = "yes" if claim["holds"] else "**no**"
        cell = f"{verdict}: {claim['value']:.3g} ({claim['bound']:.3g}) [{claim['paper']}]"
        found.setdefault(name, {})[variant] = cell
    rows = [
        [name, *(cells.get(title, "") for title in tables.TITLES.values())]
        for name, cells in sorted(found.items(), key=lambda item: "SNGP has" in item[0])
    ]
    return pages.table(["claim", *tables.TITLES.values()], rows, num_left=1)


def cost() -> str:
    """The projection for a GPU."""
    found = result("cost")
    rows = [
        [
            row["method"],
            f"{row['parameters']:,}",
            f"{row['gigaflops_per_image']:.1f}",
            f"{row['gigaflops_per_step'] / 1000:.1f}",
            f"{row['hours']:.1f}",
            f"{row['hours_with_sweeps']:.0f}",
        ]
        for row in found["rows"]
    ]
    heads = ["method", "parameters of a network", "10⁹ operations per image"]
    heads += [f"10¹² per step of {found['batch_size']}", "hours", "hours with the sweeps"]
    return (
        f"{pages.table(heads, rows, num_left=1)}\n\n"
        f"Assumed: {found['accelerator']}, {found['peak_teraflops']:.0f} · 10¹² operations per "
        f"second at its peak, of which training reaches {found['utilisation']:.0%}. Counted by "
        f"`{found['command']}`."
    )


TABLES = {
    "setting": setting,
    "finding": finding,
    "main": lambda: tables.main_table(result("cpu")["metrics"]),
    "extra": lambda: tables.extra_table(result("cpu")["metrics"]),
    "naive": naive,
    "claims": claims,
    "cost": cost,
}

rendered = partial(pages.filled, PAGE, TABLES)

if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
