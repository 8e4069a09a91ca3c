"""A Gaussian process with an RBF kernel as a layer: orthogonal random features (Yu et al. 2016).

The features are fixed; a linear layer on them learns the function. Together with the spectrally
bounded layers of `spectral.py` they are the architecture called SNGP. The posterior covariance,
which turns it into a method, is in `secondguess.baselines.sngp`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class OrthogonalRandomFeatures(nn.Module):
    """cos(W x / length_scale + b), with b uniform and W from blocks of orthogonal rows.

    The rows have the directions of a random rotation and the lengths of Gaussian vectors, so that
    each is a Gaussian vector by itself. Hence, with m features,

        E[(2 / m) phi(x)^T phi(y)] = exp(-|x - y|^2 / (2 length_scale^2)),

    and orthogonality makes the sum deviate less than with independent rows. The factor sqrt(2 / m)
    is left to the layer above, as in `uncertainty_baselines`: it would scale down the gradients of
    the layers below.

    >>> features = OrthogonalRandomFeatures(4, 4096, length_scale=1.0)
    >>> x, y = torch.zeros(4), torch.full((4,), 0.5)  # |x - y|^2 = 1
    >>> kernel = 2 / 4096 * features(x) @ features(y)
    >>> abs(kernel.item() - math.exp(-1 / 2)) < 0.1
    True

    Args:
        in_features: size of an input.
        num_features: m.
        length_scale: of the kernel. The default is that of `uncertainty_baselines`, whose weights
            have standard deviation 0.05, for inputs that are not normalised.
        generator: source of the features; without it, torch's default generator.
    """

    def __init__(
        self,
        in_features: int,
        num_features: int = 1024,
        *,
        length_scale: float = 20.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        num_blocks = math.ceil(num_features / in_features)
        blocks = torch.randn(num_blocks, in_features, in_features, generator=generator)
        rotations, triangles = torch.linalg.qr(blocks)
        # Without this the signs are the algorithm's choice, not chance.
        rotations = rotations * triangles.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)
        lengths = torch.randn(num_blocks, in_features, in_features, generator=generator).norm(dim=2)
        weight = (lengths.unsqueeze(2) * rotations).flatten(0, 1)[:num_features]
        self.weight: Tensor
        self.phase: Tensor
        self.register_buffer("weight", weight / length_scale)
        self.register_buffer("phase", 2 * math.pi * torch.rand(num_features, generator=generator))

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs `(..., in_features)` to features `(..., num_features)`."""
        return nn.functional.linear(inputs, self.weight, self.phase).cos()


class RandomFeatureNetwork(nn.Module):
    """A backbone, random features of its output, and logits linear in them, without a bias.

    >>> network = RandomFeatureNetwork(nn.Linear(8, 5), OrthogonalRandomFeatures(5, 64), 10)
    >>> network(torch.zeros(2, 8)).shape, network.random_features(torch.zeros(2, 8)).shape
    (torch.Size([2, 10]), torch.Size([2, 64]))

    Args:
        backbone: from inputs to what the kernel compares.
        features: the random features.
        num_outputs: how many logits.
        generator: source of the initial values; without it, torch's default generator.
    """

    def __init__(
        self,
        backbone: nn.Module,
        features: OrthogonalRandomFeatures,
        num_outputs: int,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.backbone, self.features = backbone, features
        std = 1 / math.sqrt(features.num_features)
        self.output_weight = nn.Parameter(
            std * torch.randn(num_outputs, features.num_features, generator=generator)
        )

    def random_features(self, inputs: Tensor) -> Tensor:
        """The random features of each input, `(n, num_features)`."""
        return self.features(self.backbone(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits `(n, num_outputs)`: the mean of the Gaussian process."""
        return nn.functional.linear(self.random_features(inputs), self.output_weight)
