"""Statements with coloured words, as in appendix A: a figure.

Red is unlikely. In the rows of the amount of cheating, red is a word that became likelier after
peeking: what the model did not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.displays.look import INK, new_figure, save
from secondguess.experiments.digits_of_pi.questions import question
from secondguess.report.words import shade


def _scored_rows(scored: Mapping[str, Any]) -> list[tuple[str, list[float]]]:
    first, second = np.array(scored["log_marginal"]), np.array(scored["log_self_conditional"])
    return [
        ("initial guess", (-first).tolist()),
        ("after self-cheating", (-second).tolist()),
        ("amount of cheating", np.maximum(second - first, 0).tolist()),
    ]


def _verdict(scored: Mapping[str, Any]) -> str:
    truth = "true" if scored["is_true"] else "false"
    return f"C = {scored['confidence']:.3g}, {truth}"


def draw_examples(examples: Mapping[str, Any], path: Path) -> None:
    """Pairs on the left, scored answers on the right; one coloured cell per word."""
    lines_left = 2 + len(examples["pairs"])
    lines_right = 2 + 4 * len(examples["scored"])
    figure, axes = new_figure(1, 2, panel=(6.6, 0.19 * lines_right + 0.4))
    left, right = axes[0]
    for panel in (left, right):
        panel.axis("off")
        panel.set(xlim=(0, 1), ylim=(lines_right, 0))
    title = f"{question(examples['offset'])} (it is {examples['digit']})"
    left.text(0, 0.5, title, fontsize=8, color=INK, weight="bold")
    left.text(0, 1.6, "y1", fontsize=7, color=INK)
    left.text(0.5, 1.6, "y2, drawn after y1", fontsize=7, color=INK)
    for line, pair in enumerate(examples["pairs"]):
        for start, which in ((0.0, "first"), (0.5, "second")):
            costs = [-value for value in pair[f"{which}_log_probs"]]
            _draw_words(left, start, 3 + line * (lines_right - 2) / lines_left, pair[which], costs)
    line = 0.5
    for scored in examples["scored"]:
        right.text(0, line, _verdict(scored), fontsize=7, color=INK, weight="bold", va="center")
        for name, costs in _scored_rows(scored):
            line += 1
            right.text(0, line, name, fontsize=6.5, color=INK, va="center")
            _draw_words(right, 0.2, line, scored["words"], costs)
        line += 1
    save(figure, path)


def _draw_words(
    axes: Any, start: float, line: float, words: Sequence[str], costs: Sequence[float]
) -> None:
    x = start
    for word, cost in zip(words, costs, strict=True):
        box = {"facecolor": shade(cost), "edgecolor": "none", "pad": 1.2}
        axes.text(x, line, word, fontsize=6.5, family="monospace", bbox=box, va="center")
        x += 0.009 * (len(word) + 1.2)
