"""Put the tables made from committed runs in docs/results into docs/regression.md.

    python docs/tables/regression.py

Each `regression-*.json` there is the `result.json` of a run of `secondguess reproduce regression`.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Any

import pages
from pages import DOCS, table

PAGE = "regression.md"
results = partial(pages.results, "regression")
NAMES = {
    "cheat_corrected": "cheat-corrected network",
    "cheat_corrected_early_stopping": "the same, stopped early",
    "ensemble": "ensemble",
    "naive": "naive, p(1 - p)",
    "evidential": "evidential network",
    "evidential_squared_error": "the same, squared-error form",
    "gaussian_process": "Gaussian process",
}


def title(run: dict[str, Any]) -> str:
    """Which run a row speaks of."""
    return f"{run['config']['function']}, {run['preset']}, seed {run['seed']}"


def method_rows(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The metrics of each method, the naive network among them."""
    metrics = {name: found for name, found in run["metrics"].items() if name in NAMES}
    if "ensemble" in metrics:
        metrics["naive"] = metrics["ensemble"]["naive"]
    return {name: metrics[name] for name in NAMES if name in metrics}


def methods() -> str:
    """Calibration and error of every method in every run."""
    rows = []
    for run in results():
        for name, found in method_rows(run).items():
            rows.append(
                [
                    title(run),
                    NAMES[name],
                    *(
                        f"{found[key]:.4f}"
                        for key in (
                            "first_order_ece",
                            "second_order_ece",
                            "first_order_ece_20_bins",
                            "second_order_ece_20_bins",
                            "mean_variance",
                            "grouping_error",
                        )
                    ),
                    seconds_of(run, name),
                ]
            )
    heads = ["run", "method", "ECE-1", "ECE-2", "ECE-1, 20 bins", "ECE-2, 20 bins"]
    return table([*heads, "mean variance", "grouping error", "seconds"], rows)


def seconds_of(run: dict[str, Any], method: str) -> str:
    """How long a method took; the naive network is a member of the ensemble."""
    return "" if method == "naive" else f"{run['seconds'][method]:.0f}"


def intervals() -> str:
    """Variance inflation and coverage of the intervals."""
    rows = []
    for run in results():
        found = run["metrics"].get("intervals")
        if found is None:
            continue
        for root, inflation in found["inflation"].items():
            coverage = found["coverage"][root]
            rows.append(
                [
                    title(run),
                    f"{root}²",
                    f"{found['calibration_size']:,}",
                    f"{inflation:.4g}",
                    f"{found['limit'][root]:.4g}",
                    *(f"{covered:.4f}" for covered in coverage.values()),
                ]
            )
    rates = ("0.05", "0.1", "0.2", "0.5")
    heads = ["run", "min_variance", "pairs", "inflation", "E[D]"]
    return table([*heads, *(f"covers at {rate}" for rate in rates)], rows)


def sweeps() -> str:
    """The evidential weight and the length scale of the Gaussian process, where they were swept."""
    kinds = {
        "final_weight": "evidential, final λ",
        "length_scale": "Gaussian process, length scale",
    }
    rows = []
    for run in results():
        for setting, kind in kinds.items():
            swept = [
                each
                for each in run["metrics"].values()
                if setting in each and each.get("form") != "squared_error"
            ]
            for each in sorted(swept, key=itemgetter(setting)) if len(swept) > 1 else ():
                rows.append(
                    [
                        title(run),
                        f"{kind} {each[setting]:g}",
                        *(
                            f"{each[key]:.4f}"
                            for key in ("second_order_ece", "mean_variance", "grouping_error")
                        ),
                        f"{each['evidence_bound']:,.0f}" if "evidence_bound" in each else "",
                    ]
                )
    heads = ["run", "method", "ECE-2", "mean variance", "grouping error", "evidence bound, nats"]
    return table(heads, rows)


def training_set() -> str:
    """What the pairs that a network was trained on say of its squared error."""
    rows = []
    for run in results():
        found = run["metrics"].get("cheat_corrected", {}).get("training_set")
        if found is None:
            continue
        product, error = found["mean_product"], found["mean_product_standard_error"]
        rows.append(
            [
                title(run),
                f"{found['mean_variance']:.4f}",
                f"{product:.4f} ± {error:.4f}",
                f"{found['grouping_error']:.4f}",
            ]
        )
    heads = ["run", "mean variance", "mean of (y1 - p)(y2 - p) ± standard error"]
    return table([*heads, "squared error"], rows)


TABLES = {
    "methods": methods,
    "sweeps": sweeps,
    "intervals": intervals,
    "claims": lambda: pages.claims(results(), title),
    "training-set": training_set,
}


rendered = partial(pages.filled, PAGE, TABLES)

if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
