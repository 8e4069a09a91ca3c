"""Small worlds whose truth is known exactly: the oracle of the theory tests.

A world has finitely many inputs. Each has a probability, a true p(.|x), and a group: the inputs of
one group look alike to the model. So the calibrated pair predictor, the mean over a group of
p(.|x) p(.|x)^T, is known exactly, and every expectation is a finite sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray


@dataclass(frozen=True)
class World:
    """Inputs 0..n-1.

    Attributes:
        input_probs: `(n,)`, p(X = x).
        true_probs: `(n, K)`, p(y|x).
        groups: `(n,)`, what the model can see of x.
    """

    input_probs: NDArray[np.float64]
    true_probs: NDArray[np.float64]
    groups: NDArray[np.int64]

    @property
    def num_classes(self) -> int:
        return self.true_probs.shape[1]

    def group_mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """E[values | group], given back to every input of the group."""
        averages = np.empty_like(values, dtype=np.float64)
        for group in np.unique(self.groups):
            members = self.groups == group
            weights = self.input_probs[members] / self.input_probs[members].sum()
            averages[members] = np.tensordot(weights, values[members], axes=1)
        return averages

    def group_moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and covariance of p(Y|X) in the group of each input."""
        mean = self.group_mean(self.true_probs)
        centred = self.true_probs - mean
        return mean, self.group_mean(centred[:, :, None] * centred[:, None, :])

    def calibrated_joint(self) -> NDArray[np.float64]:
        """`(n, K, K)`: E[p(y1|X) p(y2|X) | group]."""
        return self.group_mean(self.true_probs[:, :, None] * self.true_probs[:, None, :])

    def overconfident_joint(self) -> NDArray[np.float64]:
        """`(n, K, K)`: the right marginals, but y1 and y2 independent: it never cheats."""
        marginal = self.group_mean(self.true_probs)
        return marginal[:, :, None] * marginal[:, None, :]

    def outputs(self, joint: NDArray[np.float64]) -> NDArray[np.int64]:
        """`(n,)`: a number for each distinct output of the model, equal up to 1e-12."""
        flat = joint.reshape(len(joint), -1)
        near = np.abs(flat[:, None, :] - flat[None, :, :]).max(axis=2) < 1e-12
        return near.argmax(axis=1)

    def expectation(self, values: NDArray, event: NDArray[np.bool_] | None = None) -> float:
        """E[values | event]."""
        weights = self.input_probs if event is None else self.input_probs * event
        return float(np.sum(weights * values) / weights.sum())


def coins() -> World:
    """A known fair coin (group 0), and three coins of .2, .5, .8 that look alike (group 1)."""
    heads = np.array([0.5, 0.2, 0.5, 0.8])
    return World(
        input_probs=np.array([0.4, 0.2, 0.2, 0.2]),
        true_probs=np.stack([1 - heads, heads], axis=1),
        groups=np.array([0, 1, 1, 1]),
    )


def two_point() -> World:
    """Each p(y|x) is zero or one constant for that y: the hallucination bound is tight here.

    A question with three possible answers, of which the truth allows two at a time; one group in
    which the model does not know which, and one in which it does.
    """
    allowed = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5], [0.5, 0.5, 0.0]])
    return World(
        input_probs=np.array([0.3, 0.1, 0.2, 0.4]),
        true_probs=allowed,
        groups=np.array([0, 0, 0, 1]),
    )


def random_world(
    rng: np.random.Generator,
    *,
    num_inputs: int = 12,
    num_classes: int = 4,
    num_groups: int = 3,
    sparsity: float = 0.0,
) -> World:
    """A K-class world; with `sparsity`, that share of the responses is impossible."""
    weights = rng.dirichlet(np.ones(num_inputs))
    raw = rng.gamma(0.7, size=(num_inputs, num_classes))
    raw *= rng.random(raw.shape) >= sparsity
    raw[np.arange(num_inputs), rng.integers(num_classes, size=num_inputs)] += 0.1
    groups = rng.integers(num_groups, size=num_inputs)
    return World(weights, raw / raw.sum(axis=1, keepdims=True), groups)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Random worlds from hypothesis: from one input to a dozen, with and without zeros."""
    seed = draw(st.integers(0, 2**32 - 1))
    return random_world(
        np.random.default_rng(seed),
        num_inputs=draw(st.integers(1, 12)),
        num_classes=draw(st.integers(2, 5)),
        num_groups=draw(st.integers(1, 4)),
        sparsity=draw(st.sampled_from([0.0, 0.3, 0.6])),
    )
