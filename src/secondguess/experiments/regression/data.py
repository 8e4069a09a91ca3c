"""The one-dimensional world of appendix F.1: its true p(Y=1|x) in closed form, and pairs from it.

NumPy only. Inputs are standard normal; every array has one entry an input.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from secondguess.theory.checks import FloatArray, IntArray, check_at_least


def true_probability(inputs: ArrayLike) -> FloatArray:
    """p(Y=1|x) of appendix F.1: a slow wave everywhere and a fast one that slows down past |x| = 1.

    p = (0.98 u + 1) / 2 with u = 0.6 cos(v) + 0.4 cos(4.2 x), v = sign(x) (120 |x| - 112 w(|x|)
    - 0.0635) and w(z) = 0.2 log(1 + exp((z - 1) / 0.2)).

    >>> true_probability([-1.0, 0.0, 1.0, 3.0]).round(4)
    array([0.1863, 0.99  , 0.1863, 0.5012])
    """
    x = np.asarray(inputs, dtype=np.float64)
    z = np.abs(x)
    softened = 0.2 * np.logaddexp(0.0, (z - 1.0) / 0.2)
    phase = np.sign(x) * (120 * z - 112 * softened - 0.0635)
    wave = 0.6 * np.cos(phase) + 0.4 * np.cos(4.2 * x)
    return (0.98 * wave + 1) / 2


def sample_pairs(
    num_inputs: int, rng: np.random.Generator, *, num_responses: int = 2
) -> tuple[FloatArray, IntArray]:
    """Inputs of shape `(n,)` and independent responses to each of shape `(n, num_responses)`.

    >>> inputs, responses = sample_pairs(3, np.random.default_rng(0))
    >>> inputs.shape, responses.shape
    ((3,), (3, 2))
    """
    check_at_least("num_inputs", num_inputs, 1)
    check_at_least("num_responses", num_responses, 1)
    inputs = rng.standard_normal(num_inputs)
    draws = rng.random((num_inputs, num_responses))
    return inputs, (draws < true_probability(inputs)[:, None]).astype(np.int64)
