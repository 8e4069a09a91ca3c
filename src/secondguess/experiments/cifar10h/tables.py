"""The tables of section 5.1 and appendix F.2.3 from results, the paper's numbers beside ours.

Everything is read from the `result.json` of finished runs; nothing is computed but means and
standard deviations over seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.experiments.cifar10h import paper
from secondguess.experiments.cifar10h.methods import METHODS

TITLES = {
    "original": "CIFAR-10H",
    "extra-classes": "Extra classes",
    "scrambled": "Scrambled",
    "extra-scrambled": "Extra classes, scrambled",
}
RECALIBRATED = "-recalibrated"
"""Ending of the rows of pair models after second-order recalibration."""

_HEADINGS = ("ECE-2", "E[v]", "E[(p̂-p)²]", "ECE-1", "Acc", "KL")
_EXTRA = ("floor", "ECE-2 / E[(p̂-p)²]", "floor / E[(p̂-p)²]")
_EXTRA_KEYS = ("second_order_ece_floor", "relative_ece", "relative_floor")

Rows = dict[str, dict[str, list[Mapping[str, float]]]]
"""By variant, then by row: the metrics of each seed."""


def read_rows(directories: Sequence[Path]) -> Rows:
    """The rows of several runs of one preset.

    Args:
        directories: one a seed, each with a `result.json`.
    """
    rows: Rows = {}
    for directory in directories:
        result: Mapping[str, Any] = json.loads((directory / "result.json").read_text())
        for part, metrics in result["metrics"].items():
            variant = part.split("/")[0]
            for row, numbers in metrics["rows"].items():
                rows.setdefault(variant, {}).setdefault(row, []).append(numbers)
    return rows


def tables(directories: Sequence[Path]) -> str:
    """A table for each variant, in Markdown: mean over seeds, deviation, and the paper's mean.

    A cell is `ours ± deviation (paper's)`; the lowest ECE-2 of a variant is bold.

    Args:
        directories: one a seed, each with a `result.json`.
    """
    rows = read_rows(directories)
    return "\n\n".join(
        variant_table(variant, rows[variant]) for variant in TITLES if variant in rows
    )


def variant_table(variant: str, rows: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The table of one variant.

    >>> numbers = dict.fromkeys(("second_order_ece", "mean_variance", "grouping_error"), 0.1)
    >>> numbers |= dict.fromkeys(("first_order_ece", "accuracy", "kl", *_EXTRA_KEYS), 0.1)
    >>> print(variant_table("original", {"naive": [numbers]}).splitlines()[-1][:42])
    | Naive NN | **0.100** (0.076) | 0.100 (0.

    Args:
        variant: a key of `TITLES`.
        rows: metrics of each seed, by row.
    """
    best = min(_mean(seeds, "second_order_ece") for seeds in rows.values())
    lines = [
        f"**{TITLES[variant]}** ({max(len(seeds) for seeds in rows.values())} seed(s); the paper's "
        f"numbers in brackets)",
        "",
        _line(["Method", *_HEADINGS, *_EXTRA]),
        _line(["---"] * (1 + len(_HEADINGS) + len(_EXTRA))),
    ]
    for name, seeds in rows.items():
        published = paper.MEANS[variant].get(name, (None,) * len(paper.COLUMNS))
        cells = []
        for column, value in zip(paper.COLUMNS, published, strict=True):
            digits = 2 if column == "accuracy" else 3
            cell = _cell(seeds, column, digits)
            if column == "second_order_ece" and _mean(seeds, column) == best:
                cell = f"**{cell}**"
            cells.append(cell if value is None else f"{cell} ({value:.{digits}f})")
        cells += [_cell(seeds, "second_order_ece_floor", 3)]
        cells += [f"{100 * _mean(seeds, key):.1f} %" for key in _EXTRA_KEYS[1:]]
        lines.append(_line([row_title(name), *cells]))
    return "\n".join(lines)


def row_title(name: str) -> str:
    """The title of a row.

    >>> row_title("cheat-sngp-recalibrated")
    'Cheat SNGP, recalibrated'
    """
    ending = ", recalibrated" if name.endswith(RECALIBRATED) else ""
    return METHODS[method_of(name)].title + ending


def method_of(name: str) -> str:
    """The method of a row.

    >>> method_of("cheat-sngp-recalibrated")
    'cheat-sngp'
    """
    return name.removesuffix(RECALIBRATED)


def _mean(seeds: Sequence[Mapping[str, float]], key: str) -> float:
    return float(np.mean([numbers[key] for numbers in seeds]))


def _cell(seeds: Sequence[Mapping[str, float]], key: str, digits: int) -> str:
    mean = f"{_mean(seeds, key):.{digits}f}"
    if len(seeds) == 1:
        return mean
    return f"{mean} ± {np.std([numbers[key] for numbers in seeds], ddof=1):.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
