"""The data as a method sees it: one of four variants, as tensors for one kind of backbone (F.2.3).

Extra classes make p(y|x) more random without making it harder to learn; scrambled pixels make it
harder to learn without changing p(y|x). A good measure of ignorance reacts to the second only. Both
transformations are fixed by a seed and are part of the data: all splits, methods and runs see the
same ones.

There are two kinds of task: `image_task` keeps the images, augments each batch and trains a network
end to end; `frozen_task` of `frozen.py` makes features once, on which small networks train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.batches import (
    AnnotationBatch,
    PairBatch,
    annotation_batches,
    pair_batches,
)
from secondguess.classification.pairs import PairData
from secondguess.experiments.cifar10h.augmix import augmix
from secondguess.experiments.cifar10h.data import (
    CHANNEL_DEVIATION,
    CHANNEL_MEAN,
    AnnotatedInputs,
    Cifar10H,
)
from secondguess.theory.annotations import Annotations

NUM_ORIGINAL, NUM_SUBCLASSES = 10, 3
BORDER = 4
NUM_EXAMPLES = 5000
"""Images that a network sees when it is made, for what depends on the data and is not trained."""

BatchT = TypeVar("BatchT", PairBatch, AnnotationBatch)

MakeBackbone = Callable[[float | None, torch.Generator], nn.Module]
"""From a spectral bound (or None) and a generator to a module with an attribute `num_features`."""


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
REPEATED = ("original", "extra-scrambled")
"""Variants that all seeds of a preset have; the others have seed 0 alone, as in the paper."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What a method is trained and measured on.

    Attributes:
        data: the splits, their inputs as tensors.
        variant: of the data.
        prepare: from a batch of those inputs, and a generator for training or None for evaluation,
            to what the backbone takes.
        make_backbone: makes a fresh backbone.
    """

    data: Cifar10H
    variant: Variant
    prepare: Callable[[Tensor, torch.Generator | None], Tensor]
    make_backbone: MakeBackbone

    @property
    def num_classes(self) -> int:
        """How many classes there are to predict."""
        return self.variant.num_classes(NUM_ORIGINAL)

    def batches(
        self, examples: AnnotatedInputs, *, batch_size: int, seed: int, all_pairs: bool = False
    ) -> Callable[[int], Any]:
        """A source of batches with prepared inputs and, where there are any, sub-classes.

        Args:
            examples: a split.
            batch_size: rows of a batch.
            seed: with the step, decides everything.
            all_pairs: whether a batch has all annotations of a row, or one pair.
        """
        source = annotation_batches if all_pairs else pair_batches
        plain: Callable[[int], Any] = source(
            examples.inputs, examples.responses, batch_size=batch_size, seed=seed
        )
        relabelled = self.variant.relabelled(plain, num_original=NUM_ORIGINAL, seed=seed)

        def batch_at(step: int) -> PairBatch | AnnotationBatch:
            batch = relabelled(step)
            if isinstance(batch, AnnotationBatch):
                batch = compact(batch)
            assert isinstance(batch.inputs, Tensor)  # images or features
            generator = torch.Generator().manual_seed(derived_seed(seed, step))
            return batch._replace(inputs=self.prepare(batch.inputs, generator))

        return batch_at

    def evaluation_inputs(
        self, examples: AnnotatedInputs, model: nn.Module, chunk: int = 500
    ) -> Iterator[Tensor]:
        """The inputs of a split in order, prepared for evaluation, a chunk at a time.

        Args:
            examples: a split.
            model: the inputs are put where its parameters are.
            chunk: rows at a time.
        """
        device = next(model.parameters()).device
        for rows in examples.inputs.split(chunk):
            yield self.prepare(rows, None).to(device)

    def responses(self, examples: AnnotatedInputs, *, seed: int) -> PairData:
        """The responses of a split, with sub-classes drawn once where there are any."""
        split = self.variant.subclass_probs(NUM_ORIGINAL)
        if split is None:
            return examples.responses
        rng = np.random.default_rng([seed, 3])
        counts = rng.multinomial(examples.responses.counts(), split)
        return PairData.from_counts(counts.reshape(len(counts), NUM_ORIGINAL * NUM_SUBCLASSES))


def image_task(data: Cifar10H, variant: Variant, make_network: Callable[..., nn.Module]) -> Task:
    """Images for a network: augmented in training, then scrambled, then normalised.

    Args:
        data: the images.
        variant: of the data.
        make_network: from prepared images (the first `NUM_EXAMPLES`), `spectral_bound` and
            `generator` to a backbone.
    """

    def prepare(images: Tensor, generator: torch.Generator | None) -> Tensor:
        levels = images.float() if generator is None else augmix(images, generator=generator)
        mean, deviation = (
            255 * torch.tensor(values).view(3, 1, 1) for values in (CHANNEL_MEAN, CHANNEL_DEVIATION)
        )
        return (variant.scramble(levels) - mean) / deviation

    pretraining, annotated = (
        torch.from_numpy(part.inputs) for part in (data.pretraining, data.annotated)
    )
    examples = prepare(pretraining[:NUM_EXAMPLES], None)
    return Task(
        data=with_inputs(data, pretraining, annotated),
        variant=variant,
        prepare=prepare,
        make_backbone=lambda bound, generator: make_network(
            examples, spectral_bound=bound, generator=generator
        ),
    )


def compact(batch: AnnotationBatch) -> AnnotationBatch:
    """The same annotations in as few places as the fullest row needs: pairs cost their square.

    >>> labels, multiplicity = torch.tensor([[0, 1, 2]] * 2), torch.tensor([[0, 50, 0], [9, 0, 41]])
    >>> compact(AnnotationBatch(torch.zeros(2, 1), labels, multiplicity)).labels
    tensor([[1, 0],
            [2, 0]])
    """
    places = int((batch.multiplicity > 0).sum(dim=1).max())
    order = batch.multiplicity.argsort(dim=1, descending=True, stable=True)[:, :places]
    return batch._replace(
        labels=batch.labels.gather(1, order), multiplicity=batch.multiplicity.gather(1, order)
    )


def derived_seed(*parts: int) -> int:
    """One seed from several, without the overlaps that adding them would bring.

    >>> derived_seed(0, 1) == derived_seed(0, 1), derived_seed(0, 1) == derived_seed(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def with_inputs(data: Cifar10H, pretraining: Tensor, annotated: Tensor) -> Cifar10H:
    """The same splits, with these inputs in place of the images."""
    return Cifar10H(
        AnnotatedInputs(pretraining, data.pretraining.responses, data.pretraining.labels),
        AnnotatedInputs(annotated, data.annotated.responses, data.annotated.labels),
    )


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
