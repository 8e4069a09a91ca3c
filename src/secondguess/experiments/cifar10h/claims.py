"""What section 5.1 claims, decided on the rows of all seeds, for two pair models by name.

- The paper's own: Cheat NN, trained on two labels per step, as it is.
- Ours: the best pair model, chosen as hyper-parameters are, by its divergence on the validation
  images, and recalibrated. It is one method for all variants, and nothing of the test images has a
  part in the choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from secondguess.experiments.cifar10h.evaluation import FromNaive
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.tables import (
    COLUMNS,
    PAPER_MEANS,
    RECALIBRATED,
    TITLES,
    Metrics,
    Rows,
    method_of,
    row_title,
)
from secondguess.experiments.runner import Claim

LARGEST_RELATIVE_ECE = 0.15
PUBLISHED = "cheat"
"""The row of the paper's own pair model."""


def cifar10h_claims(
    rows: Rows,
    best: Mapping[str, str],
    from_naive: Mapping[str, Mapping[str, FromNaive]],
) -> list[Claim]:
    """The claims that the rows decide, variant by variant.

    Args:
        rows: of a summary; a variant without a rival decides nothing.
        best: by variant, its best pair model, where it has one.
        from_naive: by variant and row, how a pair model differs from the naive network. Accuracy
            and divergence are judged for these alone.
    """
    claims: list[Claim] = []
    for variant in TITLES:
        if variant not in best or not _rivals(rows[variant]):
            continue
        for row in judged_rows(rows[variant], best[variant]):
            found = from_naive.get(variant, {}).get(row)
            claims += _of_row(variant, rows[variant], row, found)
        claims += _order_of_pair_models(variant, rows[variant])
    return claims


def judged_rows(rows: Iterable[str], best: str) -> list[str]:
    """The rows that claims are about: the paper's own pair model where it was run, and the best.

    >>> judged_rows(["naive", "cheat", "cheat-recalibrated"], "cheat-recalibrated")
    ['cheat', 'cheat-recalibrated']
    """
    return list(dict.fromkeys([*({PUBLISHED} & set(rows)), best]))


def best_pair_model(rows: Iterable[str], recipes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The best pair model of a variant, or None if it has none.

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


def _rivals(rows: Mapping[str, Metrics]) -> list[Metrics]:
    return [row for name, row in rows.items() if not METHODS[method_of(name)].is_pair_model]


def _of_row(
    variant: str, rows: Mapping[str, Metrics], name: str, from_naive: FromNaive | None
) -> list[Claim]:
    row = rows[name]
    kind = "as published" if name == PUBLISHED else "the best pair model"
    title = f"{TITLES[variant]}: {row_title(name)}, {kind},"
    # Ours goes beside what the paper has best.
    published = _Published(variant, PUBLISHED if name == PUBLISHED else "cheat-sngp")
    claims = [
        Claim.at_most(
            f"{title} has an ECE-2 of at most 15 % of the grouping error",
            _mean(row, "relative_ece"),
            LARGEST_RELATIVE_ECE,
            published.relative_ece,
        ),
        _lower_than_rivals(title, row, _rivals(rows), published),
        Claim.at_most(
            f"{title} has an ECE-2 no higher than its floor under Dirichlet truths",
            _mean(row, "second_order_ece"),
            _mean(row, "second_order_ece_floor"),
            "no floor given",
        ),
    ]
    if from_naive is not None:
        claims += _as_good_as_naive(title, from_naive, published)
    return claims


def _lower_than_rivals(
    title: str, row: Metrics, rivals: Iterable[Metrics], published: _Published
) -> Claim:
    """With several seeds the lowest mean; with one, by two standard errors over the images."""
    lowest = min(_mean(rival, "second_order_ece") for rival in rivals)
    margin, words = 0.0, "has a lower ECE-2 than all rivals"
    if len(row["second_order_ece"]) == 1:
        margin = 2 * _mean(row, "second_order_ece_standard_error")
        words += ", by two standard errors (one seed)"
    return Claim.at_most(
        f"{title} {words}",
        _mean(row, "second_order_ece"),
        lowest - margin,
        published.against_rivals,
    )


def _as_good_as_naive(title: str, from_naive: FromNaive, published: _Published) -> list[Claim]:
    """Not worse than the naive network by more than two standard errors."""
    accuracy, kl = from_naive
    return [
        Claim.at_least(
            f"{title} is as accurate as the naive network (difference in per cent)",
            accuracy.mean,
            -2 * accuracy.standard_error,
            published.difference("accuracy", "{:+.2f}"),
        ),
        Claim.at_most(
            f"{title} has a KL divergence as low as the naive network's (difference)",
            kl.mean,
            2 * kl.standard_error,
            published.difference("kl", "{:+.3f}"),
        ),
    ]


def _order_of_pair_models(variant: str, rows: Mapping[str, Metrics]) -> list[Claim]:
    """The paper has Cheat SNGP before Cheat NN."""
    if not {"cheat", "cheat-sngp"} <= rows.keys():
        return []
    return [
        Claim.at_most(
            f"{TITLES[variant]}: Cheat SNGP has a lower ECE-2 than Cheat NN",
            _mean(rows["cheat-sngp"], "second_order_ece"),
            _mean(rows["cheat"], "second_order_ece"),
            f"{PAPER_MEANS[variant]['cheat-sngp'][0]:.3f}, {PAPER_MEANS[variant]['cheat'][0]:.3f}",
        )
    ]


class _Published:
    """What the paper prints for a method in a variant, in words."""

    def __init__(self, variant: str, method: str) -> None:
        self._title, self._variant = METHODS[method].title, PAPER_MEANS[variant]
        self._row = dict(zip(COLUMNS, PAPER_MEANS[variant][method], strict=True))
        self._naive = dict(zip(COLUMNS, PAPER_MEANS[variant]["naive"], strict=True))

    @property
    def relative_ece(self) -> str:
        ece, error = self._row["second_order_ece"], self._row["grouping_error"]
        assert ece is not None
        assert error is not None
        return f"{self._title} {ece / error:.0%}"

    @property
    def against_rivals(self) -> str:
        rivals = {
            name: row[0]
            for name, row in self._variant.items()
            if not METHODS[name].is_pair_model and row[0] is not None
        }
        lowest = min(rivals, key=lambda name: rivals[name])
        ours = self._row["second_order_ece"]
        return f"{self._title} {ours:.3f}, {METHODS[lowest].title} {rivals[lowest]:.3f}"

    def difference(self, column: str, form: str) -> str:
        ours, naive = self._row[column], self._naive[column]
        if ours is None or naive is None:
            return "not printed"
        return f"{self._title} {form.format(ours - naive)}"


def _mean(row: Metrics, key: str) -> float:
    return float(np.mean(row[key]))
