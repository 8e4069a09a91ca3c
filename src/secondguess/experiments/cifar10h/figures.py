"""Figures of the CIFAR-10H experiment: what the variants do, and reliability diagrams."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

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
from secondguess.experiments.cifar10h import paper
from secondguess.experiments.cifar10h.data import CLASSES, AnnotatedInputs
from secondguess.experiments.cifar10h.tables import TITLES, Rows, row_title
from secondguess.experiments.cifar10h.variants import VARIANTS, Variant
from secondguess.theory.metrics import squared_error_estimate
from secondguess.theory.reliability import reliability_bins


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
        figure, axes = new_figure(
            1, len(variants), panel=(2.6, 0.25 * tallest + 0.9), share_y=len(variants) > 1
        )
        for panel, variant in zip(axes.flat, variants, strict=True):
            names = list(rows[variant])
            places = np.arange(len(names))
            values = [np.array(rows[variant][name]["second_order_ece"]) for name in names]
            spread = [value.std(ddof=1) if len(value) > 1 else 0.0 for value in values]
            floors = [np.mean(rows[variant][name]["second_order_ece_floor"]) for name in names]
            published = [paper.MEANS[variant].get(name, (np.nan,))[0] for name in names]
            means = [value.mean() for value in values]
            panel.errorbar(means, places, xerr=spread, fmt="o", color=BLUE, ms=4, label="here")
            panel.plot(floors, places, "|", color=INK, ms=8, label="floor")
            panel.plot(published, places, "D", color=VERMILION, mfc="none", ms=5, label="paper")
            panel.set_xscale("log")
            panel.set_yticks(places, [row_title(name) for name in names])
            panel.set_ylim(len(names) - 0.5, -0.5)
            panel.set_title(TITLES[variant])
            panel.set_xlabel("ECE-2")
        shared_legend(figure, *axes.flat)
        save(figure, path)
