"""The residual multilayer perceptron of appendix F.1, of any size.

Axes: inputs `(n, num_inputs)`, outputs `(n, num_outputs)` for a whole network, or features
`(n, num_features)` for a backbone. It is a plain network: heads and losses live in
`secondguess.classification`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from secondguess.models.initial import lecun_linear


class ResidualMLP(nn.Module):
    """Residual blocks of LayerNorm, linear, relu, linear, like those of a transformer.

    >>> inputs = torch.linspace(-1, 1, 5)[:, None]
    >>> network = ResidualMLP(1, 2, generator=torch.Generator().manual_seed(0))
    >>> network(inputs).shape
    torch.Size([5, 2])
    >>> backbone = ResidualMLP(1, generator=torch.Generator().manual_seed(0))
    >>> backbone(inputs).shape, backbone.num_features
    (torch.Size([5, 512]), 512)

    With r the residual stream, of size `width`, and v hidden, of size `hidden_width`:

        v = w (x + b)                                r = W relu(v) + c       (input layer)
        v = W LayerNorm(r) + c                       r = r + W relu(v) + c   (each block)
        v = W LayerNorm(r) + c                       output = W relu(v) + c  (head)

    The paper prints `LayerNorm(v)`, whose size does not fit; it is the residual stream that is
    normalised. Several inputs are shifted by the same b before each hidden unit's weights, so that
    one input gives the printed elementwise form. Initial values, which the paper does not state:
    w and b standard normal (w over the square root of `num_inputs`), so that the kinks of the first
    layer lie where standardised inputs do; other weights LeCun normal, other biases zero.

    Args:
        num_inputs: size of an input; inputs should be of order one.
        num_outputs: size of the output; without it the module is a backbone, which returns the
            hidden units of the head. `nn.Linear(num_features, d)` behind a backbone makes the same
            network as `num_outputs=d`.
        num_blocks: residual blocks between input layer and head.
        width: size of the residual stream.
        hidden_width: size of all hidden layers.
        generator: source of the initial values; without it, torch's default generator.
    """

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int | None = None,
        *,
        num_blocks: int = 3,
        width: int = 128,
        hidden_width: int = 512,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.num_inputs = num_inputs
        self.num_features = hidden_width
        scale = 1 / math.sqrt(num_inputs)
        self.input_scale = nn.Parameter(
            scale * torch.randn(hidden_width, num_inputs, generator=generator)
        )
        self.input_shift = nn.Parameter(torch.randn(hidden_width, generator=generator))
        self.input_out = lecun_linear(hidden_width, width, generator=generator)
        self.blocks = nn.ModuleList(
            _ResidualBlock(width, hidden_width, generator) for _ in range(num_blocks)
        )
        self.head_norm = nn.LayerNorm(width)
        self.head_hidden = lecun_linear(width, hidden_width, generator=generator)
        self.head_out = (
            None
            if num_outputs is None
            else lecun_linear(hidden_width, num_outputs, generator=generator)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs, or features where the network has no output layer."""
        if inputs.shape[-1] != self.num_inputs:
            raise ValueError(
                f"inputs has shape {tuple(inputs.shape)}; expected (n, {self.num_inputs}): the "
                f"last axis holds the {self.num_inputs} input(s) of a row."
            )
        # w (x + b) = w x + b sum(w): no (n, hidden_width, num_inputs) array.
        hidden = nn.functional.linear(
            inputs, self.input_scale, self.input_shift * self.input_scale.sum(dim=1)
        )
        stream = self.input_out(hidden.relu())
        for block in self.blocks:
            stream = block(stream)
        features = self.head_hidden(self.head_norm(stream)).relu()
        return features if self.head_out is None else self.head_out(features)


class _ResidualBlock(nn.Module):
    def __init__(self, width: int, hidden_width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.hidden = lecun_linear(width, hidden_width, generator=generator)
        self.out = lecun_linear(hidden_width, width, generator=generator)

    def forward(self, stream: Tensor) -> Tensor:
        return stream + self.out(self.hidden(self.norm(stream)).relu())
