"""A world of Dirichlet truths, for calibration errors and their floors."""

import numpy as np


def dirichlet_world(rng, num_rows=2_000, num_classes=4, num_annotations=20):
    """A calibrated predictor of truths that scatter around it, and annotations of them."""
    probs = rng.dirichlet(np.ones(num_classes), size=num_rows)
    concentration = 1 + 20 * rng.random((num_rows, 1))
    truth = rng.standard_gamma(probs * concentration) + 1e-300
    truth /= truth.sum(axis=1, keepdims=True)
    variance = probs * (1 - probs) / (concentration + 1)
    return probs, variance, rng.multinomial(num_annotations, truth)
