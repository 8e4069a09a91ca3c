"""A variant of the data as tensors for one kind of backbone, and the backbones themselves.

Two kinds: `frozen_task` makes features of a frozen network once, on which small networks train;
`image_task` keeps the images, augments each batch and trains a wide ResNet end to end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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
from secondguess.experiments.cifar10h.features import BLOCK, frozen_features
from secondguess.experiments.cifar10h.variants import NUM_SUBCLASSES, Variant
from secondguess.models.initial import lecun_linear
from secondguess.models.spectral import SpectralLinear
from secondguess.models.wide_resnet import WideResNet

NUM_ORIGINAL = 10

MakeBackbone = Callable[[float | None, torch.Generator], nn.Module]
"""From a spectral bound (or None) and a generator to a module with an attribute `num_features`."""


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


class FeatureMLP(nn.Module):
    """A small network on features: a linear layer, a relu and a residual block.

    >>> network = FeatureMLP(1280, spectral_bound=6.0)
    >>> network(torch.zeros(2, 1280)).shape
    torch.Size([2, 256])

    Args:
        num_inputs: size of the features.
        width: size of both layers.
        spectral_bound: bound on the norm of both layers (SNGP); None for none.
        generator: source of the initial values; without it, torch's default generator.
    """

    def __init__(
        self,
        num_inputs: int,
        width: int = 256,
        *,
        spectral_bound: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.first = _linear(num_inputs, width, spectral_bound, generator)
        self.second = _linear(width, width, spectral_bound, generator)
        self.num_features = width

    def forward(self, features: Tensor) -> Tensor:
        """Features `(n, num_inputs)` to `(n, width)`."""
        stream = self.first(features).relu()
        return stream + self.second(stream).relu()


def frozen_task(
    data: Cifar10H,
    variant: Variant,
    *,
    cache_dir: Path,
    width: int = 256,
    num_copies: int = 0,
    extractor: nn.Module | None = None,
    report: Callable[[str], None] | None = None,
) -> Task:
    """Features of all images, scrambled where the variant says so, and perhaps of augmented copies.

    Features are standardised by the mean and deviation of the pretraining ones. Training draws a
    row's features from those of the image itself and of its augmented copies; evaluation takes
    those of the image.

    Args:
        data: the images.
        variant: of the data.
        cache_dir: folder of the feature files.
        width: of the small networks.
        num_copies: augmented copies of each image, made by AugMix once and for all.
        extractor: see `frozen_features`.
        report: told how far the feature pass is, a line at a time.
    """

    def features(images: NDArray[np.uint8]) -> Tensor:
        """Of the images and their copies, `(n, 1 + num_copies, num_features)`."""
        copies = [torch.from_numpy(images)]
        for copy in range(num_copies):
            generator = torch.Generator().manual_seed(derived_seed(variant.seed, copy))
            chunks = [augmix(chunk, generator=generator) for chunk in copies[0].split(500)]
            copies.append(torch.cat(chunks).round().to(torch.uint8))
        show = _pass_reporter(report) if report else None
        settings: dict[str, Any] = {"cache_dir": cache_dir, "extractor": extractor, "show": show}
        return torch.stack(
            [frozen_features(variant.scramble(copy).numpy(), **settings) for copy in copies], dim=1
        )

    pretraining, annotated = features(data.pretraining.inputs), features(data.annotated.inputs)
    mean = pretraining[:, 0].mean(dim=0)
    deviation = pretraining[:, 0].std(dim=0).clamp_min(1e-6)
    # In place: with all images each of the two is hundreds of megabytes.
    inputs = (part.sub_(mean).div_(deviation) for part in (pretraining, annotated))
    num_inputs = len(mean)

    def prepare(rows: Tensor, generator: torch.Generator | None) -> Tensor:
        if generator is None or num_copies == 0:
            return rows[:, 0]
        chosen = torch.randint(1 + num_copies, (len(rows),), generator=generator)
        return rows[torch.arange(len(rows)), chosen]

    return Task(
        data=_with_inputs(data, *inputs),
        variant=variant,
        prepare=prepare,
        make_backbone=lambda bound, generator: FeatureMLP(
            num_inputs, width, spectral_bound=bound, generator=generator
        ),
    )


def image_task(data: Cifar10H, variant: Variant, *, depth: int, width: int) -> Task:
    """Images for a wide ResNet: augmented in training, then scrambled, then normalised.

    Args:
        data: the images.
        variant: of the data.
        depth: of the network.
        width: of the network.
    """

    def prepare(images: Tensor, generator: torch.Generator | None) -> Tensor:
        levels = images.float() if generator is None else augmix(images, generator=generator)
        mean, deviation = (
            255 * torch.tensor(values).view(3, 1, 1) for values in (CHANNEL_MEAN, CHANNEL_DEVIATION)
        )
        return (variant.scramble(levels) - mean) / deviation

    images = (torch.from_numpy(part.inputs) for part in (data.pretraining, data.annotated))
    return Task(
        data=_with_inputs(data, *images),
        variant=variant,
        prepare=prepare,
        make_backbone=lambda bound, generator: WideResNet(
            depth=depth, width=width, spectral_bound=bound, generator=generator
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


def _linear(
    num_inputs: int, num_outputs: int, bound: float | None, generator: torch.Generator | None
) -> nn.Module:
    if bound is not None:
        return SpectralLinear(num_inputs, num_outputs, bound=bound, generator=generator)
    return lecun_linear(num_inputs, num_outputs, generator=generator)


def _pass_reporter(report: Callable[[str], None]) -> Callable[[int, int], None]:
    start = time.perf_counter()
    computed = 0

    def show(done: int, total: int) -> None:
        nonlocal computed
        computed += 1
        speed = computed * BLOCK / (time.perf_counter() - start)
        report(f"features of {done:,} of {total:,} images, {speed:.0f} a second")

    return show


def _with_inputs(data: Cifar10H, pretraining: Tensor, annotated: Tensor) -> Cifar10H:
    return Cifar10H(
        AnnotatedInputs(pretraining, data.pretraining.responses, data.pretraining.labels),
        AnnotatedInputs(annotated, data.annotated.responses, data.annotated.labels),
    )
