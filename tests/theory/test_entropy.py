"""The entropy split against worlds whose truth is a finite sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from worlds import coins, two_point

from secondguess.theory.entropy import aleatoric_bounds, entropy_split


@pytest.mark.parametrize("world", [coins(), two_point()])
def test_the_split_of_an_exact_world(world):
    """A model that knows its group's law of p(.|x): the split is the conditional entropies."""
    for group in np.unique(world.groups):
        members = world.groups == group
        weights = world.input_probs[members] / world.input_probs[members].sum()
        split = entropy_split(weights[None], world.true_probs[members][None])
        # The mutual information of response and input within the group, summed by hand.
        mean = weights @ world.true_probs[members]
        information = sum(
            w * p * math.log(p / m)
            for w, row in zip(weights, world.true_probs[members], strict=True)
            for p, m in zip(row, mean, strict=True)
            if p > 0
        )
        disagreement = -sum(
            w * p * math.log(p)
            for w, row in zip(weights, world.true_probs[members], strict=True)
            for p in row
            if p > 0
        )
        assert abs(split.epistemic[0] - information) < 1e-10
        assert abs(split.aleatoric[0] - disagreement) < 1e-10


def test_bounds_hold_for_the_k_th_order_calibrated_model_of_the_coins():
    """The empirical law of k responses is k-th-order calibrated; its mean entropy is exact."""
    from scipy.stats import binom

    heads = np.array([0.2, 0.5, 0.8])
    truth = entropy_split(np.full((1, 3), 1 / 3), np.stack([1 - heads, heads], 1)[None])
    for k in (10, 100, 1000, 100_000):
        shares = np.arange(k + 1) / k
        weights = binom.pmf(np.arange(k + 1), k, heads[:, None]).mean(axis=0)
        weights /= weights.sum()
        model = entropy_split(weights[None], np.stack([1 - shares, shares], 1)[None])
        low, high = aleatoric_bounds(model.aleatoric, 2, k)
        assert low <= truth.aleatoric <= high
    assert high - low < 0.1


def test_complaints():
    with pytest.raises(ValueError, match=r"expected \(n, R\) and \(n, R, K\)"):
        entropy_split([0.5, 0.5], [[1.0, 0.0]])
    with pytest.raises(ValueError, match="the sum of weights"):
        entropy_split([[0.5, 0.4]], [[[1.0, 0.0], [0.0, 1.0]]])
