"""The two pictures of the example."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from secondguess import Prediction
from secondguess.displays import ReliabilityDisplay


def draw_reliability(predictions: dict[str, Prediction], counts: np.ndarray, path: Path) -> None:
    """Predicted variance against the squared error that the raters show, one line per method."""
    figure = Figure(figsize=(5.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    shown = ("pair, mixture", "pair, symmetric", "plain, p(1-p)", "ensemble of 8")
    for name in shown:
        ReliabilityDisplay.from_predictions(
            predictions[name],
            counts,
            num_bins=10,
            name=name,
            ax=axes,
            ref_line=False,
            markersize=3,
            linewidth=1.5,
        )
    axes.plot([0, 0.25], [0, 0.25], color="grey", linewidth=0.8, linestyle="--")
    axes.set_xlabel("variance that the model states (tenths of text-class rows)")
    axes.set_ylabel("mean squared error of p(y|x), from five raters")
    axes.set_xlim(0, 0.25)
    axes.set_ylim(0, 0.1)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=90)


def draw_map(disagreement: np.ndarray, ignorance: np.ndarray, path: Path) -> None:
    """Every test text by what people will disagree on, and by what the model has not learned."""
    figure = Figure(figsize=(5.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(disagreement, ignorance, s=4, alpha=0.4, linewidths=0)
    axes.set_xlabel("chance that two raters differ, by the model")
    axes.set_ylabel("epistemic variance, summed over classes")
    axes.text(0.98, 0.03, "people disagree,\nthe model knows", transform=axes.transAxes, ha="right")
    axes.text(0.02, 0.97, "not learned yet:\nlabel next", transform=axes.transAxes, va="top")
    figure.savefig(path, dpi=90)
