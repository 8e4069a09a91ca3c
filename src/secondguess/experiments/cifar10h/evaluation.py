"""Phases 2, 4 and 5 of one method: from a recipe to the rows of the table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr

from secondguess._arrays import FloatArray
from secondguess.experiments.cifar10h.data import AnnotatedInputs
from secondguess.experiments.cifar10h.fitting import predict
from secondguess.experiments.cifar10h.methods import Method
from secondguess.experiments.cifar10h.protocol import (
    ProtocolConfig,
    Recipe,
    final_model,
    out_of_fold_recalibration,
    recalibrated_prediction,
)
from secondguess.experiments.cifar10h.tables import RECALIBRATED
from secondguess.experiments.cifar10h.task import Task
from secondguess.experiments.cifar10h.variants import NUM_SUBCLASSES, Variant
from secondguess.experiments.runner import PartResult
from secondguess.theory.floors import (
    DirichletTruths,
    EceFloor,
    second_order_ece_floor,
    simulate_floor,
)
from secondguess.theory.metrics import grouping_error, mean_variance
from secondguess.theory.records import Prediction
from secondguess.theory.reliability import (
    first_order_ece,
    second_order_ece,
    second_order_ece_standard_error,
)


def final_result(
    task: Task,
    method: Method,
    name: str,
    recipe: Recipe,
    config: ProtocolConfig,
    *,
    directory: Path,
    seed: int,
) -> PartResult:
    """Phases 2, 4 and 5: the rows of one method, recalibrated too where it is a pair model."""
    settings: dict[str, Any] = {"directory": directory, "seed": seed}
    model = final_model(task, method, recipe, config, **settings)
    trained_on, examples = task.data.all_finetuning, task.data.test
    rows = {name: predict(task, method, model, examples, trained_on=trained_on, seed=seed)}
    metrics: dict[str, Any] = {"recipe": asdict(recipe)}
    if method.is_pair_model:
        recalibration = out_of_fold_recalibration(task, method, recipe, config, **settings)
        rows[name + RECALIBRATED] = recalibrated_prediction(task, model, examples, recalibration)
        metrics["recalibration"] = asdict(recalibration)
    metrics["rows"] = {
        row: measure(prediction, examples, task.variant) for row, prediction in rows.items()
    }
    arrays = {
        f"{row}/{field}": getattr(prediction, field).astype(np.float32)
        for row, prediction in rows.items()
        for field in ("probs", "variance")
    }
    return PartResult(metrics, arrays)


def measure(
    prediction: Prediction, examples: AnnotatedInputs, variant: Variant
) -> dict[str, float]:
    """The metrics of appendix F.2.4, with the floor and the standard error of ECE-2.

    Args:
        prediction: for the split.
        examples: the split.
        variant: of the data. With extra classes, accuracy is that of the sum over sub-classes.
    """
    truth = variant.annotations(examples.responses.counts())
    rng = np.random.default_rng(0)
    images = measure_images(prediction.probs, examples, variant)
    ece = second_order_ece(prediction, truth)
    floor = calibration_floor(
        prediction, examples.responses.num_annotations, variant, rng=rng, num_simulations=20
    ).mean
    error = grouping_error(prediction, truth)
    return {
        "second_order_ece": ece,
        "second_order_ece_standard_error": second_order_ece_standard_error(
            prediction, truth, rng=rng, num_resamples=50
        ),
        "second_order_ece_floor": floor,
        "relative_ece": ece / error,
        "relative_floor": floor / error,
        "mean_variance": mean_variance(prediction),
        "grouping_error": error,
        "first_order_ece": first_order_ece(prediction, truth),
        "accuracy": 100 * float(images.correct.mean()),
        "kl": float(images.divergence.mean()),
    }


def calibration_floor(
    prediction: Prediction,
    num_annotations: ArrayLike,
    variant: Variant,
    *,
    rng: np.random.Generator,
    num_simulations: int,
) -> EceFloor:
    """The floor of ECE-2 under Dirichlet truths, see `second_order_ece_floor`.

    With extra classes, a calibrated predictor knows p(sub-class | class), so that the truths of the
    original classes are all that is uncertain; the total variance of the sub-classes is matched.
    """
    split = variant.subclass_probs()
    if split is None:
        return second_order_ece_floor(
            prediction, num_annotations, rng=rng, num_simulations=num_simulations
        )

    def over_subclasses(per_class: FloatArray, factors: FloatArray) -> FloatArray:
        return (per_class[:, :, None] * factors).reshape(len(per_class), -1)

    classes = prediction.probs.reshape(len(prediction), -1, NUM_SUBCLASSES).sum(axis=2)
    mean = classes / classes.sum(axis=1, keepdims=True)
    truths = DirichletTruths.of_spread(
        mean,
        prediction.variance.sum(axis=1),
        over_subclasses(mean * (1 - mean), split**2).sum(axis=1),
    )
    calibrated = Prediction(
        over_subclasses(mean, split), over_subclasses(truths.variance, split**2)
    )
    return simulate_floor(
        calibrated,
        truths.draw,
        num_annotations,
        truths="Dirichlet",
        rng=rng,
        annotate=variant.annotations,
        num_simulations=num_simulations,
    )


class ImageMeasures(NamedTuple):
    """By image, whether its label is the most probable class, and the divergence from its shares.

    The mean divergence is the KL of the tables.
    """

    correct: NDArray[np.bool_]
    divergence: NDArray[np.float64]


def measure_images(probs: ArrayLike, examples: AnnotatedInputs, variant: Variant) -> ImageMeasures:
    """What the accuracy and the KL of a split are the means of.

    Args:
        probs: for the split; rows sum to one to float32's precision.
        examples: the split.
        variant: of the data. With extra classes, the class is the one with the largest sum.
    """
    given = np.asarray(probs, dtype=float)
    exact = given / given.sum(axis=1, keepdims=True)
    width = NUM_SUBCLASSES if variant.extra_classes else 1
    called = exact.reshape(len(exact), -1, width).sum(axis=2).argmax(axis=1)
    shares = variant.annotations(examples.responses.counts()).shares
    return ImageMeasures(called == examples.labels, rel_entr(shares, exact).sum(axis=1))
