"""Put the tables made from committed runs in docs/results into docs/regression.md.

    python docs/tables/regression.py

Each `regression-*.json` there is the `result.json` of a run of `secondguess reproduce regression`.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Any

import pages
from pages import DOCS, mean_and_error, table

from secondguess.experiments.regression.claims import relative_ece
from secondguess.experiments.regression.run import PRESETS, RECALIBRATION_SIZES

PAGE = "regression.md"
results = partial(pages.results, "regression")
_ERRORS = ("mean_variance", "grouping_error")
EVIDENCE = "gaussian_process_by_evidence"
NAMES = {
    "cheat_corrected": "cheat-corrected network",
    "cheat_corrected_early_stopping": "the same, stopped early",
    "cheat_corrected_signed": "the same, variances of both signs",
    "ensemble": "ensemble of 8 (`quick`: 3)",
    "naive": "naive, p(1 - p)",
    "evidential": "evidential network, final λ 1",
    "evidential_squared_error": "the same, squared-error form",
    "gaussian_process": "Gaussian process, length scale 0.15",
    EVIDENCE: "the same, length scale by its evidence",
    "forest": "random forest, 50 trees",
}


def title(run: dict[str, Any]) -> str:
    """Which run a row speaks of."""
    return f"{run['config']['function']}, {run['preset']}, seed {run['seed']}"


def world(run: dict[str, Any]) -> str:
    """What a run has in common with those of other seeds."""
    return f"{run['config']['function']}, {run['preset']}"


def by_world() -> dict[str, list[dict[str, Any]]]:
    """The committed runs of each function and preset, the published size of the sinusoid first."""
    worlds = {world(run) for run in results()}
    ordered = sorted(worlds, key=lambda name: ("paper" not in name, "sinusoid" not in name))
    return {name: [run for run in results() if world(run) == name] for name in ordered}


def method_rows(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The metrics of each method, the naive network among them."""
    metrics = {name: found for name, found in run["metrics"].items() if name in NAMES}
    if "ensemble" in metrics:
        metrics["naive"] = metrics["ensemble"]["naive"]
        if run["config"]["num_members"] < PRESETS[run["preset"]].num_members:
            del metrics["ensemble"]  # a smaller one than the others
    processes = [of for of in run["metrics"].values() if "evidence_bound" in of]
    if len(processes) > 1:
        metrics[EVIDENCE] = max(processes, key=itemgetter("evidence_bound"))
    return {name: metrics[name] for name in NAMES if name in metrics}


def relative(metrics: dict[str, Any], bins: str = "") -> float:
    """ECE-2 over the grouping error."""
    return relative_ece(metrics, f"second_order_ece{bins}")


def shares(runs: list[dict[str, Any]], method: str, bins: str = "") -> str:
    """The mean over the runs that have a method of its ECE-2 over its grouping error."""
    found = [relative(rows[method], bins) for run in runs if method in (rows := method_rows(run))]
    return mean_and_error(found, "{:.0%}") if found else ""


def averages(runs: list[dict[str, Any]], method: str, key: str) -> str:
    """The mean over the runs that have a method of what they measured for it."""
    found = [rows[method][key] for run in runs if method in (rows := method_rows(run))]
    return mean_and_error(found, "{:.4f}") if found else ""


def finding() -> str:
    """ECE-2 of every method in every world, over its grouping error and by itself."""
    rows = []
    for name, heading in NAMES.items():
        cells = []
        for runs in by_world().values():
            number = sum(name in method_rows(run) for run in runs)
            ece = averages(runs, name, "second_order_ece")
            cells.append(f"{shares(runs, name)}; {ece}; {number}" if number else "")
        rows.append([heading, *cells])
    heads = [f"{name}: ECE-2 over the error; ECE-2; seeds" for name in by_world()]
    return table(["method", *heads], rows, num_left=1)


def methods() -> str:
    """Errors and calibration of every method, at published size."""
    keys = {
        "mean_variance": "mean variance",
        "grouping_error": "grouping error",
        "second_order_ece_20_bins": "ECE-2, 20 bins",
        "first_order_ece": "ECE-1",
        "first_order_ece_20_bins": "ECE-1, 20 bins",
    }
    rows = [
        [
            name,
            NAMES[method],
            *(averages(runs, method, key) for key in keys),
            shares(runs, method, "_20_bins"),
        ]
        for name, runs in by_world().items()
        if name.endswith("paper")
        for method in NAMES
        if any(method in method_rows(run) for run in runs)
    ]
    return table(["run", "method", *keys.values(), "ECE-2 over the error, 20 bins"], rows)


def intervals() -> str:
    """Variance inflation and coverage of the intervals, at published size."""
    rows = []
    for run in results():
        found = run["metrics"].get("intervals")
        if found is None or run["preset"] != "paper":
            continue
        for root, inflation in found["inflation"].items():
            rows.append(
                [
                    title(run),
                    f"{root}²",
                    f"{inflation:.4g}",
                    f"{found['limit'][root]:.4g}",
                    *(f"{covered:.4f}" for covered in found["coverage"][root].values()),
                ]
            )
    rates = ("0.05", "0.1", "0.2", "0.5")
    heads = ["run", "min_variance", "inflation", "E[D]"]
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
                numbers = (each[key] for key in ("second_order_ece", *_ERRORS))
                rows.append(
                    [
                        title(run),
                        f"{kind} {each[setting]:g}",
                        f"{relative(each):.0%}",
                        *(f"{value:.4f}" for value in numbers),
                        f"{each['evidence_bound']:,.0f}" if "evidence_bound" in each else "",
                    ]
                )
    heads = ["run", "method", "ECE-2 over the error", "ECE-2", "mean variance", "grouping error"]
    return table([*heads, "evidence bound, nats"], rows)


def recalibration() -> str:
    """Mean variance over the grouping error, before and after recalibration on fresh pairs."""
    rows = []
    for run in results():
        if run["preset"] != "paper" or "cheat_corrected" not in run["metrics"]:
            continue
        network = run["metrics"]["cheat_corrected"]
        found = run["metrics"].get("recalibration", {})
        signed = run["metrics"].get("cheat_corrected_signed")
        cells = [_ratio(network)]
        for size in map(str, RECALIBRATION_SIZES):
            cells.append(f"{_ratio(found[size])} ({found[size]['map']})" if size in found else "")
        cells.append(_ratio(signed) if signed else "")
        ece = [f"{relative(network):.0%}"]
        ece += [
            f"{relative(found[size]):.0%}" if found else "" for size in list(found)[-1:] or [""]
        ]
        rows.append([title(run), *cells, *ece])
    heads = ["run", "as trained"]
    heads += [f"{size:,} fresh pairs (map)" for size in RECALIBRATION_SIZES]
    heads += ["variances of both signs", "ECE-2 over the error, as trained"]
    return table([*heads, f"after {RECALIBRATION_SIZES[-1]:,} pairs"], rows, num_left=1)


def _ratio(metrics: dict[str, Any]) -> str:
    return f"{metrics['mean_variance'] / metrics['grouping_error']:.2f}"


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


def failure_rates() -> str:
    """Appendix B at several failure rates, beside the package that the paper used."""
    record = pages.kept("appendix-b")
    names = list(record["rows"][0]["bounds"])
    rows = [
        [
            f"{row['min_variance'] ** 0.5:g}²",
            f"{row['size']:,}",
            f"{row['failure_rate']:g}",
            f"{row['draws']:,}",
            f"{row['mean']:.3f}",
            *(
                f"{row['bounds'][name]:.4g} ± {row['standard_errors'][name]:.2g}; "
                f"{row['failures'][name] / row['draws']:.1%}"
                for name in names
            ),
        ]
        for row in record["rows"]
    ]
    heads = ["min_variance", "pairs", "failure rate", "draws", "E[S]"]
    body = table([*heads, *(f"{name}; failed" for name in names)], rows, num_left=1)
    return pages.with_command(body, record)


TABLES = {
    "finding": finding,
    "methods": methods,
    "sweeps": sweeps,
    "recalibration": recalibration,
    "intervals": intervals,
    "failure-rates": failure_rates,
    "claims": lambda: pages.claims([run for runs in by_world().values() for run in runs], world),
    "training-set": training_set,
}


rendered = partial(pages.filled, PAGE, TABLES)

if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
