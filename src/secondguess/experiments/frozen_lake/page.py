"""What the report says of a run of Frozen Lake: the exact predictor, and the network beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from secondguess.experiments.frozen_lake.claims import NETWORK_BOUNDS, exact_metrics
from secondguess.experiments.frozen_lake.evaluation import MAX_HALLUCINATION_RATE, Walks
from secondguess.experiments.frozen_lake.figures import SHOWN_VIEWS, walks_of
from secondguess.experiments.frozen_lake.walks import HIDDEN, STOPPED, cells_of
from secondguess.experiments.frozen_lake.world import (
    GOAL,
    LAKE,
    NUM_CELLS,
    PRINTED_DISCOUNT,
    SIDE,
    START,
)
from secondguess.experiments.runner import PartResult
from secondguess.report.numbers import number, percent
from secondguess.report.sections import Figure, Section, Table, Walk, WalkGroup, WalkView

_NUM_SHOWN = 30
"""Walks of a view on the page."""
_LARGEST_CONFIDENCE = 1e3
"""Confidences above this are shown as this: all of them are rejected."""
_VIEW_TITLES = {
    6: "unsafe cell seen at the bottom left",
    5: "unsafe cell seen at the middle right",
    HIDDEN: "unsafe cell hidden",
}
_SHARES = {
    "over_lake": "Samples over the lake",
    "unsafe": "Samples on the unsafe cell",
    "accepted": "Samples accepted",
    "accepted_among_always_safe": "Always-safe samples accepted",
    "over_lake_among_accepted": "Accepted ones over the lake",
    "unsafe_among_accepted": "Accepted ones on the unsafe cell",
    "malformed": "Samples that are no walk",
}
_PAPER = {
    ("hidden", "accepted_among_always_safe"): "always-safe paths are kept",
    ("hidden", "over_lake_among_accepted"): "only always-safe paths are kept",
    ("hidden", "unsafe_among_accepted"): "unsafe actions are avoided",
    ("visible", "accepted"): "like ordinary sampling",
}
_DISTANCES = {
    "log_confidence_std": "Standard deviation of log C, network minus exact",
    "confidence_correlation": "Correlation of C with the exact one",
    "confidence_mean_absolute_difference": "Mean absolute difference of C from the exact one",
}


def lake_section(parts: Mapping[str, PartResult], *, still_learning: bool = False) -> Section:
    """Tables, walks and captions for a whole run.

    Args:
        parts: of the run.
        still_learning: whether the network is too small or too young for verdicts of its own.
    """
    exact, printed = exact_metrics(parts["exact"].metrics)
    network = parts["samples"].metrics
    who = "network (still learning)" if still_learning else "network"
    notes = [
        f"The nine experts are solved exactly, so the perfectly calibrated predictor is known. "
        f"With the discount that the paper prints, {PRINTED_DISCOUNT:g}, it accepts "
        f"{percent(printed['hidden']['accepted'])} of all walks under the hidden view, against the "
        f"paper's own pictures; with 1 the pictures come out, and 1 is used here."
    ]
    if still_learning:
        notes.append(
            "The verdicts of this preset are about the exact predictor. Its network is small and "
            "still learning when training stops: it stands beside the exact predictor, with its "
            "distance from it, and what is claimed of it needs the preset cpu."
        )
    return Section(
        title="Frozen Lake",
        paper_section="5.3",
        claim=(
            "Experts cross a 5 by 5 grid and know which cell of the lake is unsafe; a model that "
            "imitates them sees that cell half of the time. The paper claims that when the cell is "
            "hidden, walks over the lake have a low confidence, so that decoding with |1 - C| at "
            "most 0.05 keeps only walks that are always safe, and that it behaves like ordinary "
            "sampling when the cell is visible (Figure 6)."
        ),
        finding=_finding(exact, network, who),
        notes=tuple(notes),
        tables=(_share_table(exact, network, who), _distance_table(network["hidden"], who)),
        walks=(
            _walk_group("Walks of the exact predictor", walks_of(parts["exact"])),
            _walk_group(f"Walks of this run's {who}", walks_of(parts["samples"])),
        ),
        figures=_figures(exact, network, parts["training"].metrics["distance_from_exact"], who),
    )


def _finding(exact: Mapping[str, Any], network: Mapping[str, Any], who: str) -> str:
    """How many walks over the lake are left when those with a low confidence are rejected."""
    ours, theirs = network["hidden"], exact["hidden"]
    return (
        f"When the unsafe cell is hidden, {percent(theirs['over_lake'])} of the exact predictor's "
        f"walks cross the lake; of those that it accepts by their confidence, "
        f"{percent(theirs['over_lake_among_accepted'])} do. Of this run's {who}: "
        f"{percent(ours['over_lake'])} of all walks, "
        f"{percent(ours['over_lake_among_accepted'])} of the accepted ones."
    )


def _share_table(exact: Mapping[str, Any], network: Mapping[str, Any], who: str) -> Table:
    return Table(
        title="Safety of sampled walks, and of those with a confidence gap of at most 0.05",
        columns=("Share", "View", "Exact predictor", f"This run's {who}", "The paper's Figure 6"),
        rows=tuple(
            (
                title,
                view,
                percent(exact[view][name]),
                percent(network[view][name]),
                _PAPER.get((view, name), ""),
            )
            for view in ("hidden", "visible")
            for name, title in _SHARES.items()
        ),
        note="Under the hidden view each of the nine cells counts as the unsafe one equally often. "
        "What is no walk counts as over the lake and unsafe.",
    )


def _distance_table(hidden: Mapping[str, float], who: str) -> Table:
    return Table(
        title=f"How far the {who} is from the exact predictor, hidden view",
        columns=("Distance", "This run", "Asked of a trained network"),
        rows=tuple(
            (
                title,
                number(hidden[name]),
                f"{'at least' if name == 'confidence_correlation' else 'at most'} "
                f"{number(NETWORK_BOUNDS[name])}",
            )
            for name, title in _DISTANCES.items()
        ),
    )


def _walk_group(title: str, walks: Walks) -> WalkGroup:
    return WalkGroup(
        title=title,
        alt=f"a grid of {SIDE} by {SIDE} cells with the lake in the middle, crossed from the left "
        f"to the right",
        note=f"From S to G; the lake is blue. Accepted walks are solid, rejected ones dashed. The "
        f"first {_NUM_SHOWN} walks of a view are drawn; {percent(1 - float(walks.is_walk.mean()))} "
        f"of all samples are no walk.",
        side=SIDE,
        flag="over the lake",
        max_gap=MAX_HALLUCINATION_RATE,
        views=tuple(_walk_view(view, walks) for view in SHOWN_VIEWS),
    )


def _walk_view(view: int, walks: Walks) -> WalkView:
    tones, signs = ["plain"] * NUM_CELLS, [""] * NUM_CELLS
    for cell in LAKE.tolist():
        tones[cell], signs[cell] = "blue", "?" if view == HIDDEN else ""
    if view != HIDDEN:
        tones[LAKE[view]], signs[LAKE[view]] = "orange", "!"
    signs[START] = "S"
    tones[GOAL], signs[GOAL] = "green", "G"
    shown = np.flatnonzero((walks.views == view) & walks.is_walk)[:_NUM_SHOWN]
    return WalkView(
        title=_VIEW_TITLES[view],
        tones=tuple(tones),
        signs=tuple(signs),
        walks=_shown_walks(walks[shown]),
    )


def _shown_walks(walks: Walks) -> tuple[Walk, ...]:
    cells = cells_of(walks.actions)
    steps = (walks.actions != STOPPED).sum(axis=1)
    confidence = walks.scores.epistemic_confidence.clip(0, _LARGEST_CONFIDENCE)
    # A walk that no expert would ever take has no exact confidence.
    exact = np.where(
        np.isfinite(walks.exact.log_marginal), walks.exact.epistemic_confidence, np.nan
    )
    return tuple(
        Walk(
            cells=tuple(cells[row, : steps[row] + 1].tolist()),
            confidence=round(float(confidence[row]), 6),
            reading=f"C = {confidence[row]:.3f}"
            + ("" if np.isnan(exact[row]) else f", exactly {exact[row]:.3f}")
            + ("; over the lake" if walks.over_lake[row] else "; always safe"),
            is_flagged=bool(walks.over_lake[row]),
        )
        for row in range(len(walks.views))
    )


def _figures(
    exact: Mapping[str, Any],
    network: Mapping[str, Any],
    distance: Mapping[str, float],
    who: str,
) -> tuple[Figure, ...]:
    decoders = (
        "Rejection sampling (above, rejected walks dotted) and top-1 search (below) by the {}, "
        "when the unsafe cell (orange) is seen in two places and when it is hidden."
    )
    picture = (
        "Six drawings of the grid in three columns: unsafe cell seen at the bottom left, seen at "
        "the middle right, and hidden. {} of the hidden-view samples are accepted, {} of those "
        "touch the lake; top-1 search under the hidden view {}."
    )

    def described(metrics: Mapping[str, Any]) -> str:
        top = metrics["top1"][str(HIDDEN)]
        found = "crosses the lake" if top["over_lake"] else "goes round the lake"
        hidden = metrics["hidden"]
        return picture.format(
            percent(hidden["accepted"]),
            percent(hidden["over_lake_among_accepted"]),
            found if top["answered"] else "gives no answer",
        )

    paper = (
        "The paper's Figure 6: with the cell visible, the most likely path crosses the lake; with "
        "the cell hidden, only paths around it remain."
    )
    return (
        Figure(
            file="decoders-exact.png",
            caption=decoders.format("exact predictor"),
            alt=described(exact),
            paper=paper,
        ),
        Figure(
            file="decoders-model.png",
            caption=decoders.format(who),
            alt=described(network),
            paper=paper,
        ),
        Figure(
            file="confidence.png",
            caption=f"Each sample's confidence by the {who} against the exact one. The green band "
            f"is what the threshold accepts.",
            alt=f"Two scatter plots with the diagonal. Correlation under the hidden view "
            f"{number(network['hidden']['confidence_correlation'])}, mean absolute difference "
            f"{number(network['hidden']['confidence_mean_absolute_difference'])}.",
        ),
        Figure(
            file="training.png",
            caption="Distance from the exact predictor through training, on held-out pairs: nats "
            "above it (left), and the spread of log C around the exact one (right; dashed: what "
            "the threshold needs).",
            alt=f"Curves over training steps. At the end the standard deviation of log C is "
            f"{number(distance['log_confidence_std'])}, where at most 0.03 is needed.",
        ),
        Figure(
            file="experts.png",
            caption="What the nine experts do, one for each unsafe cell; arrows are as long as the "
            "action is probable.",
            alt="Nine grids with arrows in every cell; each expert avoids its own unsafe cell of "
            "the lake and prefers short ways to the goal on the right.",
            paper="Appendix F.4.1 shows the same policies.",
        ),
    )
