"""The one-dimensional worlds of appendix F.1: the true p(Y=1|x) in closed form, and pairs from it.

NumPy and SciPy only. Inputs are standard normal; every array has one entry per input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from secondguess._arrays import FloatArray, IntArray, check_at_least

_PIECEWISE_SEED = 2024


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


def piecewise_probability(inputs: ArrayLike) -> FloatArray:
    """A random piecewise-linear p(Y=1|x), always the same one.

    The paper shows one such function without saying how it was drawn. Here: 100 knots from
    N(0, 0.6^2), so that it varies fastest where inputs are most common, as the other function does;
    at each knot, and at -4 and 4, a value uniform in [0.01, 0.99]; straight lines between them,
    constant outside.

    >>> piecewise_probability([-5.0, 0.0, 5.0]).round(4)
    array([0.2134, 0.4009, 0.5713])
    """
    rng = np.random.default_rng(_PIECEWISE_SEED)
    knots = np.concatenate([[-4.0], np.sort(rng.normal(0, 0.6, size=100)), [4.0]])
    return np.interp(np.asarray(inputs, dtype=np.float64), knots, rng.uniform(0.01, 0.99, size=102))


FUNCTIONS: dict[str, Callable[[ArrayLike], FloatArray]] = {
    "sinusoid": true_probability,
    "piecewise": piecewise_probability,
}


def quantile_inputs(num_inputs: int) -> FloatArray:
    """Inputs of equal probability mass: averages over them are integrals over p(X), free of chance.

    >>> quantile_inputs(3).round(3)
    array([-0.967,  0.   ,  0.967])
    """
    return ndtri((np.arange(num_inputs) + 0.5) / num_inputs)


def sample_pairs(
    num_inputs: int,
    rng: np.random.Generator,
    *,
    num_responses: int = 2,
    probability: Callable[[ArrayLike], FloatArray] = true_probability,
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
    return inputs, (draws < probability(inputs)[:, None]).astype(np.int64)
