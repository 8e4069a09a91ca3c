"""The four variants of the data: extra classes, scrambled pixels, both, or neither (F.2.3).

Extra classes make p(y|x) more random without making it harder to learn; scrambled pixels make it
harder to learn without changing p(y|x). A good measure of ignorance reacts to the second only.

Both transformations are fixed by a seed and are part of the data: all splits, methods and runs see
the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.batches import AnnotationBatch, PairBatch
from secondguess.theory.annotations import Annotations

NUM_SUBCLASSES = 3
BORDER = 4

BatchT = TypeVar("BatchT", PairBatch, AnnotationBatch)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A variant of the data.

    >>> VARIANTS["extra-scrambled"]
    Variant(extra_classes=True, scrambled=True, seed=0)

    Attributes:
        extra_classes: whether each class is split into three at random.
        scrambled: whether the pixels inside the border are permuted.
        seed: decides the split and the permutation.
    """

    extra_classes: bool = False
    scrambled: bool = False
    seed: int = 0

    def num_classes(self, num_original: int = 10) -> int:
        """How many classes there are to predict."""
        return num_original * (NUM_SUBCLASSES if self.extra_classes else 1)

    def subclass_probs(self, num_original: int = 10) -> FloatArray | None:
        """p(sub-class | class), `(num_original, 3)`, or None where classes are left alone.

        Each row is one draw from Dirichlet(1, 1, 1).
        """
        if not self.extra_classes:
            return None
        rng = np.random.default_rng([self.seed, 0])
        return rng.dirichlet(np.ones(NUM_SUBCLASSES), size=num_original)

    def annotations(self, counts: IntArray) -> Annotations:
        """What counts of the original classes say of the classes to predict (appendix F.2.4).

        The share of a sub-class is p(sub-class | class) times that of its class, and the estimate
        of its square has the square of that factor.

        Args:
            counts: `(n, num_original)`.
        """
        whole = Annotations.from_counts(counts)
        split = self.subclass_probs(counts.shape[1])
        if split is None:
            return whole
        totals = counts.sum(axis=1).astype(np.float64)[:, None]
        scale = split.reshape(-1)
        shares = np.repeat(whole.shares, NUM_SUBCLASSES, axis=1) * scale
        return Annotations(shares, (shares * totals - scale) * shares / (totals - 1))

    def scramble(self, images: Tensor) -> Tensor:
        """The same permutation of the pixels inside a 4-pixel border, in all channels and images.

        >>> images = torch.arange(2 * 32 * 32).reshape(1, 2, 32, 32)
        >>> scrambled = Variant(scrambled=True).scramble(images)
        >>> scrambled[..., :4, :].equal(images[..., :4, :])  # the border stays
        True
        >>> scrambled[0, 1].equal(scrambled[0, 0] + 32 * 32)  # channels move together
        True

        Args:
            images: `(n, c, h, w)`, augmented already where they are to be augmented.
        """
        if not self.scrambled:
            return images
        height, width = (size - 2 * BORDER for size in images.shape[-2:])
        order = np.random.default_rng([self.seed, 1]).permutation(height * width)
        scrambled = images.clone()
        inside = scrambled[..., BORDER:-BORDER, BORDER:-BORDER]
        pixels = inside.flatten(-2)[..., torch.from_numpy(order).to(images.device)]
        inside.copy_(pixels.unflatten(-1, (height, width)))
        return scrambled

    def relabelled(
        self, batch_at: Callable[[int], BatchT], *, num_original: int = 10, seed: int
    ) -> Callable[[int], BatchT]:
        """Batches in which every response has a sub-class, drawn afresh at each step.

        The sub-classes of class y are 3y, 3y + 1 and 3y + 2.

        Args:
            batch_at: the source of batches with the original classes.
            num_original: how many original classes there are.
            seed: with the step, decides the draws.
        """
        split = self.subclass_probs(num_original)
        if split is None:
            return batch_at

        def relabelled_batch(step: int) -> BatchT:
            rng = np.random.default_rng([seed, step, 2])
            batch = batch_at(step)
            if isinstance(batch, PairBatch):
                y1, y2 = (_draw_subclass(labels, split, rng) for labels in (batch.y1, batch.y2))
                return PairBatch(batch.inputs, y1, y2)
            return _split_annotations(batch, split, rng)

        return relabelled_batch


VARIANTS = {
    "original": Variant(),
    "extra-classes": Variant(extra_classes=True),
    "scrambled": Variant(scrambled=True),
    "extra-scrambled": Variant(extra_classes=True, scrambled=True),
}


def _draw_subclass(labels: Tensor, split: FloatArray, rng: np.random.Generator) -> Tensor:
    ends = split.cumsum(axis=1)[:, :-1]  # the last end is 1, up to rounding
    drawn = (rng.random((len(labels), 1)) >= ends[labels.numpy()]).sum(axis=1)
    return NUM_SUBCLASSES * labels + torch.from_numpy(drawn)


def _split_annotations(
    batch: AnnotationBatch, split: FloatArray, rng: np.random.Generator
) -> AnnotationBatch:
    """Each annotation gets a sub-class of its own: counts of a class become multinomial counts."""
    counts = rng.multinomial(batch.multiplicity.numpy(), split[batch.labels.numpy()])
    labels = NUM_SUBCLASSES * batch.labels.unsqueeze(-1) + torch.arange(NUM_SUBCLASSES)
    return AnnotationBatch(batch.inputs, labels.flatten(1), torch.from_numpy(counts).flatten(1))
