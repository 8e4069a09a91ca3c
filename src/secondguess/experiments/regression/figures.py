"""The figures of section 4.2 and of appendices B and F.1, drawn from the parts of a run.

Nothing is computed here but what a panel shows; `arrays.npz` is enough to draw them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray
from secondguess.displays import ReliabilityDisplay
from secondguess.displays.look import house_look, new_figure, save, shared_legend
from secondguess.displays.reliability import Order
from secondguess.experiments.regression.data import quantile_inputs
from secondguess.experiments.regression.intervals import MISS_RATES, ROOT_MIN_VARIANCES
from secondguess.experiments.regression.panels import (
    draw_bands,
    draw_convergence,
    draw_distribution,
    draw_prediction,
    draw_variance,
)
from secondguess.experiments.runner import PartResult
from secondguess.theory.annotations import Annotations
from secondguess.theory.records import Prediction

TITLES = {
    "ensemble": "NN ensemble",
    "gaussian_process": "Gaussian process",
    "evidential": "Evidential NN",
    "cheat_corrected": "Cheat-corrected NN",
    "forest": "Random forest",
    "naive": "Naive NN, p(1 - p)",
}
NOT_IN_FIGURE_3 = ("forest", "naive")
HOEFFDING = "Hoeffding, on [-1/(4ε), 1/ε]"
"""On the range that S really has: (y1 - p)(y2 - p) is never below -1/4. The paper's [-1/ε, 1/ε] is
1.6 times as wide, and so is the distance of that bound from the mean."""
NUM_BINS = 20
FIGURE_4_ROOT = 0.02

_WINDOW = 201
"""Plotted inputs, one thousandth apart, that a local mean of squared errors runs over."""

Parts = Mapping[str, PartResult]
Truth = Callable[[ArrayLike], FloatArray]


def draw_figures(inputs: FloatArray, truth: Truth, parts: Parts, directory: Path) -> None:
    """Every figure that the parts at hand allow."""
    with house_look():
        _draw_methods(inputs, truth, parts, directory)
        _draw_sweeps(inputs, truth, parts, directory)
        if "intervals" in parts and "cheat_corrected" in parts:
            _intervals(inputs, truth, parts["cheat_corrected"], parts["intervals"], directory)


def _draw_methods(inputs: FloatArray, truth: Truth, parts: Parts, directory: Path) -> None:
    methods = _method_arrays(parts)
    if methods:
        _first_figure(inputs, truth, methods, directory)
        _expanded(inputs, truth, methods, directory)
        _reliability(truth, methods, directory)


def _draw_sweeps(inputs: FloatArray, truth: Truth, parts: Parts, directory: Path) -> None:
    sweep = {
        part.metrics["final_weight"]: part
        for name, part in parts.items()
        if name.startswith("evidential") and part.metrics.get("form") == "cross_entropy"
    }
    if len(sweep) > 1:
        panels = {f"final $\\lambda$ = {w:g}": sweep[w].arrays for w in sorted(sweep)}
        _sweep(inputs, truth, panels, directory / "evidential-sweep.png")
    if "evidential_squared_error" in parts and "evidential" in parts:
        panels = {
            "cross-entropy form": parts["evidential"].arrays,
            "squared-error form": parts["evidential_squared_error"].arrays,
        }
        _sweep(inputs, truth, panels, directory / "evidential-forms.png")
    scales = {
        part.metrics["length_scale"]: part
        for name, part in parts.items()
        if name.startswith("gaussian_process")
    }
    if len(scales) > 1:
        bounds = {scale: f"{scales[scale].metrics['evidence_bound']:,.0f}" for scale in scales}
        panels = {
            f"length scale {scale:g}\nevidence bound {bounds[scale]} nats": scales[scale].arrays
            for scale in sorted(scales)
        }
        _sweep(inputs, truth, panels, directory / "gaussian-process-sweep.png")
    if "evidential_optimum" in parts:
        _evidential_optimum(parts["evidential_optimum"].arrays, directory)


def _method_arrays(parts: Parts) -> dict[str, Mapping[str, np.ndarray]]:
    """Predictions by the name of the method, in the order of the paper's figure."""
    found: dict[str, Mapping[str, np.ndarray]] = {
        name: parts[name].arrays for name in TITLES if name in parts
    }
    if "ensemble" in parts:
        prefix = "naive_"
        found["naive"] = {
            key.removeprefix(prefix): array
            for key, array in parts["ensemble"].arrays.items()
            if key.startswith(prefix)
        }
    return found


def _first_figure(inputs: FloatArray, truth: Truth, methods: Mapping, directory: Path) -> None:
    shown = {name: arrays for name, arrays in methods.items() if name not in NOT_IN_FIGURE_3}
    panels = {TITLES[name]: arrays for name, arrays in shown.items()}
    right = inputs >= 0
    _sweep(inputs, truth, panels, directory / "first-figure.png", right & (inputs <= 3))


def _sweep(
    inputs: FloatArray,
    truth: Truth,
    panels: Mapping[str, Mapping[str, np.ndarray]],
    path: Path,
    where: np.ndarray | None = None,
) -> None:
    """One column per variant: prediction above, variance and squared error below."""
    where = np.abs(inputs) <= 3.5 if where is None else where
    figure, axes = new_figure(2, len(panels), share_x=True)
    for column, (title, arrays) in enumerate(panels.items()):
        _draw_method(axes[0, column], axes[1, column], inputs, truth, arrays, where)
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel("x")
    axes[0, 0].set_ylabel("p(Y=1|x)")
    axes[1, 0].set_ylabel("variance")
    shared_legend(figure, axes[0, 0], axes[1, 0])
    save(figure, path)


def _expanded(inputs: FloatArray, truth: Truth, methods: Mapping, directory: Path) -> None:
    figure, axes = new_figure(len(methods), 2, panel=(5.2, 1.9), share_x=True)
    for row, (name, arrays) in enumerate(methods.items()):
        _draw_method(
            axes[row, 0], axes[row, 1], inputs, truth, arrays, np.ones(len(inputs), dtype=bool)
        )
        axes[row, 0].set_title(TITLES[name], loc="left")
    for column in range(2):
        axes[-1, column].set_xlabel("x")
    shared_legend(figure, axes[0, 0], axes[0, 1])
    save(figure, directory / "expanded.png")


def _draw_method(
    above: Axes,
    below: Axes,
    inputs: FloatArray,
    truth: Truth,
    arrays: Mapping[str, np.ndarray],
    where: np.ndarray,
) -> None:
    x, probs, variance = inputs[where], arrays["plot_probs"][where], arrays["plot_variance"][where]
    true_probs = truth(x)
    draw_prediction(above, x, probs, np.sqrt(np.maximum(variance, 0)), true_probs)
    draw_variance(below, x, variance, (probs - true_probs) ** 2, _WINDOW)
    below.set_ylim(-0.005, 0.26)


def _reliability(truth: Truth, methods: Mapping, directory: Path) -> None:
    for order in get_args(Order):
        figure, axes = new_figure(1, len(methods), panel=(2.6, 2.6))
        for (name, arrays), panel in zip(methods.items(), axes[0], strict=True):
            ReliabilityDisplay.from_predictions(
                Prediction(arrays["probs"], arrays["variance"]),
                Annotations.known(truth(quantile_inputs(len(arrays["probs"])))),
                order=order,
                num_bins=NUM_BINS,
                name="method",
                ax=panel,
            )
            panel.set(title=TITLES[name], ylabel="")
        axes[0, 0].set_ylabel("true probability" if order == "first" else "squared error")
        shared_legend(figure, *axes[0])
        save(figure, directory / f"{order}-order-reliability.png")


def _evidential_optimum(arrays: Mapping[str, np.ndarray], directory: Path) -> None:
    rows = len(arrays["probs"])
    figure, axes = new_figure(1, rows, panel=(2.6, 2.2), share_y=True)
    for row in range(rows):
        draw_distribution(
            axes[0, row],
            arrays["true_probs"][row],
            arrays["probs"][row],
            np.sqrt(arrays["variance"][row]),
        )
        axes[0, row].set_xlabel("class")
    axes[0, 0].set_ylabel("probability")
    shared_legend(figure, axes[0, 0])
    save(figure, directory / "evidential-optimum.png")


def _intervals(
    inputs: FloatArray, truth: Truth, network: PartResult, study: PartResult, directory: Path
) -> None:
    where = np.abs(inputs) <= 3.5
    x = inputs[where]
    probs, variance = network.arrays["plot_probs"][where], network.arrays["plot_variance"][where]

    def bands(root: float, inflation: float) -> dict[str, tuple[FloatArray, FloatArray]]:
        raised = np.maximum(variance, root**2)
        radii = {rate: np.sqrt(inflation * raised / rate) for rate in MISS_RATES}
        return {
            f"{100 * (1 - rate):g} % of inputs": (
                np.clip(probs - radius, 0, 1),
                np.clip(probs + radius, 0, 1),
            )
            for rate, radius in radii.items()
        }

    metrics, size = study.metrics, study.metrics["calibration_size"]
    for index, root in enumerate(ROOT_MIN_VARIANCES):
        key = f"{root:g}"
        figure, axes = new_figure(1, 3, panel=(3.7, 2.7))
        draw_convergence(
            axes[0, 0],
            study.arrays["sizes"],
            {
                HOEFFDING: study.arrays["hoeffding"][index],
                "betting": study.arrays["betting"][index],
            },
            {
                "running mean of S": study.arrays["mean_product"][index],
                "running mean of D": study.arrays["mean_squared_error"][index],
            },
            metrics["limit"][key],
        )
        axes[0, 0].set(xlabel="calibration pairs N", ylabel="variance inflation")
        axes[0, 0].set_title(f"$\\sqrt{{min\\_variance}}$ = {key}")
        draw_bands(axes[0, 1], x, truth(x), bands(root, metrics["inflation"][key]))
        axes[0, 1].set_title(f"betting, {size:,} pairs: inflation {metrics['inflation'][key]:.3g}")
        draw_bands(axes[0, 2], x, truth(x), bands(root, metrics["limit"][key]))
        axes[0, 2].set_title(f"the limit E[D] = {metrics['limit'][key]:.3g}")
        for column in (1, 2):
            axes[0, column].set_xlabel("x")
        shared_legend(figure, *axes[0])
        save(figure, directory / f"intervals-{key}.png")
        if root == FIGURE_4_ROOT:
            single, panel = new_figure(1, 1, panel=(6.0, 3.0))
            draw_bands(panel[0, 0], x, truth(x), bands(root, metrics["inflation"][key]))
            panel[0, 0].set(xlabel="x", ylabel="p(Y=1|x)")
            shared_legend(single, panel[0, 0])
            save(single, directory / "figure-4.png")
