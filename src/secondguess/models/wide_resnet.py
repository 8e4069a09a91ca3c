"""The wide residual network of Zagoruyko and Komodakis (2016) for small images.

Axes: images `(n, 3, h, h)`; outputs `(n, num_outputs)`, or features `(n, 64 * width)`. Depth 28 and
width 10 make the network of the paper; smaller ones differ in these two numbers only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from secondguess.models.initial import lecun_linear
from secondguess.models.spectral import SpectralConv2d


class WideResNet(nn.Module):
    """Three groups of residual blocks at sizes h, h/2 and h/4, normalised before each activation.

    >>> network = WideResNet(10, depth=10, width=1)
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> WideResNet(depth=10, width=2)(torch.zeros(2, 3, 32, 32)).shape  # a backbone
    torch.Size([2, 128])

    Args:
        num_outputs: size of the output; without it the module is a backbone, which returns the
            pooled features.
        depth: how many convolutions lie on the longest path, 6 n + 4.
        width: factor on the 16, 32 and 64 channels of the groups.
        spectral_bound: bound on the operator norm of every convolution (SNGP); None for none.
        image_size: height and width of the images; a multiple of 4.
        generator: source of the initial values; without it, torch's default generator.
    """

    def __init__(
        self,
        num_outputs: int | None = None,
        *,
        depth: int = 28,
        width: int = 10,
        spectral_bound: float | None = None,
        image_size: int = 32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"depth is {depth}; expected 6 n + 4, such as 10, 16, 22 or 28.")
        if image_size % 4:
            raise ValueError(f"image_size is {image_size}; expected a multiple of 4.")
        convolutions = ConvolutionMaker(spectral_bound, generator)
        self.first = convolutions.make(3, 16, 3, image_size)
        blocks, channels, size = [], 16, image_size
        for group in range(3):
            wide = 16 * 2**group * width
            for block in range((depth - 4) // 6):
                stride = 2 if group > 0 and block == 0 else 1
                blocks.append(_Block(convolutions, channels, wide, size, stride))
                channels, size = wide, size // stride
        self.blocks = nn.Sequential(*blocks)
        self.last_norm = nn.BatchNorm2d(channels)
        self.num_features = channels
        self.out = (
            None
            if num_outputs is None
            else lecun_linear(channels, num_outputs, generator=generator)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Outputs, or features where the network has no output layer."""
        maps = self.last_norm(self.blocks(self.first(images))).relu()
        features = maps.mean(dim=(2, 3))
        return features if self.out is None else self.out(features)


class ConvolutionMaker:
    """Convolutions with or without a spectral bound, from one source of initial values."""

    def __init__(self, spectral_bound: float | None, generator: torch.Generator | None) -> None:
        self.spectral_bound, self.generator = spectral_bound, generator

    def make(
        self, in_channels: int, out_channels: int, kernel: int, image_size: int, stride: int = 1
    ) -> nn.Module:
        """A convolution without bias that keeps the size of the image, but for its stride."""
        if self.spectral_bound is not None:
            return SpectralConv2d(
                in_channels,
                out_channels,
                kernel,
                image_size=image_size,
                stride=stride,
                bound=self.spectral_bound,
                generator=self.generator,
            )
        # Made empty: the usual constructor would draw from torch's default generator.
        layer = nn.Conv2d(
            in_channels, out_channels, kernel, stride, kernel // 2, bias=False, device="meta"
        ).to_empty(device="cpu")
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=self.generator)
        return layer


class _Block(nn.Module):
    def __init__(
        self,
        convolutions: ConvolutionMaker,
        in_channels: int,
        out_channels: int,
        size: int,
        stride: int,
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(in_channels), nn.BatchNorm2d(out_channels)])
        self.convs = nn.ModuleList(
            [
                convolutions.make(in_channels, out_channels, 3, size, stride),
                convolutions.make(out_channels, out_channels, 3, size // stride),
            ]
        )
        same_shape = in_channels == out_channels and stride == 1
        self.shortcut = (
            nn.Identity()
            if same_shape
            else convolutions.make(in_channels, out_channels, 1, size, stride)
        )

    def forward(self, maps: Tensor) -> Tensor:
        inner = maps
        for norm, conv in zip(self.norms, self.convs, strict=True):
            inner = conv(norm(inner).relu())
        return self.shortcut(maps) + inner
