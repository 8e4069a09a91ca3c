"""What the report says of a run on CIFAR-10H: the paper's tables with its numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from secondguess.experiments.cifar10h import paper
from secondguess.experiments.cifar10h.tables import TITLES, row_title
from secondguess.experiments.cifar10h.tables import Rows as SeedRows
from secondguess.experiments.runner import PartResult
from secondguess.report.numbers import percent
from secondguess.report.sections import Figure, Section, Table

_HEADINGS = ("ECE-2", "Mean variance", "Squared error", "ECE-1", "Accuracy", "KL")

Rows = dict[str, Mapping[str, Any]]

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
    variants: dict[str, Rows] = {}
    for name, part in parts.items():
        variants.setdefault(name.split("/")[0], {}).update(part.metrics["rows"])
    return Section(
        title=_TITLE,
        paper_section="5.1",
        claim=_CLAIM,
        tables=tuple(_table(variant, rows, _ONE_SEED) for variant, rows in variants.items()),
        figures=(_variants_figure(), *(_figure(name, rows) for name, rows in variants.items())),
    )


def cifar10h_summary_section(rows: SeedRows) -> Section:
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
        "Floor: the ECE-2 that chance alone leaves, with so few annotators per image.",
    )


def _cells(variant: str, name: str, metrics: Mapping[str, Any]) -> list[str]:
    published = paper.MEANS[variant].get(name, (None,) * len(paper.COLUMNS))
    cells = []
    for column, value in zip(paper.COLUMNS, published, strict=True):
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


def _figure(variant: str, rows: Rows) -> Figure:
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
