"""What section 5.1 claims, checked on a run: pair models know best how far off they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from secondguess.experiments.cifar10h.data import NUM_FINETUNING, NUM_VALIDATION
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.tables import TITLES, method_of
from secondguess.experiments.runner import Claim, PartResult

LARGEST_RELATIVE_ECE = 0.15
_NUM_TEST = 10_000 - NUM_FINETUNING - NUM_VALIDATION


def cifar10h_claims(done: Mapping[str, PartResult]) -> list[Claim]:
    """The claims that the finished parts decide, for each variant.

    Args:
        done: parts named `variant/method`.
    """
    variants: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, part in done.items():
        variants.setdefault(name.split("/")[0], {}).update(part.metrics["rows"])
    return [claim for variant, rows in variants.items() for claim in _of_variant(variant, rows)]


def _of_variant(variant: str, rows: Mapping[str, Mapping[str, Any]]) -> Sequence[Claim]:
    pairs = {name: row for name, row in rows.items() if METHODS[method_of(name)].is_pair_model}
    rivals = {name: row for name, row in rows.items() if name not in pairs}
    if not pairs or not rivals:
        return []
    title = TITLES[variant]
    best = min(pairs.values(), key=lambda row: row["second_order_ece"])
    rival = min(row["second_order_ece"] for row in rivals.values())
    claims = [
        Claim(
            name=f"{title}: the best pair model's ECE-2, relative to the grouping error",
            holds=best["relative_ece"] <= LARGEST_RELATIVE_ECE,
            value=best["relative_ece"],
            bound=LARGEST_RELATIVE_ECE,
            paper="17 % (original), 32 % (extra), 10 % (scrambled), 7 % (both)",
        ),
        Claim(
            name=f"{title}: no rival has a lower ECE-2 than the best pair model",
            holds=best["second_order_ece"] <= rival,
            value=best["second_order_ece"],
            bound=rival,
            paper="true in all four variants",
        ),
    ]
    if "naive" in rivals:
        naive = rivals["naive"]["accuracy"]
        # Two standard errors of the difference of two independent accuracies, in per cent.
        noise = 2 * math.sqrt(2 * naive * (100 - naive) / _NUM_TEST)
        claims.append(
            Claim(
                name=f"{title}: that pair model is as accurate as the naive network",
                holds=best["accuracy"] >= naive - noise,
                value=best["accuracy"],
                bound=naive - noise,
                paper="93.6 and 94.9 against 93.9 (original)",
            )
        )
    return claims
