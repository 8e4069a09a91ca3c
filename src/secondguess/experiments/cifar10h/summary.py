"""All seeds of a run together: the rows of the tables, and what section 5.1 claims of them.

The summary lies beside the seeds, as `seed-all/result.json`, in the same layout.

The claims need several seeds: pair models know how far off they are. The best pair model is chosen
as hyper-parameters are, by its divergence on the validation images, and recalibrated. It is one
method for all variants, and nothing of the test images has a part in the choice. (Pair models reach
the floor of ECE-2 on the test images, where it cannot rank them.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.experiments.cifar10h.data import AnnotatedInputs
from secondguess.experiments.cifar10h.evaluation import FromNaive, compare_with_naive
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.page import cifar10h_summary_section, draw_calibration_errors
from secondguess.experiments.cifar10h.tables import (
    RECALIBRATED,
    TITLES,
    Metrics,
    Rows,
    method_of,
    row_title,
)
from secondguess.experiments.cifar10h.task import REPEATED
from secondguess.experiments.runner import Claim
from secondguess.report.files import read_result, write_page, write_result

LARGEST_RELATIVE_ECE = 0.15
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
    from_naive = {}
    for variant, row in best.items():
        needed = {f"{variant}/{method_of(row)}", f"{variant}/naive"}
        with_both = [result["seed"] for result in results if needed <= result["metrics"].keys()]
        if len(with_both) > 1:
            from_naive[variant] = compare_with_naive(directory, variant, row, with_both, test)
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
            "best_pair_model_minus_naive": {
                variant: {name: value._asdict() for name, value in found._asdict().items()}
                for variant, found in from_naive.items()
            },
            "claims": [asdict(claim) for claim in cifar10h_claims(rows, best, from_naive)],
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


def cifar10h_claims(
    rows: Rows, best: Mapping[str, str], from_naive: Mapping[str, FromNaive]
) -> list[Claim]:
    """The claims that the rows decide, variant by variant.

    Args:
        rows: of a summary; a variant without a rival decides nothing.
        best: by variant, its best pair model, where it has one.
        from_naive: by variant, how that differs from the naive network. Accuracy and divergence are
            judged for these variants alone.
    """
    return [
        claim
        for variant in TITLES
        if variant in best
        for claim in _of_variant(variant, rows[variant], best[variant], from_naive.get(variant))
    ]


def best_pair_model(rows: Iterable[str], recipes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The row of a variant that its claims are about, or None if it has no pair model.

    >>> recipes = {"cheat": {"validation_kl": 0.43}, "cheat-mixture": {"validation_kl": 0.42}}
    >>> best_pair_model(["naive", "cheat", "cheat-mixture", "cheat-mixture-recalibrated"], recipes)
    'cheat-mixture-recalibrated'

    Args:
        rows: names of the rows.
        recipes: by method. Published ones come without a divergence; then it is the first row.
    """
    pairs = [name for name in rows if METHODS[method_of(name)].is_pair_model]
    methods = dict.fromkeys(map(method_of, pairs))
    best = min(methods, key=lambda name: recipes[name]["validation_kl"] or math.inf, default=None)
    if best is None:
        return None
    return best + RECALIBRATED if best + RECALIBRATED in pairs else best


def _of_variant(
    variant: str, rows: Mapping[str, Metrics], name: str, from_naive: FromNaive | None
) -> list[Claim]:
    rivals = {
        rival: row for rival, row in rows.items() if not METHODS[method_of(rival)].is_pair_model
    }
    if not rivals:
        return []
    best = rows[name]
    title = f"{TITLES[variant]}: {row_title(name)}, the best pair model"
    relative = float(np.mean(best["relative_ece"]))
    claims = [
        Claim.at_most(
            f"{title}, has an ECE-2 of at most 15 % of the grouping error",
            relative,
            LARGEST_RELATIVE_ECE,
            "17 % (original), 32 % (extra), 10 % (scrambled), 7 % (both)",
        ),
        _lowest(variant, title, best, rivals),
    ]
    if from_naive is not None:
        claims += _as_good_as_naive(title, from_naive)
    return claims


def _lowest(variant: str, title: str, best: Metrics, rivals: Mapping[str, Metrics]) -> Claim:
    """With several seeds the lowest mean; with one, within what resampling the images explains."""
    ece = float(np.mean(best["second_order_ece"]))
    rival = min(float(np.mean(row["second_order_ece"])) for row in rivals.values())
    if variant in REPEATED:
        slack, words = 0.0, "has a lower ECE-2 than all rivals"
    else:
        slack = 2 * float(np.mean(best["second_order_ece_standard_error"]))
        words = "is within two standard errors of the lowest ECE-2 of the rivals"
    return Claim.at_most(
        f"{title}, {words}",
        ece,
        rival + slack,
        "the lowest in all four variants",
    )


def _as_good_as_naive(title: str, from_naive: FromNaive) -> list[Claim]:
    """Not worse than the naive network by more than two standard errors."""
    accuracy, kl = from_naive
    return [
        Claim.at_least(
            f"{title}, is as accurate as the naive network (difference in per cent)",
            accuracy.mean,
            -2 * accuracy.standard_error,
            "93.6 and 94.9 against 93.9 (original)",
        ),
        Claim.at_most(
            f"{title}, has a KL divergence as low as the naive network's (difference)",
            kl.mean,
            2 * kl.standard_error,
            "0.18 and 0.15 against 0.18 (original)",
        ),
    ]
