"""A small residual network for small images that is made to be trained in minutes on a CPU.

Its ideas are those of the CIFAR-10 speed runs (ResNet-9 of Page 2018, airbench of Jordan 2024): a
first layer that whitens 2 x 2 patches and is not trained, pooling right behind the first
convolution of each group so that few pixels are wide, and few layers. Every group is residual, so
that a spectral bound keeps distances (SNGP).

Axes: images `(n, 3, 32, 32)`; features `(n, num_features)`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, max_pool2d

from secondguess.models.wide_resnet import ConvolutionMaker

_PATCH, _PATCH_VALUES = 2, 12
_RIDGE = 0.01
"""Added to the variances of patches, so that directions without any are not blown up."""


class WhitenedResNet(nn.Module):
    """Three groups of two convolutions, at 15, 7 and 3 pixels, behind a whitening layer.

    >>> images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> WhitenedResNet(images, widths=(8, 16, 32))(images).shape
    torch.Size([8, 32])

    Args:
        examples: images, prepared as in evaluation, whose patches are whitened.
        widths: channels of the groups; the last is the number of features.
        spectral_bound: bound on the operator norm of every trained convolution; None for none.
        generator: source of the initial values; without it, torch's default generator.
    """

    def __init__(
        self,
        examples: Tensor,
        *,
        widths: Sequence[int] = (32, 96, 192),
        spectral_bound: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("whitening", whitening_kernel(examples))
        convolutions = ConvolutionMaker(spectral_bound, generator)
        size, channels, groups = examples.shape[-1] - _PATCH + 1, 2 * _PATCH_VALUES, []
        for width in widths:
            groups.append(_Group(convolutions, channels, width, size))
            channels, size = width, size // 2
        self.groups = nn.Sequential(*groups)
        self.num_features = channels

    def forward(self, images: Tensor) -> Tensor:
        """Images to features: what each channel finds anywhere."""
        assert isinstance(self.whitening, Tensor)
        # Channels last is a third faster on a CPU.
        images = images.contiguous(memory_format=torch.channels_last)
        return self.groups(gelu(torch.conv2d(images, self.whitening))).amax(dim=(2, 3))

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The kernels, for Muon."""
        return [weight for weight in self.parameters() if weight.ndim == 4]


def whitening_kernel(images: Tensor) -> Tensor:
    """Kernels `(24, 3, 2, 2)` whose first 12 responses have nearly unit variance, uncorrelated.

    The others are the same with opposite signs: an activation lets half of each through.

    >>> images = torch.randn(50, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> patches = torch.conv2d(images, whitening_kernel(images)[:12]).transpose(0, 1).flatten(1)
    >>> bool(torch.allclose(patches.cov(correction=0), torch.eye(12), atol=0.03))
    True
    """
    patches = images.unfold(2, _PATCH, 1).unfold(3, _PATCH, 1)
    patches = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, _PATCH_VALUES).double()
    variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
    kernel = (directions / (variances + _RIDGE).sqrt()).T.reshape(-1, 3, _PATCH, _PATCH).float()
    return torch.cat([kernel, -kernel])


class _Group(nn.Module):
    """A convolution that narrows the image and one that adds to its result."""

    def __init__(
        self, convolutions: ConvolutionMaker, in_channels: int, out_channels: int, size: int
    ) -> None:
        super().__init__()
        self.first = convolutions.make(in_channels, out_channels, 3, size)
        self.second = convolutions.make(out_channels, out_channels, 3, size // 2)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out_channels), nn.BatchNorm2d(out_channels)])

    def forward(self, maps: Tensor) -> Tensor:
        first_norm, second_norm = self.norms
        maps = gelu(first_norm(max_pool2d(self.first(maps), 2)))
        return maps + gelu(second_norm(self.second(maps)))
