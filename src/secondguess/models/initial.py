"""The one initialiser of linear layers: LeCun normal weights, zero biases.

A weight matrix has axes `(num_outputs, num_inputs)`, as torch's has.
"""

from __future__ import annotations

import math

import torch
from torch import nn


def lecun_linear(
    num_inputs: int,
    num_outputs: int,
    *,
    scale: float = 1.0,
    generator: torch.Generator | None = None,
) -> nn.Linear:
    """A linear layer whose outputs have variance `scale**2` for inputs of mean square 1.

    >>> layer = lecun_linear(400, 1000, generator=torch.Generator().manual_seed(0))
    >>> round(layer.weight.std().item(), 3), layer.bias.abs().max().item()
    (0.05, 0.0)

    Args:
        num_inputs: size of an input.
        num_outputs: size of an output.
        scale: factor on the standard deviation `1 / sqrt(num_inputs)` of the weights.
        generator: source of the weights; without it, torch's default generator.
    """
    # Made empty: the usual constructor would draw from torch's default generator.
    layer = nn.Linear(num_inputs, num_outputs, device="meta").to_empty(device="cpu")
    nn.init.normal_(layer.weight, std=scale / math.sqrt(num_inputs), generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
