"""The look that the project's own figures share: colours, sizes, grids, and how they are saved.

Colours are those of Okabe and Ito, told apart by colour-blind readers; series that meet on one axis
also differ in dash or marker, so that a grey print reads as well. Draw inside `house_look()`, which
leaves matplotlib's own settings as they were. Displays that users draw keep the users' own look.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from cycler import cycler
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from secondguess._files import replacing

INK = "#222222"
GREY = "#9a9a9a"
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
)
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")

_LEGEND_COLUMNS = 6

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.edgecolor": INK,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "figure.dpi": 100,
    "savefig.dpi": 160,
}


def house_look() -> AbstractContextManager[None]:
    """The settings of all figures, for a `with` statement around what draws.

    >>> from matplotlib import rcParams
    >>> with house_look():
    ...     print(rcParams["axes.spines.top"])
    False
    >>> rcParams["axes.spines.top"]
    True
    """
    return rc_context(_STYLE)


def new_figure(
    rows: int = 1,
    columns: int = 1,
    *,
    panel: tuple[float, float] = (3.0, 2.2),
    share_x: bool = False,
    share_y: bool = False,
) -> tuple[Figure, np.ndarray]:
    """A figure and its axes as an array `(rows, columns)`.

    >>> figure, axes = new_figure(2, 3)
    >>> axes.shape
    (2, 3)

    Args:
        rows: of panels.
        columns: of panels.
        panel: width and height of each, in inches.
        share_x: whether panels share the horizontal axis.
        share_y: whether panels share the vertical axis.
    """
    figure = Figure(figsize=(columns * panel[0], rows * panel[1]), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=share_x, sharey=share_y)
    return figure, axes


def series_styles() -> zip[tuple[str, object, str]]:
    """Colour, dash and marker for one series after another.

    >>> next(iter(series_styles()))
    ('#0072B2', '-', 'o')
    """
    return zip(cycle(COLOURS), cycle(DASHES), cycle(MARKERS), strict=False)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG; the same figure gives the same file."""
    with replacing(path) as unfinished:
        figure.savefig(unfinished, format="png", metadata={"Software": None})


def shared_legend(figure: Figure, *axes: Axes) -> None:
    """One legend below all panels, with each series of these axes once, in as few rows as fit.

    It stands in for the legends of these axes, which are removed.
    """
    series: dict[str, Any] = {}
    for panel in axes:
        if (legend := panel.get_legend()) is not None:
            legend.remove()
        handles, labels = panel.get_legend_handles_labels()
        series |= dict(zip(labels, handles, strict=True))
    for rows in range(math.ceil(len(series) / _LEGEND_COLUMNS), len(series) + 1):
        legend = figure.legend(
            series.values(),
            series.keys(),
            loc="outside lower center",
            ncols=math.ceil(len(series) / rows),
        )
        if rows == len(series) or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
