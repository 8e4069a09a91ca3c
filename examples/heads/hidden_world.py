"""A K-class world in which part of the input is hidden from the model, with known probabilities.

An input is a point in the square and one of several hidden contexts. The true p(y|x) is a softmax
of a smooth score of the point, plus what the context adds, which is more on the right of the square
than on the left: there is much to learn from the point, and a varying amount that nobody can learn
without the context. The model sees the point only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from secondguess.classification.batches import PairBatch


@dataclass(frozen=True)
class HiddenWorld:
    """A world with its scores.

    Attributes:
        frequencies: `(2, K)`, and `phases`, `(K,)`: the smooth score of each class.
        contexts: `(C, K)`: what each context adds to the scores.
    """

    frequencies: NDArray[np.float64]
    phases: NDArray[np.float64]
    contexts: NDArray[np.float64]

    @staticmethod
    def random(num_classes: int, *, num_contexts: int = 4, seed: int = 0) -> HiddenWorld:
        """A world with random scores."""
        rng = np.random.default_rng(seed)
        return HiddenWorld(
            frequencies=rng.normal(scale=1.5, size=(2, num_classes)),
            phases=rng.uniform(0, 2 * np.pi, num_classes),
            contexts=rng.normal(scale=3.0, size=(num_contexts, num_classes)),
        )

    def sample(
        self, num_rows: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points `(n, 2)` and the true p(y|x) of point and hidden context, `(n, K)`."""
        points = rng.uniform(-1, 1, size=(num_rows, 2))
        context = rng.integers(len(self.contexts), size=num_rows)
        return points, self._softmax(points, self.contexts[context])

    def calibrated_joint(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """`(n, K, K)`: the joint of a model that knows everything but the context."""
        joint = 0.0
        for context in self.contexts:
            probs = self._softmax(points, context)
            joint = joint + probs[:, :, None] * probs[:, None, :] / len(self.contexts)
        return np.asarray(joint)

    def batch_at(self, step: int, *, batch_size: int, seed: int) -> PairBatch:
        """Fresh inputs with two responses each, from the seed and the step alone."""
        rng = np.random.default_rng([seed, step])
        points, probs = self.sample(batch_size, rng)
        ends = probs.cumsum(axis=1)[:, None, :-1]
        pairs = torch.from_numpy((rng.random((batch_size, 2, 1)) > ends).sum(axis=2))
        inputs = torch.from_numpy(points.astype(np.float32))
        return PairBatch(inputs, pairs[:, 0], pairs[:, 1])

    def _softmax(
        self, points: NDArray[np.float64], context: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        strength = (points[:, :1] + 1) / 2
        scores = 1.5 * np.sin(points @ self.frequencies * 2 + self.phases) + strength * context
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)
