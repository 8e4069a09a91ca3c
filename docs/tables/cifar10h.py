"""Put the tables made from docs/results/cifar10h-*.json into docs/cifar10h.md.

    python docs/tables/cifar10h.py

`cifar10h-cpu.json` is the `seed-all/result.json` of `secondguess reproduce cifar10h --preset cpu`;
`cifar10h-cost.json` is written by `docs/tables/cifar10h_cost.py`.
"""

from __future__ import annotations

import json
from functools import partial
from operator import itemgetter
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
    variants = ", ".join(
        f"{tables.TITLES[variant]} {max(len(row['kl']) for row in rows.values())}"
        for variant, rows in run["metrics"].items()
    )
    return (
        f"`secondguess reproduce cifar10h --preset {run['preset']}`, {minutes:.0f} minutes on the "
        f"clock, tuning included, on {machine['processor']}. Seeds: {variants}."
    )


def finding() -> str:
    """ECE-2 of every method in every variant, with its deviation over seeds and its floor."""
    metrics = result("cpu")["metrics"]
    rows = []
    for name in metrics["original"]:
        cells = []
        for found in (metrics[variant][name] for variant in tables.TITLES):
            ece = found["second_order_ece"]
            spread = f" ± {np.std(ece, ddof=1):.3f}" if len(ece) > 1 else ""
            floor = np.mean(found["second_order_ece_floor"])
            cells.append(f"{np.mean(ece):.3f}{spread} ({floor:.3f})")
        rows.append([tables.row_title(name), *cells])
    return pages.table(
        ["ECE-2 (floor under Dirichlet truths)", *tables.TITLES.values()], rows, num_left=1
    )


def deviations() -> str:
    """The largest standard deviation over seeds of any method, by measure."""
    names = dict(
        zip(tables.COLUMNS, ("ECE-2", "E[v]", "E[(p̂-p)²]", "ECE-1", "Acc", "KL"), strict=True)
    )
    metrics = result("cpu")["metrics"]
    rows = []
    for variant in ("original", "extra-scrambled"):
        found = metrics[variant].values()
        largest = (max(np.std(each[name], ddof=1) for each in found) for name in names)
        rows.append([tables.TITLES[variant], *(f"{value:.3f}" for value in largest)])
    return pages.table(["largest deviation", *names.values()], rows, num_left=1)


def naive() -> str:
    """The best pair model minus the naive network, with its noise."""
    rows = [
        [
            tables.TITLES[variant],
            {"accuracy": "accuracy, per cent", "kl": "KL"}[name],
            *(f"{found[key]:.4f}" for key in ("mean", "standard_error", "standard_error_of_seeds")),
        ]
        for variant, differences in result("cpu")["best_pair_model_minus_naive"].items()
        for name, found in differences.items()
    ]
    heads = ["variant", "of", "difference", "standard error", "of the seeds alone"]
    return pages.table(heads, rows, num_left=2)


def claims() -> str:
    """Every claim once, by variant, with what the paper has."""
    runs = []
    for claim in result("cpu")["claims"]:
        variant, _, rest = claim["name"].partition(": ")
        runs.append(
            {
                "variant": variant,
                "claims": [{**claim, "name": f"{rest} [the paper: {claim['paper']}]"}],
            }
        )
    return pages.claims(runs, itemgetter("variant"))


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
    "deviations": deviations,
    "extra": lambda: tables.extra_table(result("cpu")["metrics"]),
    "naive": naive,
    "claims": claims,
    "cost": cost,
}

rendered = partial(pages.filled, PAGE, TABLES)

if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
