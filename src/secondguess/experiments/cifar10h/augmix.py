"""AugMix (Hendrycks et al. 2019) for whole batches of byte images, in torch.

Each image goes through three chains of one to three random operations; the results are averaged
with Dirichlet weights and mixed with the image itself by a Beta weight. The operations compute what
Pillow's do, on which the reference implementation rests (pixels in between may differ by a level),
but a whole batch at a time: the chains that drew the same operation share one kernel, and all
rotations, shears and translations are one warp.

Axes: images `(n, 3, h, w)`, bytes; h equals w.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad


@dataclass(frozen=True, kw_only=True)
class AugMixConfig:
    """How strongly images are augmented; the defaults are the reference implementation's.

    >>> AugMixConfig(severity=1.0).num_chains
    3

    Attributes:
        num_chains: chains that are mixed.
        max_depth: operations of a chain, from one to this many with equal chances.
        severity: strength of the operations, up to 10.
        padding: pixels by which an image may be shifted beforehand, by random cropping; images are
            also mirrored with probability one half. None for neither.
    """

    num_chains: int = 3
    max_depth: int = 3
    severity: float = 3.0
    padding: int | None = 4


def augmix(
    images: Tensor, *, generator: torch.Generator, config: AugMixConfig | None = None
) -> Tensor:
    """Augmented images as float32 levels from 0 to 255.

    >>> images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    >>> augmix(images, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 32, 32])

    Args:
        images: `(n, 3, h, h)` bytes.
        generator: the only source of randomness.
        config: the strengths.
    """
    config = config or AugMixConfig()
    if config.padding is not None:
        images = flip_and_crop(images, config.padding, generator=generator)
    num_images, num_chains = len(images), config.num_chains

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator)

    chains = images.repeat_interleave(num_chains, dim=0)
    depths = torch.randint(1, config.max_depth + 1, (len(chains),), generator=generator)
    for depth in range(config.max_depth):
        rows = (depths > depth).nonzero().squeeze(1)
        # The reference draws a strength from [0.1, severity] for each operation.
        strengths = (0.1 + uniform(len(rows)) * (config.severity - 0.1)) / 10
        signs = torch.where(uniform(len(rows)) > 0.5, -1.0, 1.0)
        kinds = torch.randint(NUM_OPERATIONS, (len(rows),), generator=generator)
        chains[rows] = _apply(chains[rows], kinds, strengths, signs)

    # Dirichlet(1, ..., 1): exponential variables over their sum. Beta(1, 1) is uniform.
    shares = -torch.log1p(-uniform(num_images, num_chains, 1, 1, 1))
    shares = shares / shares.sum(dim=1, keepdim=True)
    mixed = (shares * chains.unflatten(0, (num_images, num_chains))).sum(dim=1)
    return torch.lerp(images.float(), mixed, uniform(num_images, 1, 1, 1))


def flip_and_crop(images: Tensor, padding: int, *, generator: torch.Generator) -> Tensor:
    """Mirror each image with probability one half and shift it by up to `padding` pixels.

    >>> images = torch.ones(4, 3, 32, 32, dtype=torch.uint8)
    >>> flip_and_crop(images, 4, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])

    Args:
        images: `(n, 3, h, h)`.
        padding: black pixels added on each side before an image of the old size is cut out.
        generator: source of randomness.
    """
    number, size = len(images), images.shape[-1]
    corners = torch.randint(2 * padding + 1, (2, number, 1), generator=generator)
    mirrored = torch.rand(number, 1, generator=generator) < 0.5
    steps = torch.arange(size)
    columns = corners[1] + torch.where(mirrored, size - 1 - steps, steps)
    rows = corners[0] + steps
    padded = pad(images, (padding,) * 4).movedim(1, -1)
    cut = padded[torch.arange(number)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return cut.movedim(-1, 1)


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel so that its darkest level becomes 0 and its brightest 255.

    >>> autocontrast(torch.tensor([[[[10, 20, 30]]]], dtype=torch.uint8))
    tensor([[[[  0, 127, 255]]]], dtype=torch.uint8)
    """
    low, high = images.amin((2, 3), keepdim=True).double(), images.amax((2, 3), keepdim=True)
    # In the same order and rounding as Pillow, because the result is cut to a whole level (a plain
    # 255 / tensor is a product with the reciprocal in torch).
    scale = torch.full_like(low, 255.0) / (high - low)
    stretched = (images * scale + -low * scale).clamp(0, 255).to(torch.uint8)
    return torch.where(high > low, stretched, images)


def equalize(images: Tensor) -> Tensor:
    """Move each channel's levels so that about as many pixels fall on each.

    >>> equalize(torch.full((1, 1, 2, 2), 7, dtype=torch.uint8))  # a single level stays
    tensor([[[[7, 7],
              [7, 7]]]], dtype=torch.uint8)
    """
    levels = images.flatten(2).long()
    histogram = torch.zeros(*levels.shape[:2], 256, dtype=torch.int64)
    histogram.scatter_add_(2, levels, torch.ones_like(levels))
    brightest = histogram.gather(2, levels.amax(2, keepdim=True))
    step = (levels.shape[2] - brightest) // 255
    below = histogram.cumsum(2) - histogram
    table = ((step // 2 + below) // step.clamp_min(1)).clamp_max(255)
    equal = table.gather(2, levels)
    return torch.where(step > 0, equal, levels).to(torch.uint8).view_as(images)


def posterize(images: Tensor, strengths: Tensor) -> Tensor:
    """Keep the highest 4 - int(4 s) bits of each level.

    >>> posterize(torch.tensor([[[[255]]]], dtype=torch.uint8), torch.tensor([0.3]))
    tensor([[[[224]]]], dtype=torch.uint8)
    """
    dropped = 4 + (4 * strengths).int()
    mask = (255 >> dropped << dropped).to(torch.uint8)
    return images & mask.view(-1, 1, 1, 1)


def solarize(images: Tensor, strengths: Tensor) -> Tensor:
    """Invert the levels from 256 - int(256 s) upwards.

    >>> solarize(torch.tensor([[[[100, 200]]]], dtype=torch.uint8), torch.tensor([0.3]))
    tensor([[[[100,  55]]]], dtype=torch.uint8)
    """
    threshold = 256 - (256 * strengths).int()
    return torch.where(images.int() >= threshold.view(-1, 1, 1, 1), 255 - images, images)


def warp(images: Tensor, transforms: Tensor) -> Tensor:
    """Each output pixel (x, y) from the input at (a x + b y + c, d x + e y + f); black outside.

    Coordinates are pixels from the upper left corner, pixel centres at one half; levels in between
    are interpolated and cut to whole ones.

    >>> shift = torch.tensor([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])
    >>> warp(torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8), shift)
    tensor([[[[2, 0],
              [4, 0]]]], dtype=torch.uint8)

    Args:
        images: `(n, c, h, w)` bytes.
        transforms: `(n, 2, 3)`, rows (a, b, c) and (d, e, f).
    """
    height, width = images.shape[-2:]
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    corners = torch.stack([x, y, torch.ones_like(x)], dim=-1).view(1, -1, 3)
    source = (corners @ transforms.mT).view(-1, height, width, 2)
    size = torch.tensor([width, height])
    inside = ((source >= 0) & (source < size)).all(dim=-1).unsqueeze(1)
    grid = 2 * source / size - 1
    sampled = grid_sample(
        images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    # Rounding of the coordinates must not turn a whole level into the one below.
    return (torch.where(inside, sampled, 0.0) + 1e-3).to(torch.uint8)


def rotation(strengths: Tensor, size: int) -> Tensor:
    """Transforms for `warp` that rotate by int(30 s) degrees about the centre, `(n, 2, 3)`.

    >>> rotation(torch.tensor([3.0]), size=32)[0, 0].round()  # 90 degrees: x from 32 - y
    tensor([-0., -1., 32.])
    """
    angle = (30 * strengths).int() * (math.pi / 180)
    cos, sin, centre = angle.cos(), angle.sin(), size / 2
    return _rows(
        (cos, -sin, centre * (1 - cos + sin)),
        (sin, cos, centre * (1 - sin - cos)),
    )


def _rows(*rows: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def _warp_transforms(kinds: Tensor, strengths: Tensor, size: int) -> Tensor:
    """Rotation, shear along x or y, shift along x or y, by signed strength."""
    zero, one = torch.zeros_like(strengths), torch.ones_like(strengths)
    shift = (strengths * (size / 3)).int().float()
    choices = torch.stack(
        [
            rotation(strengths, size),
            _rows((one, 0.3 * strengths, zero), (zero, one, zero)),
            _rows((one, zero, zero), (0.3 * strengths, one, zero)),
            _rows((one, zero, shift), (zero, one, zero)),
            _rows((one, zero, zero), (zero, one, shift)),
        ]
    )
    return choices[kinds, torch.arange(len(kinds))]


_LEVEL_OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda images, _: autocontrast(images),
    lambda images, _: equalize(images),
    posterize,
    solarize,
)
_NUM_WARPS = 5
NUM_OPERATIONS = len(_LEVEL_OPERATIONS) + _NUM_WARPS


def _apply(images: Tensor, kinds: Tensor, strengths: Tensor, signs: Tensor) -> Tensor:
    """One operation on each image; kinds beyond the level operations are warps."""
    result = torch.empty_like(images)
    for kind, operation in enumerate(_LEVEL_OPERATIONS):
        rows = (kinds == kind).nonzero().squeeze(1)
        result[rows] = operation(images[rows], strengths[rows])
    rows = (kinds >= len(_LEVEL_OPERATIONS)).nonzero().squeeze(1)
    warps = kinds[rows] - len(_LEVEL_OPERATIONS)
    transforms = _warp_transforms(warps, (signs * strengths)[rows], images.shape[-1])
    result[rows] = warp(images[rows], transforms)
    return result
