"""Entropy split into what people disagree about and what the model does not know, in nats.

A model that predicts a distribution over p(.|x), here a mixture of R candidate distributions with
weights, has total entropy H(mean), aleatoric entropy E[H(p)] and epistemic entropy, the difference:
the mutual information between a response and which candidate is true. The split is what the model
says; it is right if the model is calibrated to k-th order for large k (Ahdritz et al., "Provable
uncertainty decomposition via higher-order calibration", ICLR 2025), and `aleatoric_bounds` says how
far off it can be for finite k.

Axes: rows (n), components (R), classes (K).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from secondguess._arrays import FloatArray, as_floats, check_at_least, fail_at


@dataclass(frozen=True, slots=True)
class EntropySplit:
    """Entropies of each row, in nats.

    Attributes:
        total: H(sum_r w_r q_r), shape `(n,)`.
        aleatoric: sum_r w_r H(q_r), shape `(n,)`.
    """

    total: FloatArray
    aleatoric: FloatArray

    @property
    def epistemic(self) -> FloatArray:
        """The rest, never negative but for rounding (Jensen)."""
        return self.total - self.aleatoric


def entropy_split(weights: ArrayLike, components: ArrayLike) -> EntropySplit:
    """Total and aleatoric entropy of mixtures.

    >>> known = entropy_split([[1.0]], [[[0.5, 0.5]]])  # a fair coin
    >>> known.aleatoric.round(4), known.epistemic.round(4)
    (array([0.6931]), array([0.]))
    >>> unknown = entropy_split([[0.5, 0.5]], [[[1.0, 0.0], [0.0, 1.0]]])  # two-headed or -tailed
    >>> unknown.aleatoric.round(4), unknown.epistemic.round(4)
    (array([0.]), array([0.6931]))

    Args:
        weights: `(n, R)`, rows summing to one.
        components: `(n, R, K)`, distributions over the classes.
    """
    w, q = as_floats("weights", weights), as_floats("components", components)
    if w.ndim != 2 or q.ndim != 3 or q.shape[:2] != w.shape:
        raise ValueError(
            f"weights has shape {w.shape} and components {q.shape}; expected (n, R) and (n, R, K)."
        )
    for name, array in (("weights", w), ("components", q)):
        sums = array.sum(axis=-1)
        fail_at(name, (array < 0) | (array > 1), array, "a probability in [0, 1]")
        fail_at(f"the sum of {name}", np.abs(sums - 1) > 1e-6, sums, "1")
    mean = np.einsum("nr,nrk->nk", w, q)
    aleatoric = np.einsum("nr,nr->n", w, _entropy(q))
    return EntropySplit(_entropy(mean), aleatoric)


def aleatoric_bounds(
    aleatoric: ArrayLike, num_classes: int, num_responses: int
) -> tuple[FloatArray, FloatArray]:
    """Between what the true mean aleatoric entropy lies, if calibrated to k-th order.

    The share of k responses is within K / (2 sqrt k) of p in mean l1 distance. Two laws of p with
    the same law of k responses are each that near to the law of the shares, so they are within
    d = K / (2 sqrt k) of each other in total variation, half the l1 distance, for some coupling. At
    distance d entropies differ by at most d log(K - 1) + h(d), h the binary entropy (Fannes and
    Audenaert), which is concave in d and so holds for the mean over the coupling.

    >>> low, high = aleatoric_bounds([0.5], num_classes=2, num_responses=10_000)
    >>> low.round(3), high.round(3)
    (array([0.444]), array([0.556]))

    Args:
        aleatoric: predicted aleatoric entropies, in nats.
        num_classes: K, 2 or more.
        num_responses: k.

    Returns:
        Lower and upper bounds, within [0, log K].
    """
    check_at_least("num_classes", num_classes, 2)
    check_at_least("num_responses", num_responses, 1)
    distance = num_classes / (2 * np.sqrt(num_responses))
    most = 1 - 1 / num_classes  # where d log(K - 1) + h(d) is largest, at log K
    slack = np.log(num_classes)
    if distance < most:
        slack = distance * np.log(num_classes - 1) + _entropy(np.array([distance, 1 - distance]))
    values = as_floats("aleatoric", aleatoric)
    return np.maximum(values - slack, 0.0), np.minimum(values + slack, np.log(num_classes))


def _entropy(probs: FloatArray) -> FloatArray:
    return 0.0 - xlogy(probs, probs).sum(axis=-1)
