"""Layers whose spectral norm is bounded, so that a residual network keeps distances (SNGP).

A residual block x + g(x) neither collapses nor stretches distances by more than the norm of g
allows (Liu et al. 2020). The norm is that of the layer as a linear map: for a convolution that of
the whole operator on images, not of the reshaped kernel, which can be off by the kernel's size.

It is estimated by power iteration, one step for each forward pass in training mode: the direction
that is stretched most is a buffer, and moves with the weights. Estimates are from below: while two
directions that are stretched alike change places, the bound may be exceeded for some steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import vjp
from torch.nn.functional import conv2d, linear

FIRST_ITERATIONS = 5
"""Power iterations when a layer is made, so that the first bound is not far off."""


class SpectralLinear(nn.Module):
    """A linear layer whose weights are scaled down where their spectral norm exceeds the bound.

    >>> layer = SpectralLinear(8, 8, bound=0.5, generator=torch.Generator().manual_seed(0))
    >>> for _ in range(100):
    ...     _ = layer(torch.zeros(1, 8))
    >>> round(torch.linalg.matrix_norm(layer.bounded_weight(), 2).item(), 3)
    0.5

    Args:
        in_features: size of an input.
        out_features: size of an output.
        bound: largest spectral norm.
        generator: source of the initial values; without it, torch's default generator.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bound: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.bound = bound
        std = 1 / math.sqrt(in_features)
        self.weight = nn.Parameter(
            std * torch.randn(out_features, in_features, generator=generator)
        )
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.direction: Tensor
        self.register_buffer("direction", _unit(torch.randn(1, in_features, generator=generator)))
        _improve(self.direction, self._operator(), FIRST_ITERATIONS)

    def _operator(self) -> Callable[[Tensor], Tensor]:
        return lambda direction: linear(direction, self.weight)

    def bounded_weight(self) -> Tensor:
        """W / max(1, sigma / bound), with the present estimate of sigma."""
        return _bounded(self.weight, self._operator()(self.direction).norm(), self.bound)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs `(..., in_features)` to outputs `(..., out_features)`."""
        if self.training:
            _improve(self.direction, self._operator(), 1)
        return linear(inputs, self.bounded_weight(), self.bias)


class SpectralConv2d(nn.Module):
    """A convolution without bias, padded to keep the size, whose operator norm is bounded.

    >>> layer = SpectralConv2d(3, 4, 3, image_size=8, stride=2, bound=6.0)
    >>> layer(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 4, 4, 4])

    Args:
        in_channels: channels of an input.
        out_channels: channels of an output.
        kernel_size: odd.
        image_size: height and width of the inputs, on which the operator norm depends.
        stride: of the convolution.
        bound: largest operator norm.
        generator: source of the initial values; without it, torch's default generator.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        image_size: int,
        stride: int = 1,
        bound: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.stride, self.padding, self.bound = stride, kernel_size // 2, bound
        shape = (out_channels, in_channels, kernel_size, kernel_size)
        std = math.sqrt(2 / (in_channels * kernel_size**2))
        self.weight = nn.Parameter(std * torch.randn(shape, generator=generator))
        direction = torch.randn(1, in_channels, image_size, image_size, generator=generator)
        self.direction: Tensor
        self.register_buffer("direction", _unit(direction))
        _improve(self.direction, self._operator(), FIRST_ITERATIONS)

    def _operator(self) -> Callable[[Tensor], Tensor]:
        return lambda direction: self._convolve(direction, self.weight)

    def _convolve(self, inputs: Tensor, weight: Tensor) -> Tensor:
        return conv2d(inputs, weight, stride=self.stride, padding=self.padding)

    def bounded_weight(self) -> Tensor:
        """W / max(1, sigma / bound), with the present estimate of sigma."""
        return _bounded(self.weight, self._operator()(self.direction).norm(), self.bound)

    def forward(self, images: Tensor) -> Tensor:
        """Images `(n, in_channels, h, w)` to `(n, out_channels, h / stride, w / stride)`."""
        if self.training:
            _improve(self.direction, self._operator(), 1)
        return self._convolve(images, self.bounded_weight())


def _bounded(weight: Tensor, norm: Tensor, bound: float) -> Tensor:
    return weight / (norm / bound).clamp_min(1.0)


@torch.no_grad()
def _improve(direction: Tensor, operator: Callable[[Tensor], Tensor], num_steps: int) -> None:
    """Power iteration on A^T A, in place."""
    for _ in range(num_steps):
        stretched, adjoint = vjp(operator, direction)[:2]
        direction.copy_(_unit(adjoint(stretched)[0]))


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm().clamp_min(1e-12)
