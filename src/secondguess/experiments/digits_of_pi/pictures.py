"""Statements with coloured words, as in appendix A: a figure and a page.

Red is unlikely. In the rows of the amount of cheating, red is a word that became likelier after
peeking: what the model did not know.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.experiments.digits_of_pi.questions import question
from secondguess.report.look import INK, new_figure, save

_WORST_NATS = 5.0
"""A word this unlikely, or this much likelier after peeking, is fully red."""


def shade(nats: float) -> str:
    """From white, at 0, to red: how unlikely a word is, or how much peeking helped.

    >>> shade(0.0), shade(5.0)
    ('#ffffff', '#ff5a46')
    """
    share = float(np.clip(nats / _WORST_NATS, 0, 1)) ** 0.5
    red, green, blue = (round(255 + share * (end - 255)) for end in (255, 90, 70))
    return f"#{red:02x}{green:02x}{blue:02x}"


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
    """Pairs on the left, scored answers on the right; a word a cell, coloured."""
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


def write_page(examples: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """The same as a page that needs nothing but itself."""
    body: list[str] = []
    for each in examples.values():
        body.append(f"<h2>{html.escape(question(each['offset']))} It is {each['digit']}.</h2>")
        body.append("<h3>Pairs</h3><table><tr><th>y1</th><th>y2, drawn after y1</th></tr>")
        for pair in each["pairs"]:
            cells = (
                _spans(pair[which], [-value for value in pair[f"{which}_log_probs"]])
                for which in ("first", "second")
            )
            body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        body.append("</table><h3>Scored answers</h3><table>")
        for scored in each["scored"]:
            body.append(f"<tr><th colspan=2>{html.escape(_verdict(scored))}</th></tr>")
            for name, costs in _scored_rows(scored):
                body.append(f"<tr><td>{name}</td><td>{_spans(scored['words'], costs)}</td></tr>")
        body.append("</table>")
    style = (
        "body{font:14px sans-serif;margin:2em}td{padding:2px 12px 2px 0}th{text-align:left}"
        "span{font-family:monospace;padding:1px 3px;margin-right:2px}"
    )
    path.write_text(
        f"<!doctype html><meta charset=utf-8><title>Digits of pi, word by word</title>"
        f"<style>{style}</style>\n" + "\n".join(body) + "\n",
        encoding="utf-8",
    )


def _spans(words: Sequence[str], costs: Sequence[float]) -> str:
    return "".join(
        f'<span style="background:{shade(cost)}" title="{cost:.3f} nats">{html.escape(word)}</span>'
        for word, cost in zip(words, costs, strict=True)
    )
