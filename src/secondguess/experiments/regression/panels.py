"""Panels of the regression figures: each function draws arrays on given axes.

Lines run over `inputs` of shape `(n,)`, sorted; a band is a pair of lines.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from secondguess._arrays import FloatArray
from secondguess.displays.look import BLUE, GREY, INK, VERMILION, series_styles


def draw_prediction(
    axes: Axes, inputs: FloatArray, probs: FloatArray, spread: FloatArray, truth: FloatArray
) -> None:
    """True probability in grey, the predicted one over it with a band of one `spread`."""
    axes.plot(inputs, truth, color=GREY, linewidth=0.7, label="true p(Y=1|x)")
    axes.fill_between(
        inputs,
        np.clip(probs - spread, 0, 1),
        np.clip(probs + spread, 0, 1),
        color=BLUE,
        alpha=0.3,
        linewidth=0,
        label="± predicted standard deviation",
    )
    axes.plot(inputs, probs, color=BLUE, label="predicted probability")
    axes.set_ylim(-0.02, 1.02)


def draw_variance(
    axes: Axes, inputs: FloatArray, variance: FloatArray, squared_error: FloatArray, window: int
) -> None:
    """Predicted variance against the squared error, raw in grey and averaged over a window."""
    axes.plot(inputs, squared_error, color=GREY, linewidth=0.5, alpha=0.7, label="squared error")
    axes.plot(
        inputs,
        _moving_mean(squared_error, window),
        color=INK,
        linestyle="--",
        label="squared error, local mean",
    )
    axes.plot(inputs, variance, color=VERMILION, label="predicted variance")


def draw_bands(
    axes: Axes,
    inputs: FloatArray,
    truth: FloatArray,
    bands: Mapping[str, tuple[FloatArray, FloatArray]],
) -> None:
    """Nested bands, the widest lightest, with the truth over them."""
    for index, (name, (lower, upper)) in enumerate(bands.items()):
        shade = 0.15 + 0.5 * index / max(1, len(bands) - 1)
        axes.fill_between(
            inputs, lower, upper, color=BLUE, alpha=shade, linewidth=0, label=name, zorder=index
        )
    axes.plot(inputs, truth, color=INK, linewidth=0.5, label="true p(Y=1|x)", zorder=len(bands))
    axes.set_ylim(-0.02, 1.02)


def draw_convergence(
    axes: Axes,
    sizes: FloatArray,
    bounds: Mapping[str, FloatArray],
    averages: Mapping[str, FloatArray],
    limit: float,
) -> None:
    """Upper bounds (with markers) and running averages (thin) of one quantity, on log axes."""
    for (name, values), (colour, dash, marker) in zip(
        bounds.items(), series_styles(), strict=False
    ):
        axes.plot(
            sizes,
            values,
            color=colour,
            linestyle=dash,  # pyright: ignore[reportArgumentType]
            marker=marker,
            markersize=3,
            label=name,
        )
    for (name, values), dash in zip(averages.items(), (":", "-."), strict=False):
        axes.plot(sizes, values, color=GREY, linestyle=dash, linewidth=1, label=name)
    axes.axhline(limit, color=INK, linewidth=0.8, label="limit E[D]")
    axes.set_xscale("log")
    axes.set_yscale("log")


def draw_distribution(axes: Axes, truth: FloatArray, probs: FloatArray, spread: FloatArray) -> None:
    """Bars of a true distribution, points with one `spread` for the predicted one."""
    places = np.arange(len(truth))
    axes.bar(places, truth, color=BLUE, alpha=0.35, label="true p(y|x)")
    axes.errorbar(
        places,
        probs,
        yerr=spread,
        color=VERMILION,
        fmt="o",
        markersize=3.5,
        capsize=2.5,
        label="predicted, ± standard deviation",
    )
    axes.set_xticks(places)
    axes.set_ylim(0, 1.05)


def _moving_mean(values: FloatArray, window: int) -> FloatArray:
    weights = np.ones(window)
    return np.convolve(values, weights, "same") / np.convolve(np.ones(len(values)), weights, "same")
