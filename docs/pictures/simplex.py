"""Draws docs/pictures/simplex.png: `python docs/pictures/simplex.py`.

A world of three responses and two groups of inputs that a model cannot tell apart, each input a
point p(.|x) in the triangle. What a calibrated pair model reports of a group, its mean and pair
covariance, is drawn on top of the points, which the model never sees.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

import secondguess as sg

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
COLOURS = ["#0072b2", "#d55e00"]
MARKERS = ["o", "^"]
NAMES = ["cat", "dog", "frog"]


def groups(rng: np.random.Generator) -> list[np.ndarray]:
    """Inputs that the model knows well, and inputs of two kinds that it cannot tell apart."""
    known = rng.dirichlet([70, 70, 20], size=120)
    confused = np.concatenate(
        [rng.dirichlet([12, 2, 6], size=60), rng.dirichlet([2, 12, 6], size=60)]
    )
    return [known, confused]


def draw(path: Path) -> None:
    """The triangle, the points, the means and the ellipses."""
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.fill(*CORNERS.T, facecolor="none", edgecolor="0.3")
    for corner, name, place in zip(CORNERS, NAMES, ["right", "left", "center"], strict=True):
        above = 0.03 if corner[1] else -0.03
        axes.text(corner[0], corner[1] + above, name, ha=place, va="center")
    for truths, colour, marker, label in zip(
        groups(np.random.default_rng(0)), COLOURS, MARKERS, ["group 1", "group 2"], strict=True
    ):
        joint = np.mean(truths[:, :, None] * truths[:, None, :], axis=0)
        centre = sg.joint_marginal(joint) @ CORNERS
        spread = CORNERS.T @ sg.pair_covariance(joint) @ CORNERS
        lengths, directions = np.linalg.eigh(spread)
        tilt = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
        axes.scatter(
            *(truths @ CORNERS).T, s=14, color=colour, marker=marker, alpha=0.35, linewidth=0
        )
        axes.scatter(*centre, s=90, color=colour, marker=marker, edgecolor="white", label=label)
        axes.add_patch(
            Ellipse(
                (centre[0], centre[1]),
                width=2 * np.sqrt(lengths[1]),
                height=2 * np.sqrt(lengths[0]),
                angle=tilt,
                facecolor="none",
                edgecolor=colour,
                linewidth=1.8,
            )
        )
    axes.legend(frameon=False, loc="upper right", title="mean and 1 sd,\nas the model says")
    axes.set_aspect("equal")
    axes.axis("off")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    draw(Path(__file__).with_name("simplex.png"))
