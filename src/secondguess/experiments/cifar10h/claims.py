"""What section 5.1 claims, checked over the seeds of a run: pair models know how far off they are.

The best pair model of a variant is the row with the lowest mean ECE-2 among pair models, plain or
recalibrated. All claims of the variant are about that row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.presets import REPEATED
from secondguess.experiments.cifar10h.tables import TITLES, Metrics, Rows, method_of, row_title
from secondguess.experiments.runner import Claim

LARGEST_RELATIVE_ECE = 0.15


def cifar10h_claims(rows: Rows) -> list[Claim]:
    """The claims that the rows decide, variant by variant.

    Args:
        rows: of a summary; a variant without a pair model or without a rival decides nothing.
    """
    return [
        claim
        for variant in TITLES
        if variant in rows
        for claim in _of_variant(variant, rows[variant])
    ]


def paired_difference(ours: Metrics, theirs: Metrics, key: str) -> tuple[float, float]:
    """The mean over seeds of ours minus theirs, and its standard error.

    >>> paired_difference({"kl": [3.0, 4.0, 5.0]}, {"kl": [1.0, 2.0, 3.0]}, "kl")
    (2.0, 0.0)

    Args:
        ours: metrics of a row.
        theirs: those of another, for the same seeds.
        key: which metric.
    """
    difference = np.subtract(ours[key], theirs[key])
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return float(difference.mean()), float(error)


def _of_variant(variant: str, rows: Mapping[str, Metrics]) -> list[Claim]:
    pairs = {name: row for name, row in rows.items() if METHODS[method_of(name)].is_pair_model}
    rivals = {name: row for name, row in rows.items() if name not in pairs}
    if not pairs or not rivals:
        return []
    name, best = min(pairs.items(), key=lambda item: np.mean(item[1]["second_order_ece"]))
    title = f"{TITLES[variant]}: {row_title(name)}, the best pair model"
    relative = float(np.mean(best["relative_ece"]))
    claims = [
        Claim(
            name=f"{title}, has an ECE-2 of at most 15 % of the grouping error",
            holds=relative <= LARGEST_RELATIVE_ECE,
            value=relative,
            bound=LARGEST_RELATIVE_ECE,
            paper="17 % (original), 32 % (extra), 10 % (scrambled), 7 % (both)",
        ),
        _lowest(variant, title, best, rivals),
    ]
    if "naive" in rivals and 1 < len(best["kl"]) == len(rivals["naive"]["kl"]):
        claims += _as_good_as_naive(title, best, rivals["naive"])
    return claims


def _lowest(variant: str, title: str, best: Metrics, rivals: Mapping[str, Metrics]) -> Claim:
    """With several seeds the lowest mean; with one, within what resampling the images explains."""
    ece = float(np.mean(best["second_order_ece"]))
    rival = min(float(np.mean(row["second_order_ece"])) for row in rivals.values())
    if variant in REPEATED:
        slack, words = 0.0, "has the lowest ECE-2 of all methods"
    else:
        slack = 2 * float(np.mean(best["second_order_ece_standard_error"]))
        words = "is within two standard errors of the lowest ECE-2 of all methods"
    return Claim(
        name=f"{title}, {words}",
        holds=ece <= rival + slack,
        value=ece,
        bound=rival + slack,
        paper="the lowest in all four variants",
    )


def _as_good_as_naive(title: str, best: Metrics, naive: Metrics) -> list[Claim]:
    """Not worse than the naive network by more than two standard errors over the seeds."""
    accuracy, accuracy_error = paired_difference(best, naive, "accuracy")
    kl, kl_error = paired_difference(best, naive, "kl")
    return [
        Claim(
            name=f"{title}, is as accurate as the naive network (difference in per cent)",
            holds=accuracy >= -2 * accuracy_error,
            value=accuracy,
            bound=-2 * accuracy_error,
            paper="93.6 and 94.9 against 93.9 (original)",
        ),
        Claim(
            name=f"{title}, has a KL divergence as low as the naive network's (difference)",
            holds=kl <= 2 * kl_error,
            value=kl,
            bound=2 * kl_error,
            paper="0.18 and 0.15 against 0.18 (original)",
        ),
    ]
