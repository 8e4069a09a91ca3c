"""The presets of the experiment, and its parts: methods, sweeps, intervals (4.2, B and F.1).

`quick` has fewer steps and a smaller ensemble; `paper` is everything as published, and `cpu` is the
same, because it fits one. The evidential sweep is made on the sinusoid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from secondguess._arrays import check_at_least
from secondguess.baselines import evidential
from secondguess.experiments.needs import marked
from secondguess.experiments.regression.claims import regression_claims
from secondguess.experiments.regression.data import FUNCTIONS
from secondguess.experiments.regression.figures import draw_figures
from secondguess.experiments.regression.intervals import study_intervals
from secondguess.experiments.regression.measuring import (
    PLOT_INPUTS,
    measured,
    on_training_set,
    study_recalibration,
)
from secondguess.experiments.regression.methods import (
    RegressionConfig,
    fit_cheat_corrected,
    fit_cheat_corrected_early,
    fit_cheat_corrected_signed,
    fit_ensemble,
    fit_evidential,
    fit_forest,
    fit_gaussian_process,
)
from secondguess.experiments.regression.page import regression_section
from secondguess.experiments.runner import Part, PartResult, check_known, run_experiment
from secondguess.theory.annotations import Annotations
from secondguess.theory.metrics import grouping_error, mean_variance


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The size of a run; the defaults are the published ones.

    Attributes:
        num_steps: steps of every network.
        num_members: networks of the ensemble.
        num_inducing: inducing points of the Gaussian process.
        largest_stream: calibration pairs at the end of the convergence study.
    """

    num_steps: int = 10_000
    num_members: int = 8
    num_inducing: int = 512
    largest_stream: int = 10**9


PRESETS = {
    "quick": Preset(num_steps=1000, num_members=3, num_inducing=128, largest_stream=10**6),
    "paper": Preset(),
    "cpu": Preset(),
}
METHODS = ("cheat_corrected", "evidential", "gaussian_process", "ensemble", "forest")
EXTRAS = ("intervals", "recalibration", "early_stopping", "signed_head", "sweeps")
NUM_TREES = 50
RECALIBRATION_SIZES = (2500, 25_000, 1_000_000)
"""Fresh pairs that the variance is recalibrated on: a tenth of the training set, as many as that,
and as many as Figure 4 has."""
FINAL_WEIGHTS = (0.0, 0.01, 0.1, 0.3)
"""Final lambdas of the evidential sweep, beside the 1 of the method itself."""
LENGTH_SCALES = (0.05, 0.5, 1.5)
"""Length scales of the Gaussian-process sweep, beside the 0.15 of the method itself."""
NUM_EVALUATION = 200_000


def run_regression(
    *,
    preset: str,
    out: Path,
    function: str = "sinusoid",
    seed: int = 0,
    methods: Sequence[str] | None = None,
    extras: Sequence[str] | None = None,
    num_members: int | None = None,
) -> Path:
    """Run or resume one seed of one world; returns the directory of its results.

    Args:
        preset: `quick`, `cpu` or `paper`.
        out: where results of all experiments are.
        function: `sinusoid` or `piecewise`.
        seed: of data, weights and batches.
        methods: which of `METHODS`; None for all.
        extras: which of `EXTRAS`; all but the sweeps need the cheat-corrected network.
            None for all, but for `quick`, which has intervals alone.
        num_members: another size of the ensemble than the preset's.
    """
    check_known("preset", [preset], PRESETS)
    methods = METHODS if methods is None else methods
    if extras is None:
        extras = ("intervals",) if preset == "quick" else EXTRAS
    check_known("method", methods, METHODS)
    check_known("extra", extras, EXTRAS)
    size = PRESETS[preset]
    if num_members is not None:
        size = replace(size, num_members=check_at_least("num_members", num_members, 1))
    config = RegressionConfig(
        function=function, num_steps=size.num_steps, num_evaluation=NUM_EVALUATION, seed=seed
    )
    parts = regression_parts(config, size, methods, extras)
    return run_experiment(
        experiment=f"regression-{function}",
        preset=preset,
        seed=seed,
        config=asdict(config) | asdict(size),
        parts=parts,
        claims=lambda done: marked(regression_claims(done), "regression", preset),
        draw=partial(draw_figures, PLOT_INPUTS, FUNCTIONS[function]),
        describe=partial(regression_section, function),
        out=out,
    )


def regression_parts(
    config: RegressionConfig, size: Preset, methods: Sequence[str], extras: Sequence[str]
) -> list[Part]:
    """The parts of a run, the ones that matter most first."""
    process = {"num_inducing": size.num_inducing}
    wanted: list[tuple[str, Any, dict[str, Any]]] = []
    if "cheat_corrected" in methods:
        wanted.append(("cheat_corrected", _cheat_corrected, {}))
    if "evidential" in methods:
        wanted.append(("evidential", _evidential, {"final_weight": 1.0, "form": "cross_entropy"}))
    if "gaussian_process" in methods:
        wanted.append(("gaussian_process", _gaussian_process, process | {"length_scale": 0.15}))
    if "ensemble" in methods:
        wanted.append(("ensemble", _ensemble, {"num_members": size.num_members}))
    if "forest" in methods:
        wanted.append(("forest", _forest, {"num_trees": NUM_TREES}))
    if "cheat_corrected" in methods:
        of_network: dict[str, tuple[str, Any, dict[str, Any]]] = {
            "intervals": ("intervals", _intervals, {"largest": size.largest_stream}),
            "recalibration": ("recalibration", _recalibration, {"sizes": RECALIBRATION_SIZES}),
            "early_stopping": ("cheat_corrected_early_stopping", _early_stopping, {}),
            "signed_head": ("cheat_corrected_signed", _signed_head, {}),
        }
        wanted += [part for name, part in of_network.items() if name in extras]
    if "sweeps" in extras:
        if "gaussian_process" in methods:
            for scale in LENGTH_SCALES:
                settings = process | {"length_scale": scale}
                wanted.append((f"gaussian_process_{scale:g}", _gaussian_process, settings))
        if config.function == "sinusoid":
            wanted.append(("evidential_optimum", _evidential_optimum, {}))
        if config.function == "sinusoid" and "evidential" in methods:
            settings = {"final_weight": 1.0, "form": "squared_error"}
            wanted.append(("evidential_squared_error", _evidential, settings))
            for weight in FINAL_WEIGHTS:
                settings = {"final_weight": weight, "form": "cross_entropy"}
                wanted.append((f"evidential_{weight:g}", _evidential, settings))
    return [
        Part(
            name=name,
            config=_needed(config, name) | settings,
            compute=partial(compute, config, settings),
            effort=settings.get("num_members", 1),
        )
        for name, compute, settings in wanted
    ]


def _needed(config: RegressionConfig, part: str) -> dict[str, Any]:
    """What a part depends on beside its own settings."""
    settings = asdict(config)
    if part == "evidential_optimum":  # closed form
        return {}
    if part.startswith(("gaussian_process", "forest")):  # no steps
        for name in ("num_steps", "batch_size", "learning_rate"):
            settings.pop(name)
    return settings


def _cheat_corrected(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    predict = fit_cheat_corrected(config, directory)
    result = measured(config, predict)
    result.metrics["training_set"] = on_training_set(config, predict)
    return result


def _signed_head(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    return measured(config, fit_cheat_corrected_signed(config, directory))


def _recalibration(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    # The trained network is loaded from the checkpoints of its own part.
    network = fit_cheat_corrected(config, directory.parent / "cheat_corrected")
    return study_recalibration(config, network, **settings)


def _forest(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    predict, fitted = fit_forest(config, **settings)
    result = measured(config, predict)
    errors = fitted.out_of_bag_errors
    result.metrics["out_of_bag_errors"] = {str(size): error for size, error in errors.items()}
    result.metrics["leaf_size"] = fitted.forest.min_samples_leaf
    return result


def _early_stopping(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    predict, history = fit_cheat_corrected_early(config, directory)
    result = measured(config, predict)
    result.metrics["best_step"] = history.best_step
    result.arrays["validation_steps"] = history.validation_steps
    result.arrays["validation_losses"] = history.validation_losses
    return result


def _ensemble(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    ensemble, naive = fit_ensemble(config, directory, **settings)
    result, of_naive = measured(config, ensemble), measured(config, naive)
    result.metrics["naive"] = of_naive.metrics
    result.arrays.update({f"naive_{key}": array for key, array in of_naive.arrays.items()})
    return result


def _evidential(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    result = measured(config, fit_evidential(config, directory, **settings))
    result.metrics.update(settings)
    return result


def _evidential_optimum(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    """Label distributions over 10 classes, certain to evenly split, and what EDL makes of them."""
    true_probs = torch.zeros(5, 10, dtype=torch.float64)
    for row, shares in enumerate(([1.0], [0.9, 0.1], [0.5, 0.5], [0.4, 0.3, 0.2, 0.1], [0.1] * 10)):
        true_probs[row, : len(shares)] = torch.tensor(shares, dtype=torch.float64)
    alpha = evidential.optimal_concentration(true_probs).numpy()
    total = alpha.sum(axis=1, keepdims=True)
    probs = alpha / total
    variance = probs * (1 - probs) / (total + 1)
    truth = true_probs.numpy()
    return PartResult(
        metrics={
            "grouping_error": [
                grouping_error(p[None], Annotations.known(t[None]))
                for p, t in zip(probs, truth, strict=True)
            ],
            "mean_variance": [mean_variance(v[None]) for v in variance],
        },
        arrays={"true_probs": truth, "probs": probs, "variance": variance},
    )


def _gaussian_process(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    predict, fitted = fit_gaussian_process(config, **settings)
    result = measured(config, predict)
    result.metrics["length_scale"] = settings["length_scale"]
    result.metrics["evidence_bound"] = float(fitted.evidence_bounds[-1])
    result.arrays["evidence_bounds"] = fitted.evidence_bounds
    return result


def _intervals(
    config: RegressionConfig, settings: Mapping[str, Any], directory: Path, done: object
) -> PartResult:
    # The trained network is loaded from the checkpoints of its own part.
    return study_intervals(
        fit_cheat_corrected(config, directory.parent / "cheat_corrected"),
        FUNCTIONS[config.function],
        num_evaluation=config.num_evaluation,
        seed=config.seed,
        **settings,
    )
