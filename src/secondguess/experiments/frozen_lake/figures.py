"""The figures of section 5.3 and appendices A and F.4, drawn from the results of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from secondguess._arrays import FloatArray, IntArray
from secondguess.displays.look import (
    BLUE,
    GREEN,
    GREY,
    INK,
    SKY,
    VERMILION,
    house_look,
    new_figure,
    save,
    series_styles,
)
from secondguess.experiments.frozen_lake.evaluation import MAX_HALLUCINATION_RATE, Walks, top1
from secondguess.experiments.frozen_lake.walks import HIDDEN, STOPPED, cells_of
from secondguess.experiments.frozen_lake.world import GOAL, LAKE, NUM_CELLS, SIDE, START
from secondguess.experiments.runner import PartResult
from secondguess.theory.records import SelfCheatScores

SHOWN_VIEWS = (6, 5, HIDDEN)
"""Unsafe at the bottom left, unsafe at the middle right, hidden: the views of appendix A."""
_NUM_SHOWN = 8
_DIRECTIONS = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)])
"""Steps right and down of the four actions."""


def draw_figures(parts: Mapping[str, PartResult], directory: Path) -> None:
    """Draw everything that the parts of a run hold."""
    with house_look():
        _draw_experts(parts["exact"].arrays["policies"], directory / "experts.png")
        for name, part in (("exact", parts["exact"]), ("model", parts["samples"])):
            walks = walks_of(part)
            _draw_samples(walks, directory / f"walks-{name}.png")
            _draw_decoders(walks, directory / f"decoders-{name}.png")
        _draw_confidence(walks_of(parts["samples"]), directory / "confidence.png")
        _draw_training(parts["training"].arrays, directory / "training.png")


def walks_of(part: PartResult) -> Walks:
    """The walks that a part has kept."""
    arrays = part.arrays

    def scores(prefix: str) -> SelfCheatScores:
        return SelfCheatScores(
            arrays[f"{prefix}log_marginal"].astype(np.float64),
            arrays[f"{prefix}log_self_conditional"].astype(np.float64),
        )

    return Walks(
        views=arrays["views"].astype(np.int64),
        actions=arrays["actions"].astype(np.int64),
        is_walk=arrays["is_walk"],
        scores=scores(""),
        exact=scores("exact_"),
    )


def _draw_world(axes: Axes, view: int) -> None:
    """The grid: lake in blue, the unsafe cell in red where it is seen, the goal in green."""
    for cell in range(NUM_CELLS):
        row, column = divmod(cell, SIDE)
        colour = "white"
        if cell in LAKE:
            colour = SKY if view == HIDDEN or cell != LAKE[view] else VERMILION
        if cell == GOAL:
            colour = GREEN
        axes.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor=GREY, alpha=0.45)
        )
        if view == HIDDEN and cell in LAKE:
            axes.text(column, row, "?", color=GREY, ha="center", va="center", fontsize=7)
    row, column = divmod(START, SIDE)
    axes.text(column, row, "S", color=INK, ha="center", va="center", fontsize=7)
    axes.set(xlim=(-0.55, SIDE - 0.45), ylim=(SIDE - 0.45, -0.55), aspect="equal")
    axes.axis("off")


def _draw_experts(policies: FloatArray, path: Path) -> None:
    figure, axes = new_figure(3, 3, panel=(2.0, 2.0))
    row, column = np.divmod(np.arange(NUM_CELLS), SIDE)
    for expert, panel in enumerate(axes.ravel()):
        _draw_world(panel, expert)
        # An expert is never on its own unsafe cell.
        standing = np.delete(np.arange(NUM_CELLS), [GOAL, LAKE[expert]])
        for action, (right, down) in enumerate(_DIRECTIONS):
            length = 0.48 * policies[expert, standing, action]
            panel.quiver(
                column[standing],
                row[standing],
                right * length,
                down * length,
                angles="xy",
                scale_units="xy",
                scale=1,
                width=0.012,
                color=INK,
            )
    save(figure, path)


def _draw_walk(axes: Axes, actions: IntArray, *, dashed: bool, shift: float = 0.0) -> None:
    """One walk; it drifts along the diagonal, so that its way back is seen beside its way there."""
    steps = int((actions != STOPPED).sum())
    row, column = np.divmod(cells_of(actions[None])[0, : steps + 1], SIDE)
    drift = np.linspace(-0.2, 0.2, steps + 1) + shift
    axes.plot(
        column + drift,
        row + drift,
        color=INK if dashed else BLUE,
        linestyle=":" if dashed else "-",
        linewidth=1.0 if dashed else 1.5,
        alpha=0.8,
    )


def _draw_samples(walks: Walks, path: Path) -> None:
    """One row per view: the first samples with their confidences, rejected ones dotted."""
    figure, axes = new_figure(len(SHOWN_VIEWS), _NUM_SHOWN, panel=(1.3, 1.45))
    for view, panels in zip(SHOWN_VIEWS, axes, strict=True):
        shown = walks[np.flatnonzero(walks.views == view)[:_NUM_SHOWN]]
        confidence = shown.scores.epistemic_confidence
        for index, panel in enumerate(panels):
            _draw_world(panel, view)
            if index < len(confidence):
                _draw_walk(panel, shown.actions[index], dashed=not shown.accepted[index])
                panel.set_title(f"C = {confidence[index]:.2f}", fontsize=7)
    save(figure, path)


def _draw_decoders(walks: Walks, path: Path) -> None:
    """One column per view: rejection sampling above (rejected dotted), top-1 search below."""
    figure, axes = new_figure(2, len(SHOWN_VIEWS), panel=(2.3, 2.4))
    best = top1(walks)
    for view, (above, below) in zip(SHOWN_VIEWS, axes.T, strict=True):
        _draw_world(above, view)
        _draw_world(below, view)
        shown = walks[np.flatnonzero(walks.views == view)[:20]]
        shifts = np.linspace(-0.12, 0.12, len(shown.views))
        for index, shift in enumerate(shifts):
            dashed = not shown.accepted[index]
            _draw_walk(above, shown.actions[index], dashed=dashed, shift=float(shift))
        row = best.get(view)
        if row is not None:
            _draw_walk(below, walks.actions[row], dashed=False)
        name = "hidden" if view == HIDDEN else "visible"
        above.set_title(f"{name}: rejection sampling", fontsize=8)
        answered = "top-1 search" if row is not None else "top-1 search abstains"
        below.set_title(f"{name}: {answered}", fontsize=8)
    save(figure, path)


def _draw_confidence(walks: Walks, path: Path) -> None:
    """The model's confidence against the exact one, walk by walk."""
    figure, axes = new_figure(1, 2, panel=(3.6, 3.2))
    for panel, is_shown, title in (
        (axes[0, 0], walks.views == HIDDEN, "unsafe cell hidden"),
        (axes[0, 1], walks.views != HIDDEN, "unsafe cell visible"),
    ):
        shown = walks[is_shown & walks.is_walk & np.isfinite(walks.exact.log_marginal)]
        exact = shown.exact.epistemic_confidence
        ours = shown.scores.epistemic_confidence.clip(0, 1.5)
        panel.axhspan(
            1 - MAX_HALLUCINATION_RATE, 1 + MAX_HALLUCINATION_RATE, color=GREEN, alpha=0.2
        )
        panel.plot([0, 1], [0, 1], color=GREY, linestyle="--", label="equal")
        for over_lake, colour, marker, name in (
            (True, VERMILION, "x", "over the lake"),
            (False, BLUE, "o", "always safe"),
        ):
            of_kind = shown.over_lake == over_lake
            panel.scatter(
                exact[of_kind],
                ours[of_kind],
                s=5,
                color=colour,
                marker=marker,
                alpha=0.3,
                label=name,
            )
        panel.set(xlabel="exact confidence", ylabel="confidence of the model", title=title)
        panel.legend()
    save(figure, path)


def _draw_training(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """The distance from the exact predictor through training."""
    figure, axes = new_figure(1, 2, panel=(3.6, 2.8))
    nats, confidence = axes[0]
    names = ("hidden_y1", "hidden_y2", "visible_y1", "visible_y2")
    for name, (colour, dash, marker) in zip(names, series_styles(), strict=False):
        nats.plot(
            arrays["tracked_steps"],
            arrays[name],
            color=colour,
            linestyle=dash,  # pyright: ignore[reportArgumentType]
            marker=marker,
            markersize=3,
            label=name.replace("_", " "),
        )
    nats.set(xlabel="step", ylabel="nats above the exact predictor")
    nats.set_yscale("symlog", linthresh=1e-3)
    confidence.plot(
        arrays["tracked_steps"], arrays["log_confidence_std"], color=BLUE, marker="o", markersize=3
    )
    confidence.axhline(0.03, color=GREY, linestyle="--")
    confidence.set(xlabel="step", ylabel="std of log C, model minus exact")
    confidence.set_yscale("log")
    nats.legend()
    save(figure, path)
