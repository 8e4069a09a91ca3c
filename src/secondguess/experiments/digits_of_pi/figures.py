"""The figures of section 5.2 and appendices A and F.3, drawn from the results of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from secondguess._arrays import FloatArray
from secondguess.displays import HallucinationCurveDisplay
from secondguess.displays.look import (
    BLUE,
    GREY,
    INK,
    VERMILION,
    house_look,
    new_figure,
    save,
    series_styles,
)
from secondguess.experiments.digits_of_pi.evaluation import (
    OUTLIER_CONFIDENCE,
    Statements,
    reliability_bins,
)
from secondguess.experiments.digits_of_pi.page import answer_groups
from secondguess.experiments.digits_of_pi.pictures import draw_examples
from secondguess.experiments.digits_of_pi.rankings import (
    CONFIDENCE,
    GAP_KINDS,
    RIVALS,
    curves,
    ranking_gaps,
)
from secondguess.experiments.runner import PartResult
from secondguess.report.page import write_answers
from secondguess.theory.metrics import HallucinationCurve

_GROUP = 40
"""Digits per group when confidence and correctness are averaged, as in the paper."""


def draw_figures(parts: Mapping[str, PartResult], directory: Path) -> None:
    """Draw everything that the parts of a run hold."""
    with house_look():
        samples, exact = (
            Statements.from_arrays(parts[name].arrays) for name in ("samples", "exact")
        )
        _draw_reliability(samples, exact, directory / "reliability.png")
        _draw_rankings(samples, directory / "rankings.png")
        _draw_by_digit(samples, directory / "by-digit.png")
        examples = parts["examples"].metrics
        for name, each in examples.items():
            draw_examples(each, directory / f"examples-{name}.png")
        write_answers(
            "Digits of pi, word by word", answer_groups(examples), directory / "examples.html"
        )


def _draw_reliability(samples: Statements, exact: Statements, path: Path) -> None:
    figure, axes = new_figure(1, 2, panel=(3.8, 3.0))
    linear, logarithmic = axes[0]
    linear.plot([0, 1], [1, 0], color=GREY, linestyle="--", label="1 - C (Theorem 4.5)")
    for (name, statements), (colour, _, marker) in zip(
        {"samples": samples, "all sentences": exact}.items(), series_styles(), strict=False
    ):
        bins = reliability_bins(statements, num_bins=20)
        linear.plot(
            bins.confidence,
            bins.hallucination_rate,
            marker=marker,
            linestyle="none",
            markersize=4,
            color=colour,
            label=name,
        )
    linear.set(xlabel="epistemic confidence C", ylabel="hallucination rate")
    linear.legend()
    _draw_log_reliability(logarithmic, samples)
    save(figure, path)


def _draw_log_reliability(axes: Axes, samples: Statements) -> None:
    """All confidences, however large, in bins of equal width on a log scale."""
    confidence = samples.scores.epistemic_confidence.clip(1e-3, 1e6)
    edges = np.logspace(-3, 6, 73)
    index = np.digitize(confidence, edges).ravel()
    count = np.bincount(index, minlength=len(edges) + 1)
    wrong = np.bincount(index, ~samples.is_true.ravel(), minlength=len(edges) + 1)
    mean_log = np.bincount(index, np.log(confidence).ravel(), minlength=len(edges) + 1)
    seen = count > 0
    grid = np.logspace(-3, 0, 100)
    axes.plot(grid, 1 - grid, color=GREY, linestyle="--", label="1 - C")
    axes.scatter(
        np.exp(mean_log[seen] / count[seen]),
        wrong[seen] / count[seen],
        s=2 + 250 * count[seen] / count.max(),
        color=BLUE,
        alpha=0.6,
        linewidth=0,
        label="samples (area: how many)",
    )
    axes.axvline(OUTLIER_CONFIDENCE, color=INK, linewidth=0.6)
    axes.set_xscale("log")
    axes.set(xlabel="epistemic confidence C, log scale", ylabel="hallucination rate")
    axes.legend()


def _draw_rankings(samples: Statements, path: Path) -> None:
    figure, axes = new_figure(1, 2, panel=(3.8, 3.0), share_y=True)
    left, right = axes[0]
    rng = np.random.default_rng(0)
    rankings = curves(samples, ranking_gaps(samples), rng=rng)
    ordered = {CONFIDENCE: rankings[CONFIDENCE]} | {name: rankings[name] for name in RIVALS}
    _draw_curves(left, ordered)
    for name in RIVALS:
        HallucinationCurveDisplay(curve=rankings[name]).plot(ax=right, color=GREY, linestyle=":")
    gaps = {kind: samples.scores.confidence_gap(kind) for kind in GAP_KINDS}
    _draw_curves(right, curves(samples, gaps, rng=rng))
    left.set(title="rankings")
    right.set(ylabel="", title="kinds of confidence gap (rivals dotted)")
    for panel in (left, right):
        panel.legend(loc="upper left")
    save(figure, path)


def _draw_curves(axes: Axes, named: Mapping[str, HallucinationCurve]) -> None:
    for (name, curve), (colour, dash, _) in zip(named.items(), series_styles(), strict=False):
        HallucinationCurveDisplay(curve=curve, name=name.replace("_", " ")).plot(
            ax=axes, color=colour, linestyle=dash
        )


def _draw_by_digit(samples: Statements, path: Path) -> None:
    """The four rows of appendix F.3.5, from raw confidences to means of groups of digits."""
    confidence = samples.scores.epistemic_confidence
    is_outlier = confidence > OUTLIER_CONFIDENCE
    kept = np.where(is_outlier, 0.0, confidence).sum(axis=1) / (~is_outlier).sum(axis=1).clip(1)
    first = min(500, len(samples.offsets))
    figure, axes = new_figure(4, 1, panel=(7.5, 1.7))
    raw, mean, grouped, everything = axes[:, 0]
    raw.scatter(
        np.repeat(samples.offsets[:first], confidence.shape[1]),
        confidence[:first].clip(0, 2).ravel(),
        s=0.3,
        color=BLUE,
        alpha=0.2,
        linewidth=0,
        rasterized=True,
    )
    raw.set(ylabel="each sample", ylim=(-0.05, 2.05))
    pair = (("confidence", kept, BLUE, "-"), ("correct", samples.share_correct, VERMILION, "--"))
    for name, values, colour, dash in pair:
        style = {"color": colour, "linestyle": dash, "label": name}
        if name == "correct":
            raw.plot(samples.offsets[:first], values[:first], linewidth=0.6, **style)
        mean.plot(samples.offsets[:first], values[:first], linewidth=0.6, **style)
        grouped.plot(*_groups(samples.offsets[:first], values[:first]), **style)
        everything.plot(*_groups(samples.offsets, values), **style)
    for panel, title in ((mean, "mean of samples"), (grouped, "40 digits"), (everything, "all")):
        panel.set(ylabel=title, ylim=(-0.05, 1.1))
    everything.set_xlabel("digit of pi")
    grouped.legend()
    save(figure, path)


def _groups(offsets: np.ndarray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means of offsets and values over groups of 40 digits."""
    index = np.arange(len(offsets)) // _GROUP
    count = np.bincount(index)
    return np.bincount(index, offsets) / count, np.bincount(index, values) / count
