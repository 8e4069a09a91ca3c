"""Phases 2, 4 and 5 of one method: from a recipe to the rows of the table, and rows compared.

Rows are compared image by image and seed by seed, which says how sure their difference is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr
from torch import nn

from secondguess._arrays import FloatArray
from secondguess.experiments.cifar10h.data import AnnotatedInputs
from secondguess.experiments.cifar10h.fitting import predict
from secondguess.experiments.cifar10h.learning_curve import LearningCurve
from secondguess.experiments.cifar10h.methods import Method
from secondguess.experiments.cifar10h.protocol import (
    ProtocolConfig,
    Recipe,
    final_model,
    out_of_fold_recalibration,
    recalibrated_prediction,
)
from secondguess.experiments.cifar10h.tables import RECALIBRATED, method_of
from secondguess.experiments.cifar10h.task import NUM_SUBCLASSES, VARIANTS, Task, Variant
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
    watched: bool = False,
) -> PartResult:
    """Phases 2, 4 and 5: the rows of one method, recalibrated too where it is a pair model.

    Args:
        task: the data.
        method: what to train.
        name: its key, which names the rows.
        recipe: of its phases 2 and 4.
        config: the size of the protocol.
        directory: of checkpoints.
        seed: of the training runs.
        watched: whether to look at the validation images after each epoch of the pretraining.
    """
    curve = _pretraining_curve(task, method, directory, seed) if watched else None
    settings: dict[str, Any] = {"directory": directory, "seed": seed, "curve": curve}
    model = final_model(task, method, recipe, config, **settings)
    trained_on, examples = task.data.all_finetuning, task.data.test
    rows = {name: predict(task, method, model, examples, trained_on=trained_on, seed=seed)}
    metrics: dict[str, Any] = {"recipe": asdict(recipe)}
    if curve is not None:
        metrics["learning_curve"] = [asdict(look) for look in curve.looks]
    if method.is_pair_model and config.num_folds:
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


def _pretraining_curve(task: Task, method: Method, directory: Path, seed: int) -> LearningCurve:
    """Looks at the validation images, which the pretraining does not see."""
    data = task.data

    def measured(network: nn.Module) -> tuple[float, float]:
        found = predict(
            task, method, network, data.validation, trained_on=data.pretraining, seed=seed
        )
        images = measure_images(found.probs, data.validation, task.variant)
        return 100 * float(images.correct.mean()), float(images.divergence.mean())

    return LearningCurve(directory / "learning-curve.json", measured)


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


class Difference(NamedTuple):
    """How much more one method has than another, on the same images with the same seeds.

    Attributes:
        mean: over seeds and images.
        standard_error: with other seeds and other images.
        standard_error_of_seeds: with other seeds, but the same images.
    """

    mean: float
    standard_error: float
    standard_error_of_seeds: float


class FromNaive(NamedTuple):
    """Differences of a pair model from the naive network; those of the accuracy in per cent."""

    accuracy: Difference
    kl: Difference


def crossed_difference(ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> Difference:
    """The mean difference, with its standard error where seeds and images are both a sample.

    All seeds are judged on the same images, so more seeds do not average out the luck of these.
    With effects of variance a for a seed, b for an image and c for both, the mean over S seeds and
    n images has variance a/S + b/n + c/(S n), estimated by the mean squares of the two-way table.

    >>> rng = np.random.default_rng(0)
    >>> images = rng.normal(size=400)  # differ, each by the same amount with every seed
    >>> found = crossed_difference(np.tile(images, (8, 1)), np.zeros((8, 400)))
    >>> found.standard_error_of_seeds, f"{found.standard_error:.2f}"
    (0.0, '0.05')

    Args:
        ours: `(S, n)`, at least two of each.
        theirs: the same of the other method.
    """
    difference = np.asarray(ours, dtype=float) - theirs
    num_seeds, num_images = difference.shape
    by_seed, by_image = difference.mean(axis=1), difference.mean(axis=0)
    rest = difference - by_seed[:, None] - by_image + difference.mean()
    of_seeds = by_seed.var(ddof=1) / num_seeds
    of_images = by_image.var(ddof=1) / num_images
    of_both = np.square(rest).sum() / ((num_seeds - 1) * (num_images - 1)) / difference.size
    # What belongs to a seed and an image together is in both of the first two.
    variance = max(of_seeds + of_images - of_both, of_seeds, of_images)
    return Difference(*map(float, (difference.mean(), np.sqrt(variance), np.sqrt(of_seeds))))


def compare_with_naive(
    directory: Path, variant: str, row: str, seeds: Sequence[int], test: AnnotatedInputs
) -> FromNaive:
    """What a row has more than the naive network, from the predictions that the seeds kept.

    Args:
        directory: OUT/cifar10h/<preset>.
        variant: a key of `VARIANTS`.
        row: of a pair model.
        seeds: that have both, at least two.
        test: the images that were predicted.
    """

    def of_images(row: str) -> tuple[NDArray, NDArray]:
        """Correctness in per cent and divergence, `(seeds, images)` each."""
        measured = []
        for seed in seeds:
            part = directory / f"seed-{seed}" / "parts" / variant / method_of(row)
            with np.load(part / "arrays.npz") as arrays:
                measured.append(measure_images(arrays[f"{row}/probs"], test, VARIANTS[variant]))
        correct, divergence = map(np.stack, zip(*measured, strict=True))
        return 100.0 * correct, divergence

    ours, theirs = of_images(row), of_images("naive")
    return FromNaive(*map(crossed_difference, ours, theirs))
