"""The tables of section 5.1 and appendix F.2.3 in Markdown, the paper's numbers beside ours.

A cell is `ours (the paper's)`; ours is the mean over seeds ± its standard error where there are
several. The lowest ECE-2 of a variant is bold. Rows are those of a summary (`summary.py`); nothing
is computed but means, standard errors and, for table 3, standard deviations over seeds.

Columns: ECE-2, mean variance, grouping error, ECE-1, accuracy in per cent, KL. Everything but the
last two is summed over classes. The paper's numbers are those of its tables 1, 3 and 4; where an
appendix gives more digits, they are taken from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

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

HEADINGS = {
    "second_order_ece": "ECE-2",
    "mean_variance": "E[v]",
    "grouping_error": "E[(p̂-p)²]",
    "first_order_ece": "ECE-1",
    "accuracy": "Acc",
    "kl": "KL",
}

COLUMNS = tuple(HEADINGS)

_Row = tuple[float | None, ...]

PAPER_MEANS: dict[str, dict[str, _Row]] = {
    "original": {
        "naive": (0.076, 0.142, 0.065, 0.017, 93.94, 0.179),
        "ensemble": (0.039, 0.014, 0.053, 0.029, 94.90, 0.152),
        "evidential": (0.377, 0.053, 0.430, 1.038, 88.45, 1.087),
        "sngp": (0.048, 0.005, 0.052, 0.020, 94.89, 0.153),
        "epinet": (0.056, 0.015, 0.071, 0.020, 93.40, 0.189),
        "cheat": (0.018, 0.052, 0.068, 0.029, 93.60, 0.182),
        "cheat-sngp": (0.009, 0.054, 0.052, 0.022, 94.90, 0.149),
    },
    "extra-scrambled": {
        "naive": (0.521, 0.682, 0.161, 0.068, None, 0.706),
        "ensemble": (0.134, 0.014, 0.148, 0.032, None, 0.647),
        "evidential": (0.387, 0.031, 0.418, 0.794, None, 2.356),
        "sngp": (0.112, 0.033, 0.145, 0.057, None, 0.634),
        "epinet": (0.089, 0.087, 0.163, 0.075, None, 0.712),
        "cheat": (0.022, 0.134, 0.154, 0.072, None, 0.672),
        "cheat-sngp": (0.011, 0.153, 0.150, 0.044, None, 0.650),
    },
    "extra-classes": {
        "naive": (0.540, 0.574, 0.034, 0.02, None, 0.18),
        "ensemble": (0.020, 0.007, 0.027, 0.03, None, 0.15),
        "evidential": (0.386, 0.031, 0.417, 1.14, None, 2.34),
        "sngp": (0.017, 0.030, 0.026, 0.03, None, 0.15),
        "epinet": (0.054, 0.083, 0.041, 0.04, None, 0.20),
        "cheat": (0.010, 0.029, 0.037, 0.04, None, 0.19),
        "cheat-sngp": (0.009, 0.032, 0.028, 0.02, None, 0.15),
    },
    "scrambled": {
        "naive": (0.051, 0.354, 0.314, 0.07, None, 0.69),
        "ensemble": (0.261, 0.028, 0.289, 0.04, None, 0.64),
        "evidential": (0.561, 0.068, 0.629, 0.97, None, 1.59),
        "sngp": (0.271, 0.014, 0.285, 0.06, None, 0.63),
        "epinet": (0.271, 0.044, 0.314, 0.08, None, 0.69),
        "cheat": (0.056, 0.252, 0.303, 0.08, None, 0.66),
        "cheat-sngp": (0.029, 0.280, 0.286, 0.05, None, 0.62),
    },
}

PAPER_DEVIATIONS: dict[str, dict[str, _Row]] = {
    "original": {
        "naive": (0.003, 0.001, 0.002, 0.003, 0.17, 0.003),
        "ensemble": (0.000, 0.000, 0.000, 0.002, 0.09, 0.001),
        "evidential": (0.001, 0.000, 0.002, 0.004, 0.23, 0.003),
        "sngp": (0.001, 0.000, 0.001, 0.001, 0.15, 0.001),
        "epinet": (0.002, 0.002, 0.001, 0.002, 0.26, 0.002),
        "cheat": (0.001, 0.000, 0.001, 0.003, 0.18, 0.002),
        "cheat-sngp": (0.002, 0.001, 0.001, 0.002, 0.14, 0.001),
    },
    "extra-scrambled": {
        "naive": (0.002, 0.003, 0.002, 0.004, None, 0.009),
        "ensemble": (0.001, 0.000, 0.001, 0.001, None, 0.003),
        "evidential": (0.000, 0.000, 0.000, 0.009, None, 0.000),
        "sngp": (0.003, 0.003, 0.001, 0.003, None, 0.006),
        "epinet": (0.009, 0.009, 0.003, 0.003, None, 0.010),
        "cheat": (0.001, 0.001, 0.001, 0.005, None, 0.005),
        "cheat-sngp": (0.001, 0.002, 0.001, 0.003, None, 0.006),
    },
}
"""Standard deviations over eight runs; the paper made one run of the other two variants."""


def tables(rows: Rows) -> str:
    """All tables that the rows allow, each under a title."""
    titled = {
        "Main table": main_table(rows),
        **{
            f"Standard deviations: {TITLES[variant]}": deviation_table(rows, variant)
            for variant in PAPER_DEVIATIONS
            if variant in rows
        },
        "Extra variants": extra_table(rows),
        "ECE-2 and its floor under Dirichlet truths": floor_table(rows),
    }
    return "\n\n".join(f"**{title}**\n\n{table}" for title, table in titled.items() if table)


def main_table(rows: Rows) -> str:
    """Table 1: means on the original data, and on that with extra classes and scrambled pixels.

    >>> row = {name: [0.1, 0.2] for name in COLUMNS}
    >>> print(main_table({"original": {"naive": row}}).splitlines()[-1][:56])
    | Naive NN | **0.150 ± 0.050** (0.076) | 0.150 ± 0.050 (
    """
    return _side_by_side(rows, [variant for variant in PAPER_DEVIATIONS if variant in rows])


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
        for index, column in enumerate(COLUMNS):
            digits = 2 if column == "accuracy" else 3
            cell = _mean(metrics, column, digits)
            if len(metrics[column]) > 1:
                cell += f" ± {np.std(metrics[column], ddof=1):.{digits}f}"
            if column == "second_order_ece" and name == best:
                cell = f"**{cell}**"
            mean, deviation = (
                table[variant].get(name, (None,) * 6)[index]
                for table in (PAPER_MEANS, PAPER_DEVIATIONS)
            )
            if mean is not None and deviation is not None:
                cell += f" ({mean:.{digits}f} ± {deviation:.{digits}f})"
            cells.append(cell)
        lines.append([row_title(name), *cells])
    return _table(["Method", *HEADINGS.values()], lines)


def floor_table(rows: Rows) -> str:
    """ECE-2 beside its floor under Dirichlet truths; both also as a share of the grouping error."""
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


def mean_and_error(values: Sequence[float], digits: int) -> str:
    """A mean over seeds, ± its standard error where there are several.

    >>> mean_and_error([0.1, 0.2], 3), mean_and_error([0.1], 3)
    ('0.150 ± 0.050', '0.100')
    """
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}"


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
        for column in COLUMNS
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
            cell = mean_and_error(metrics[column], digits)
            if column == "second_order_ece" and name == best[variant]:
                cell = f"**{cell}**"
            published = PAPER_MEANS[variant].get(name, (None,) * 6)[COLUMNS.index(column)]
            cells.append(cell if published is None else f"{cell} ({published:.{digits}f})")
        lines.append([row_title(name), *cells])
    headings = [f"{TITLES[variant]}: {HEADINGS[column]}" for variant, column in columns]
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
