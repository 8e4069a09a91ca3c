"""All seeds of a run together: the rows of the tables, and the claims that they decide.

The summary lies beside the seeds, as `seed-all/result.json`, in the same layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from secondguess.experiments.cifar10h.claims import best_pair_model, cifar10h_claims, judged_rows
from secondguess.experiments.cifar10h.data import AnnotatedInputs
from secondguess.experiments.cifar10h.evaluation import FromNaive, compare_with_naive
from secondguess.experiments.cifar10h.page import cifar10h_summary_section, draw_calibration_errors
from secondguess.experiments.cifar10h.tables import Rows, method_of
from secondguess.experiments.needs import marked
from secondguess.report.files import read_result, write_page, write_result

_DIGITS = 6


def summarise(directory: Path, test: AnnotatedInputs) -> Path:
    """Put all finished seeds of a preset together; returns the directory of the summary.

    Args:
        directory: OUT/cifar10h/<preset>, with the directories of its seeds.
        test: the images that the methods were evaluated on.
    """
    paths = sorted(directory.glob("seed-*/result.json"))
    results = [read_result(path.parent) for path in paths if path.parent.name != "seed-all"]
    if not results:
        raise ValueError(f"{directory} holds no finished seed (seed-<n>/result.json).")
    results.sort(key=lambda result: result["seed"])
    rows = collected_rows(results)
    recipes = {
        name.split("/")[1]: metrics["recipe"]
        for result in results
        for name, metrics in result["metrics"].items()
    }
    best = {variant: row for variant in rows if (row := best_pair_model(rows[variant], recipes))}
    from_naive: dict[str, dict[str, FromNaive]] = {}
    for variant, best_row in best.items():
        for row in judged_rows(rows[variant], best_row):
            needed = {f"{variant}/{method_of(row)}", f"{variant}/naive"}
            with_both = [result["seed"] for result in results if needed <= result["metrics"].keys()]
            if len(with_both) > 1:
                found = compare_with_naive(directory, variant, row, with_both, test)
                from_naive.setdefault(variant, {})[row] = found
    claims = cifar10h_claims(rows, best, from_naive)
    parts = [name for result in results for name in result["seconds"]]
    summary = directory / "seed-all"
    (summary / "figures").mkdir(parents=True, exist_ok=True)
    draw_calibration_errors(rows, summary / "figures" / "calibration-errors.png")
    write_page(summary, cifar10h_summary_section(rows))
    write_result(
        summary,
        {
            "experiment": "cifar10h",
            "preset": directory.name,
            "seed": "all",
            "seeds": [result["seed"] for result in results],
            **{key: results[0][key] for key in ("config", "versions", "machine")},
            "seconds": {
                name: round(sum(result["seconds"].get(name, 0.0) for result in results), 1)
                for name in dict.fromkeys(parts)
            },
            "recipes": recipes,
            "metrics": rows,
            "learning_curves": learning_curves(results),
            "best_pair_model": best,
            "minus_naive": {
                variant: {
                    row: {name: value._asdict() for name, value in found._asdict().items()}
                    for row, found in rows_found.items()
                }
                for variant, rows_found in from_naive.items()
            },
            "claims": [asdict(claim) for claim in marked(claims, "cifar10h", directory.name)],
        },
    )
    return summary


def collected_rows(results: Sequence[Mapping[str, Any]]) -> Rows:
    """By variant and row, the values of each metric over the seeds.

    >>> part = {"original/naive": {"rows": {"naive": {"kl": 0.5}}}}
    >>> collected_rows([{"metrics": part}, {"metrics": part}])
    {'original': {'naive': {'kl': [0.5, 0.5]}}}

    Args:
        results: of the seeds, each the content of a `result.json`.
    """
    rows: dict[str, dict[str, dict[str, list[float]]]] = {}
    for result in results:
        for part, found in result["metrics"].items():
            variant = rows.setdefault(part.split("/")[0], {})
            for name, numbers in found["rows"].items():
                row = variant.setdefault(name, {})
                for metric, value in numbers.items():
                    row.setdefault(metric, []).append(round(value, _DIGITS))
    return rows


def learning_curves(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """By part, the learning curves of the seeds, where they were watched.

    >>> watched = {"original/naive": {"learning_curve": [{"step": 195, "accuracy": 66.0}]}}
    >>> learning_curves([{"metrics": watched}, {"metrics": {"original/cheat": {}}}])
    {'original/naive': [[{'step': 195, 'accuracy': 66.0}]]}

    Args:
        results: of the seeds.
    """
    curves: dict[str, list[Any]] = {}
    for result in results:
        for part, found in result["metrics"].items():
            if "learning_curve" in found:
                curves.setdefault(part, []).append(found["learning_curve"])
    return curves
