"""Draws docs/pictures/displays.png: `python docs/pictures/displays.py`.

A world whose truth is known: a model that cannot tell two kinds of inputs apart says so (its
variance is right), and one that believes itself does not. Five annotators per input.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from secondguess import Prediction, Triage, squared_error_estimate
from secondguess.displays import (
    ConfidenceReliabilityDisplay,
    HallucinationCurveDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    TriageDisplay,
)
from secondguess.displays.look import house_look, new_figure, save

NUM_INPUTS = 20_000


def draw(path: Path) -> None:
    """The displays, each with a method to compare."""
    rng = np.random.default_rng(0)
    mean, spread = rng.beta(2, 2, NUM_INPUTS), rng.uniform(0.02, 0.5, NUM_INPUTS)
    # The true probability of a "yes" has this mean, and the variance spread * mean (1 - mean).
    concentration = 1 / spread - 1
    truth = rng.beta(mean * concentration, (1 - mean) * concentration)
    votes = rng.binomial(5, truth)
    counts = np.stack([5 - votes, votes], axis=1)
    calibrated = Prediction(mean, spread * mean * (1 - mean))
    too_sure = Prediction(mean, 0.3 * calibrated.variance)
    against = np.where(mean > 0.5, counts[:, 0], counts[:, 1]) > 2
    errors = squared_error_estimate(mean, counts)

    confidence = rng.beta(0.6, 0.4, NUM_INPUTS)
    is_true = rng.random(NUM_INPUTS) < confidence
    # A rival that knows part of it, as the probability of an answer does.
    rival = confidence * rng.uniform(0.2, 1, NUM_INPUTS)

    with house_look():
        figure, axes = new_figure(2, 3, panel=(3.4, 2.8))
        (variance, trust, made_up), (majority, squared, items) = axes
        for name, prediction in (("calibrated", calibrated), ("too sure", too_sure)):
            ReliabilityDisplay.from_predictions(
                prediction, counts, num_bins=10, name=f"a model that is {name}", ax=variance
            )
        for name, shown in (("calibrated", confidence), ("too sure", np.sqrt(confidence))):
            ConfidenceReliabilityDisplay.from_predictions(
                shown, is_true, name=f"a model that is {name}", ax=trust
            )
        top = np.maximum(mean, 1 - mean)
        for name, gap in (("variance", calibrated.variance), ("1 - probability", 1 - top)):
            for ax, losses, loss in (
                (majority, against, "labels against the majority"),
                (squared, errors, "squared error of probabilities"),
            ):
                RiskCoverageDisplay.from_predictions(
                    gap, losses, name=f"by {name}", loss=loss, ax=ax
                )
        for name, gap in (("|1 - C|", 1 - confidence), ("1 - probability", 1 - rival)):
            HallucinationCurveDisplay.from_predictions(gap, ~is_true, name=f"by {name}", ax=made_up)
        TriageDisplay.from_predictions(triage(calibrated), name="items", ax=items)
        save(figure, path)


def triage(prediction: Prediction) -> Triage:
    """The first thousand items in two parts, if twice as little were known about each.

    Both classes of a coin have the same variance.
    """
    mean, variance = prediction.probs[:1000], 4 * prediction.variance[:1000]
    none = np.full(len(mean), np.nan)
    return Triage(
        disagreement=2 * mean * (1 - mean) - variance,
        ignorance=variance,
        disagreement_nats=none,
        ignorance_nats=none,
    )


if __name__ == "__main__":
    draw(Path(__file__).with_suffix(".png"))
