"""Batched operations against Pillow's, image by image, and what the mixture has to obey."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from secondguess.experiments.cifar10h import augmix as ours
from secondguess.experiments.cifar10h.augmix import AugMixConfig, augmix, flip_and_crop

STRENGTHS = torch.tensor([0.013, 0.1, 0.21, 0.28, 0.3])


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Noise, a ramp, a flat image, few levels, and a dark image."""
    rng = np.random.default_rng(0)
    noise = rng.integers(256, size=(3, 32, 32))
    ramp = np.broadcast_to(np.arange(32) * 3 + 40, (3, 32, 32))
    flat = np.full((3, 32, 32), 77)
    few = rng.choice([3, 90, 200], size=(3, 32, 32))
    dark = rng.integers(20, size=(3, 32, 32))
    return torch.from_numpy(np.stack([noise, ramp, flat, few, dark]).astype(np.uint8))


def by_pillow(images: Tensor, operation: Callable[[Image.Image, int], Image.Image]) -> Tensor:
    results = [
        np.asarray(operation(Image.fromarray(image.movedim(0, -1).numpy()), i))
        for i, image in enumerate(images)
    ]
    return torch.from_numpy(np.stack(results)).movedim(-1, 1)


def affine(*coefficients: float) -> Callable[[Image.Image, int], Image.Image]:
    return lambda image, _: image.transform(
        image.size, Image.Transform.AFFINE, coefficients, resample=Image.Resampling.BILINEAR
    )


def test_operations_on_levels_are_pillows_exactly(images: Tensor) -> None:
    assert ours.autocontrast(images).equal(by_pillow(images, lambda x, i: ImageOps.autocontrast(x)))
    assert ours.equalize(images).equal(by_pillow(images, lambda x, i: ImageOps.equalize(x)))
    assert ours.posterize(images, STRENGTHS).equal(
        by_pillow(images, lambda x, i: ImageOps.posterize(x, 4 - int(4 * STRENGTHS[i])))
    )
    assert ours.solarize(images, STRENGTHS).equal(
        by_pillow(images, lambda x, i: ImageOps.solarize(x, 256 - int(256 * STRENGTHS[i])))
    )


@pytest.mark.parametrize("sign", [-1, 1])
def test_warps_are_pillows_to_one_level(images: Tensor, sign: int) -> None:
    def check(kind: int, reference: Callable[[Image.Image, int], Image.Image]) -> None:
        kinds = torch.full((len(images),), kind)
        transforms = ours._warp_transforms(kinds, sign * STRENGTHS, size=32)
        difference = ours.warp(images, transforms).int() - by_pillow(images, reference).int()
        assert difference.abs().max() <= 1
        assert (difference != 0).float().mean() < 0.02

    strengths = [sign * float(strength) for strength in STRENGTHS]
    check(0, lambda x, i: x.rotate(int(30 * strengths[i]), resample=Image.Resampling.BILINEAR))
    check(1, lambda x, i: affine(1, 0.3 * strengths[i], 0, 0, 1, 0)(x, i))
    check(2, lambda x, i: affine(1, 0, 0, 0.3 * strengths[i], 1, 0)(x, i))
    check(3, lambda x, i: affine(1, 0, int(strengths[i] * 32 / 3), 0, 1, 0)(x, i))
    check(4, lambda x, i: affine(1, 0, 0, 0, 1, int(strengths[i] * 32 / 3))(x, i))


def test_flips_and_crops_are_shifted_copies(images: Tensor) -> None:
    many = images[:1].repeat(200, 1, 1, 1)
    cut = flip_and_crop(many, 4, generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(images[0], (4,) * 4)
    possible = {
        padded[:, y : y + 32, x : x + 32].flip(flip).numpy().tobytes()
        for y in range(9)
        for x in range(9)
        for flip in ((), (2,))
    }
    seen = {image.numpy().tobytes() for image in cut}
    assert seen <= possible
    assert len(seen) > 80  # of 162 possible ones, in 200 draws


def test_the_generator_decides_everything_and_levels_stay_levels(images: Tensor) -> None:
    before = torch.get_rng_state()
    first = augmix(images, generator=torch.Generator().manual_seed(1))
    again = augmix(images, generator=torch.Generator().manual_seed(1))
    other = augmix(images, generator=torch.Generator().manual_seed(2))
    assert torch.equal(before, torch.get_rng_state())
    assert first.equal(again)
    assert not first.equal(other)
    assert first.min() >= 0
    assert first.max() <= 255.001


def test_an_image_is_mixed_with_itself(images: Tensor) -> None:
    """Of single operations, only posterize moves the centre of this flat image: from 77 to 64."""
    config = AugMixConfig(padding=None, max_depth=1)
    flat = images[2:3].repeat(64, 1, 1, 1)
    mixed = augmix(flat, generator=torch.Generator().manual_seed(0), config=config)
    centre = mixed[:, :, 12:20, 12:20]
    assert centre.min() > 63.9
    assert centre.max() < 77.1
    assert 0 < (centre.mean(dim=(1, 2, 3)) < 76.9).sum() < 64
