"""Put the tables made from docs/results/cifar10h-*.json into docs/cifar10h.md.

    python docs/tables/cifar10h.py

`cifar10h-PRESET.json` is the `seed-all/result.json` of a run of `secondguess reproduce cifar10h`;
`cifar10h-cost.json` is written by `docs/tables/cifar10h_cost.py`. A table stands between
`<!-- table: PRESET NAME -->` and `<!-- end of table -->`; everything between the two is written by
this script. A test checks that the page is what it writes.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pages
from pages import DOCS

from secondguess.experiments.cifar10h import tables

PAGE = "cifar10h.md"
NOT_RUN = "Not run yet."


def results() -> list[dict[str, Any]]:
    """All committed measurements."""
    return pages.results("cifar10h")


def result(name: str) -> dict[str, Any] | None:
    """A committed measurement, or None where there is none."""
    path = DOCS / "results" / f"cifar10h-{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def setting(run: dict[str, Any]) -> str:
    """How a run was made, and what it took."""
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


def deviations(rows: tables.Rows) -> str:
    """Both tables of standard deviations."""
    return "\n\n".join(
        f"{tables.TITLES[variant]}:\n\n{tables.deviation_table(rows, variant)}"
        for variant in ("original", "extra-scrambled")
        if variant in rows
    )


def naive(run: dict[str, Any]) -> str:
    """The best pair model minus the naive network, with its noise."""
    rows = [
        [
            tables.TITLES[variant],
            {"accuracy": "accuracy, per cent", "kl": "KL"}[name],
            *(f"{found[key]:.4f}" for key in ("mean", "standard_error", "standard_error_of_seeds")),
        ]
        for variant, differences in run["best_pair_model_minus_naive"].items()
        for name, found in differences.items()
    ]
    heads = ["variant", "of", "difference", "standard error", "of the seeds alone"]
    return pages.table(heads, rows, num_left=2)


def claims(run: dict[str, Any]) -> str:
    """Every claim of a run."""
    rows = [
        [
            claim["name"],
            "yes" if claim["holds"] else "**no**",
            f"{claim['value']:.4g}",
            f"{claim['bound']:.4g}",
            claim["paper"],
        ]
        for claim in run["claims"]
    ]
    return pages.table(["claim", "holds", "value", "bound", "the paper"], rows, num_left=1)


def cost(found: dict[str, Any]) -> str:
    """The projection for a GPU."""
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


RUN_TABLES = {
    "setting": setting,
    "main": lambda run: tables.main_table(run["metrics"]),
    "deviations": lambda run: deviations(run["metrics"]),
    "extra": lambda run: tables.extra_table(run["metrics"]),
    "floors": lambda run: tables.floor_table(run["metrics"]),
    "naive": naive,
    "claims": claims,
    "cost": cost,
}


def rendered() -> str:
    """The page with its tables made anew."""

    def fill(match: re.Match[str]) -> str:
        found = result(match[2])
        body = RUN_TABLES[match[3]](found) if found else NOT_RUN
        return f"{match[1]}\n{body or NOT_RUN}\n{match[4]}"

    pattern = r"(<!-- table: ([a-z-]+) ([a-z]+) -->).*?(<!-- end of table -->)"
    return re.sub(pattern, fill, (DOCS / PAGE).read_text(), flags=re.DOTALL)


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
