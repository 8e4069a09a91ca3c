"""What the report shows of a run on CIFAR-10H: figures, and the paper's tables beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from secondguess._arrays import FloatArray
from secondguess.displays import ReliabilityDisplay
from secondguess.displays.look import (
    BLUE,
    INK,
    VERMILION,
    house_look,
    new_figure,
    save,
    shared_legend,
)
from secondguess.experiments.cifar10h.data import CLASSES, AnnotatedInputs
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.tables import (
    COLUMNS,
    PAPER_MEANS,
    TITLES,
    Rows,
    method_of,
    row_title,
)
from secondguess.experiments.cifar10h.task import VARIANTS, Variant
from secondguess.experiments.runner import PartResult
from secondguess.report.numbers import percent
from secondguess.report.sections import Figure, Section, Table
from secondguess.theory.metrics import squared_error_estimate
from secondguess.theory.reliability import reliability_bins

_HEADINGS = ("ECE-2", "Mean variance", "Squared error", "ECE-1", "Accuracy", "KL")

_SeedRows = dict[str, Mapping[str, Any]]

_TITLE = "Ambiguous images, CIFAR-10H"
_CLAIM = (
    "Fifty people have labelled each image, and they do not always agree. The paper claims that "
    "networks trained on pairs of labels tell images that people find ambiguous from images that "
    "the network has not learned: their variance matches the squared error (lowest ECE-2) at the "
    "same accuracy, where other methods are too sure or not sure enough (Table 1)."
)
_ONE_SEED, _ALL_SEEDS = "this is one seed", "these are means over all seeds"


def cifar10h_section(parts: Mapping[str, PartResult]) -> Section:
    """Tables and captions for the parts at hand, named `variant/method`."""
    variants: dict[str, _SeedRows] = {}
    for name, part in parts.items():
        variants.setdefault(name.split("/")[0], {}).update(part.metrics["rows"])
    return Section(
        title=_TITLE,
        paper_section="5.1",
        claim=_CLAIM,
        finding=_finding(variants),
        tables=tuple(_table(variant, rows, _ONE_SEED) for variant, rows in variants.items()),
        figures=(*(_figure(name, rows) for name, rows in variants.items()), _variants_figure()),
    )


def cifar10h_summary_section(rows: Rows) -> Section:
    """The same tables of means over all seeds, and the figure of all calibration errors."""
    means = {
        variant: {
            name: {metric: float(np.mean(values)) for metric, values in metrics.items()}
            for name, metrics in found.items()
        }
        for variant, found in rows.items()
    }
    return Section(
        title=f"{_TITLE}: all seeds",
        paper_section="5.1",
        claim=_CLAIM,
        finding=_finding(means),
        tables=tuple(_table(variant, found, _ALL_SEEDS) for variant, found in means.items()),
        figures=(
            Figure(
                file="calibration-errors.png",
                caption="ECE-2 of every row of the tables: mean over seeds, with bars of one "
                "standard deviation where there are several; what a perfect method would measure; "
                "and the paper's value.",
                alt="; ".join(
                    f"{TITLES[variant]}: lowest {row_title(best)}"
                    for variant, found in means.items()
                    for best in [min(found, key=lambda name: found[name]["second_order_ece"])]
                ),
                paper="Tables 1 and 4 hold the same numbers.",
            ),
        ),
    )


def _finding(variants: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Of the first variant: the lowest calibration error with pairs, and without."""
    variant, rows = next(iter(variants.items()))
    lowest = []
    for is_pair_model in (True, False):
        found = [name for name in rows if METHODS[method_of(name)].is_pair_model is is_pair_model]
        if not found:
            return ""
        best = min(found, key=lambda name: rows[name]["second_order_ece"])
        lowest.append(
            f"{row_title(best)} has the lowest ECE-2, {rows[best]['second_order_ece']:.3f} (chance "
            f"alone leaves {rows[best]['second_order_ece_floor']:.3f}), at an accuracy of "
            f"{rows[best]['accuracy']:.1f} %"
        )
    with_pairs, without = lowest
    return (
        f"{TITLES[variant]}: of the networks that were trained on pairs of labels, {with_pairs}; "
        f"of the others, {without}."
    )


def _table(variant: str, rows: Mapping[str, Mapping[str, Any]], seeds: str) -> Table:
    return Table(
        title=f"{TITLES[variant]}: ours, and the paper's in brackets",
        columns=("Method", *_HEADINGS, "ECE-2 / error", "Floor"),
        rows=tuple(
            (
                row_title(name),
                *_cells(variant, name, metrics),
                percent(metrics["relative_ece"]),
                f"{metrics['second_order_ece_floor']:.3f}",
            )
            for name, metrics in rows.items()
        ),
        note="Summed over classes, but for accuracy (per cent) and KL. The paper trains wide "
        f"ResNets and takes means over eight seeds; {seeds} of this run's own backbone. "
        "Floor: the ECE-2 that chance alone leaves, with so few annotators per image, if truths "
        "are Dirichlet.",
    )


def _cells(variant: str, name: str, metrics: Mapping[str, Any]) -> list[str]:
    published = PAPER_MEANS[variant].get(name, (None,) * len(COLUMNS))
    cells = []
    for column, value in zip(COLUMNS, published, strict=True):
        digits = 2 if column == "accuracy" else 3
        ours = f"{metrics[column]:.{digits}f}"
        cells.append(ours if value is None else f"{ours} ({value:.{digits}f})")
    return cells


def _variants_figure() -> Figure:
    return Figure(
        file="variants.png",
        caption="The two validation images on which people disagree most, with the shares of their "
        "labels, as they are and in the harder variants: classes split in random sub-classes, "
        "pixels in the middle scrambled.",
        alt="Two rows of four small pictures, each beside a bar chart of the labels people gave "
        "it; bars are spread over several classes.",
        paper="Appendix F.2 shows two such images.",
    )


def _figure(variant: str, rows: _SeedRows) -> Figure:
    measured = "; ".join(
        f"{row_title(name)} {metrics['second_order_ece']:.3f}" for name, metrics in rows.items()
    )
    return Figure(
        file=f"reliability-{variant}.png",
        caption=f"{TITLES[variant]}: squared error against predicted variance in 100 bins. Methods "
        f"on the diagonal know how wrong they are.",
        alt=f"A reliability diagram with its diagonal for each of {len(rows)} rows of the table. "
        f"ECE-2: {measured}.",
    )


def draw_variants(examples: AnnotatedInputs, path: Path, *, num_images: int = 2) -> None:
    """The images on which annotators disagree most, and their labels, in all four variants.

    Args:
        examples: images as bytes, with annotator counts.
        path: of the figure.
        num_images: rows of the figure.
    """
    counts = examples.responses.counts()
    shares = counts / counts.sum(axis=1, keepdims=True)
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
    chosen = np.argsort(-entropy)[:num_images]
    with house_look():
        figure, axes = new_figure(num_images, 2 * len(VARIANTS), panel=(1.6, 1.6))
        for row, index in enumerate(chosen):
            image = torch.from_numpy(examples.inputs[index : index + 1])
            for column, (name, variant) in enumerate(VARIANTS.items()):
                picture, bars = axes[row, 2 * column], axes[row, 2 * column + 1]
                picture.imshow(variant.scramble(image)[0].movedim(0, -1).numpy())
                picture.set_axis_off()
                split = variant.subclass_probs()
                labels = (
                    shares[index] if split is None else (shares[index, :, None] * split).ravel()
                )
                bars.barh(np.arange(len(labels)) * 10 / len(labels), labels, color=BLUE)
                bars.set_xlim(0, 1)
                bars.set_ylim(10, -1)
                bars.set_yticks(range(10), CLASSES, fontsize=5)
                if row == 0:
                    picture.set_title(TITLES[name])
        save(figure, path)


def draw_reliability_diagrams(
    predictions: Mapping[str, tuple[FloatArray, FloatArray]],
    examples: AnnotatedInputs,
    path: Path,
    *,
    variant: Variant = VARIANTS["original"],
    columns: int = 4,
) -> None:
    """Squared error against predicted variance in 100 bins, a panel for each row of the table.

    Args:
        predictions: probabilities and variances for the split, by row.
        examples: the split.
        path: of the figure.
        variant: of the data.
        columns: panels in a row of the figure.
    """
    truth = variant.annotations(examples.responses.counts())
    with house_look():
        figure, axes = new_figure(math.ceil(len(predictions) / columns), columns)
        for panel in axes.flat[len(predictions) :]:
            panel.set_axis_off()
        for panel, (name, (probs, variance)) in zip(axes.flat, predictions.items(), strict=False):
            errors = squared_error_estimate(probs, truth)
            ReliabilityDisplay(bins=reliability_bins(variance, errors)).plot(ax=panel)
            panel.set_title(row_title(name))
        save(figure, path)


def draw_calibration_errors(rows: Rows, path: Path) -> None:
    """ECE-2 of every row of the table, with its floor and the paper's value, one panel per variant.

    Args:
        rows: of a summary.
        path: of the figure.
    """
    variants = [variant for variant in TITLES if variant in rows]
    tallest = max(len(rows[variant]) for variant in variants)
    with house_look():
        # One panel alone must leave room beside the names of the rows, and for the legend.
        panel_size = (max(2.6, 5.2 / len(variants)), 0.25 * tallest + 0.9)
        figure, axes = new_figure(1, len(variants), panel=panel_size, share_y=len(variants) > 1)
        for panel, variant in zip(axes.flat, variants, strict=True):
            names = list(rows[variant])
            places = np.arange(len(names))
            values = [np.array(rows[variant][name]["second_order_ece"]) for name in names]
            spread = [value.std(ddof=1) if len(value) > 1 else 0.0 for value in values]
            floors = [np.mean(rows[variant][name]["second_order_ece_floor"]) for name in names]
            published = [PAPER_MEANS[variant].get(name, (np.nan,))[0] for name in names]
            means = [value.mean() for value in values]
            panel.errorbar(means, places, xerr=spread, fmt="o", color=BLUE, ms=4, label="here")
            panel.plot(floors, places, "|", color=INK, ms=8, label="floor, if truths are Dirichlet")
            panel.plot(published, places, "D", color=VERMILION, mfc="none", ms=5, label="paper")
            panel.set_xscale("log")
            panel.set_yticks(places, [row_title(name) for name in names])
            panel.set_ylim(len(names) - 0.5, -0.5)
            panel.set_title(TITLES[variant])
            panel.set_xlabel("ECE-2")
        shared_legend(figure, *axes.flat)
        save(figure, path)
