"""What is measured of a predictor of the one-dimensional worlds, and of one that is recalibrated.

All averages run over inputs of equal probability mass, against the closed form of p(Y=1|x).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.classification.pairs import PairData
from secondguess.classification.variance_map import VarianceMap, fit_variance_map
from secondguess.experiments.regression.data import FUNCTIONS, quantile_inputs, sample_pairs
from secondguess.experiments.regression.methods import (
    Predictor,
    RegressionConfig,
    TrainingTriples,
)
from secondguess.experiments.runner import PartResult
from secondguess.theory.annotations import Annotations
from secondguess.theory.metrics import grouping_error, mean_variance
from secondguess.theory.records import Prediction
from secondguess.theory.reliability import first_order_ece, second_order_ece

PLOT_INPUTS = np.linspace(-4, 4, 8001)


def measured(config: RegressionConfig, predict: Predictor) -> PartResult:
    """Metrics, and predictions at the inputs that they average over and at those to plot."""
    inputs = quantile_inputs(config.num_evaluation)
    predicted, plotted = predict(inputs), predict(PLOT_INPUTS)
    return PartResult(
        metrics=errors_and_calibration(config, predicted),
        arrays={
            "probs": predicted.probs.astype(np.float32),
            "variance": predicted.variance.astype(np.float32),
            "plot_probs": plotted.probs,
            "plot_variance": plotted.variance,
        },
    )


def errors_and_calibration(config: RegressionConfig, predicted: Prediction) -> dict[str, Any]:
    """Metrics of a prediction at the inputs of equal mass."""
    truth = Annotations.known(FUNCTIONS[config.function](quantile_inputs(len(predicted.probs))))
    return {
        "first_order_ece": first_order_ece(predicted, truth),
        "second_order_ece": second_order_ece(predicted, truth),
        "first_order_ece_20_bins": first_order_ece(predicted, truth, num_bins=20),
        "second_order_ece_20_bins": second_order_ece(predicted, truth, num_bins=20),
        "mean_variance": mean_variance(predicted),
        "grouping_error": grouping_error(predicted, truth),
    }


def on_training_set(config: RegressionConfig, predict: Predictor) -> dict[str, float]:
    """What the training pairs themselves say of the squared error: the mean of (y1 - p)(y2 - p).

    Its distance from the grouping error is the luck of the draw, which no training can undo.
    """
    triples = TrainingTriples.draw(config)
    inputs = triples.inputs[:, 0].double().numpy()
    prediction = predict(inputs)
    products = (triples.responses.numpy() - prediction.probs[:, None]).prod(axis=1)
    truth = Annotations.known(FUNCTIONS[config.function](inputs))
    return {
        "mean_variance": mean_variance(prediction),
        "mean_product": float(products.mean()),
        "mean_product_standard_error": float(products.std() / np.sqrt(len(products))),
        "grouping_error": grouping_error(prediction, truth),
    }


def study_recalibration(
    config: RegressionConfig, predict: Predictor, *, sizes: tuple[int, ...]
) -> PartResult:
    """Metrics after the variance was mapped to what fresh pairs say, by the number of pairs.

    Args:
        config: the world and the seed.
        predict: a pair network, trained on other pairs.
        sizes: numbers of fresh pairs; each set is the beginning of the next.
    """
    rng = np.random.default_rng([config.seed, 4])
    inputs, responses = sample_pairs(max(sizes), rng, probability=FUNCTIONS[config.function])
    fresh = predict(inputs)
    evaluated = predict(quantile_inputs(config.num_evaluation))
    metrics = {}
    for size in sizes:
        data = PairData.from_responses(responses[:size], classes=[0, 1])
        probs, variance = fresh.probs[:size], fresh.variance[:size]
        both = Prediction(np.stack([1 - probs, probs], axis=1), np.stack([variance] * 2, axis=1))
        found = fit_variance_map(both, data, rng=np.random.default_rng([config.seed, 5]))
        mapped = Prediction(evaluated.probs, _mapped(found, evaluated))
        metrics[str(size)] = {"map": found.kind, **errors_and_calibration(config, mapped)}
    return PartResult(metrics)


def _mapped(variance_map: VarianceMap, prediction: Prediction) -> FloatArray:
    """The variance of the event; the map is of the total over both classes, which is twice that."""
    most = prediction.probs * (1 - prediction.probs)
    if variance_map.kind == "identity":
        return prediction.variance
    return np.clip(variance_map.of(2 * prediction.variance) / 2, 0, most)
