"""The tables of section 5.1 and appendix F.2.3 in Markdown, the paper's numbers beside ours.

A cell is `ours (the paper's)`; the lowest ECE-2 of a variant is bold. Rows are those of a summary
(`summary.py`); nothing is computed but means and standard deviations over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

Metrics = Mapping[str, Sequence[float]]
"""The value of each metric for each seed."""

Rows = Mapping[str, Mapping[str, Metrics]]
"""By variant, then by row."""

_HEADINGS = {
    "second_order_ece": "ECE-2",
    "mean_variance": "E[v]",
    "grouping_error": "E[(p̂-p)²]",
    "first_order_ece": "ECE-1",
    "accuracy": "Acc",
    "kl": "KL",
}


def tables(rows: Rows) -> str:
    """All tables that the rows allow, each under a title."""
    titled = {
        "Main table": main_table(rows),
        **{
            f"Standard deviations: {TITLES[variant]}": deviation_table(rows, variant)
            for variant in paper.DEVIATIONS
            if variant in rows
        },
        "Extra variants": extra_table(rows),
        "ECE-2 and its floor": floor_table(rows),
    }
    return "\n\n".join(f"**{title}**\n\n{table}" for title, table in titled.items() if table)


def main_table(rows: Rows) -> str:
    """Table 1: means on the original data, and on that with extra classes and scrambled pixels.

    >>> row = {name: [0.1, 0.2] for name in paper.COLUMNS}
    >>> print(main_table({"original": {"naive": row}}).splitlines()[-1][:54])
    | Naive NN | **0.150** (0.076) | 0.150 (0.142) | 0.150
    """
    return _side_by_side(rows, [variant for variant in paper.DEVIATIONS if variant in rows])


def extra_table(rows: Rows) -> str:
    """Table 4: the two variants with one of the difficulties each."""
    variants = [variant for variant in ("extra-classes", "scrambled") if variant in rows]
    return _side_by_side(rows, variants)


def deviation_table(rows: Rows, variant: str) -> str:
    """Table 3: means with standard deviations over seeds, ours and the paper's."""
    best = _lowest(rows[variant])
    lines = []
    for name, metrics in rows[variant].items():
        cells = []
        for index, column in enumerate(paper.COLUMNS):
            digits = 2 if column == "accuracy" else 3
            cell = _mean(metrics, column, digits)
            if len(metrics[column]) > 1:
                cell += f" ± {np.std(metrics[column], ddof=1):.{digits}f}"
            if column == "second_order_ece" and name == best:
                cell = f"**{cell}**"
            mean, deviation = (
                table[variant].get(name, (None,) * 6)[index]
                for table in (paper.MEANS, paper.DEVIATIONS)
            )
            if mean is not None and deviation is not None:
                cell += f" ({mean:.{digits}f} ± {deviation:.{digits}f})"
            cells.append(cell)
        lines.append([row_title(name), *cells])
    return _table(["Method", *_HEADINGS.values()], lines)


def floor_table(rows: Rows) -> str:
    """ECE-2 beside its floor, and both in per cent of the grouping error."""
    lines = []
    for name in _names(rows):
        cells = []
        for variant in _ordered(rows):
            metrics = rows[variant].get(name)
            if metrics is None:
                cells += ["", ""]
                continue
            ece = _mean(metrics, "second_order_ece", 3)
            floor = _mean(metrics, "second_order_ece_floor", 3)
            relative, relative_floor = (
                f"{100 * np.mean(metrics[key]):.1f} %" for key in ("relative_ece", "relative_floor")
            )
            cells += [f"{ece} (floor {floor})", f"{relative} (floor {relative_floor})"]
        lines.append([row_title(name), *cells])
    headings = [
        f"{TITLES[variant]}: {what}"
        for variant in _ordered(rows)
        for what in ("ECE-2", "of the grouping error")
    ]
    return _table(["Method", *headings], lines)


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


def _side_by_side(rows: Rows, variants: Sequence[str]) -> str:
    if not variants:
        return ""
    chosen = {variant: rows[variant] for variant in variants}
    # The paper prints accuracies for the original data only.
    columns = [
        (variant, column)
        for variant in variants
        for column in paper.COLUMNS
        if column != "accuracy" or variant == "original"
    ]
    best = {variant: _lowest(chosen[variant]) for variant in variants}
    lines = []
    for name in _names(chosen):
        cells = []
        for variant, column in columns:
            metrics = chosen[variant].get(name)
            if metrics is None:
                cells.append("")
                continue
            digits = 1 if column == "accuracy" else 3
            cell = _mean(metrics, column, digits)
            if column == "second_order_ece" and name == best[variant]:
                cell = f"**{cell}**"
            published = paper.MEANS[variant].get(name, (None,) * 6)[paper.COLUMNS.index(column)]
            cells.append(cell if published is None else f"{cell} ({published:.{digits}f})")
        lines.append([row_title(name), *cells])
    headings = [f"{TITLES[variant]}: {_HEADINGS[column]}" for variant, column in columns]
    return _table(["Method", *headings], lines)


def _ordered(rows: Rows) -> list[str]:
    return [variant for variant in TITLES if variant in rows]


def _names(rows: Rows) -> list[str]:
    """Rows of all variants, each once, in the order in which they come."""
    return list(dict.fromkeys(name for variant in _ordered(rows) for name in rows[variant]))


def _lowest(rows: Mapping[str, Metrics]) -> str:
    return min(rows, key=lambda name: np.mean(rows[name]["second_order_ece"]))


def _mean(metrics: Metrics, key: str, digits: int) -> str:
    return f"{np.mean(metrics[key]):.{digits}f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rule, *rows])
