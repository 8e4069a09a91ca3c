"""A pair model against the naive network, image by image and seed by seed, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.experiments.cifar10h.data import AnnotatedInputs
from secondguess.experiments.cifar10h.evaluation import measure_images
from secondguess.experiments.cifar10h.tables import method_of
from secondguess.experiments.cifar10h.variants import VARIANTS


class Difference(NamedTuple):
    """How much more one method has than another, on the same images with the same seeds.

    Attributes:
        mean: over seeds and images.
        standard_error: with other seeds and other images.
        standard_error_of_seeds: with other seeds, but the same images.
    """

    mean: float
    standard_error: float
    standard_error_of_seeds: float


class FromNaive(NamedTuple):
    """Differences of a pair model from the naive network; those of the accuracy in per cent."""

    accuracy: Difference
    kl: Difference


def crossed_difference(ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> Difference:
    """The mean difference, with its standard error where seeds and images are both a sample.

    All seeds are judged on the same images, so more seeds do not average out the luck of these.
    With effects of variance a for a seed, b for an image and c for both, the mean over S seeds and
    n images has variance a/S + b/n + c/(S n), estimated by the mean squares of the two-way table.

    >>> rng = np.random.default_rng(0)
    >>> images = rng.normal(size=400)  # differ, each by the same amount with every seed
    >>> found = crossed_difference(np.tile(images, (8, 1)), np.zeros((8, 400)))
    >>> found.standard_error_of_seeds, f"{found.standard_error:.2f}"
    (0.0, '0.05')

    Args:
        ours: `(S, n)`, at least two of each.
        theirs: the same of the other method.
    """
    difference = np.asarray(ours, dtype=float) - theirs
    num_seeds, num_images = difference.shape
    by_seed, by_image = difference.mean(axis=1), difference.mean(axis=0)
    rest = difference - by_seed[:, None] - by_image + difference.mean()
    of_seeds = by_seed.var(ddof=1) / num_seeds
    of_images = by_image.var(ddof=1) / num_images
    of_both = np.square(rest).sum() / ((num_seeds - 1) * (num_images - 1)) / difference.size
    # What belongs to a seed and an image together is in both of the first two.
    variance = max(of_seeds + of_images - of_both, of_seeds, of_images)
    return Difference(*map(float, (difference.mean(), np.sqrt(variance), np.sqrt(of_seeds))))


def compare_with_naive(
    directory: Path, variant: str, row: str, seeds: Sequence[int], test: AnnotatedInputs
) -> FromNaive:
    """What a row has more than the naive network, from the predictions that the seeds kept.

    Args:
        directory: OUT/cifar10h/<preset>.
        variant: a key of `VARIANTS`.
        row: of a pair model.
        seeds: that have both, at least two.
        test: the images that were predicted.
    """

    def of_images(row: str) -> tuple[NDArray, NDArray]:
        """Correctness in per cent and divergence, `(seeds, images)` each."""
        measured = []
        for seed in seeds:
            part = directory / f"seed-{seed}" / "parts" / variant / method_of(row)
            with np.load(part / "arrays.npz") as arrays:
                measured.append(measure_images(arrays[f"{row}/probs"], test, VARIANTS[variant]))
        correct, divergence = map(np.stack, zip(*measured, strict=True))
        return 100.0 * correct, divergence

    ours, theirs = of_images(row), of_images("naive")
    return FromNaive(*map(crossed_difference, ours, theirs))
