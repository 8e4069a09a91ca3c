"""The epinet (Osband et al. 2021): a network whose output depends on a random index.

What changes from index to index is what the network says it does not know. A trained part corrects
a fixed random one, the prior; where data speak, training makes the two cancel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from secondguess.models.initial import lecun_linear


class Epinet(nn.Module):
    """Logits of a linear layer plus two small networks of features and index.

    With f the backbone's features and z the index, standard normal,

        logits = W f + c + g(n, z) + prior_scale * h(n, z),

    where n is f scaled to mean 0 and deviation 1 in each row, g is trained, h is fixed, and both
    are an MLP of (z, n) with one hidden layer whose `num_outputs x index_size` outputs are
    multiplied by z. Gradients do not flow from g and h into the features, as in the original, so
    that the index does not disturb the backbone. The original has no scaling, and a backbone that
    ends in a batch normalisation needs none; any other can raise f to outshout the prior, which
    would rise with it, without end.

    >>> network = Epinet(nn.Identity(), 4, num_outputs=10)
    >>> network(torch.zeros(2, 4), torch.randn(5, 20)).shape  # an output for each of 5 indices
    torch.Size([5, 2, 10])

    Args:
        backbone: from inputs to features `(n, num_features)`.
        num_features: size of the features.
        num_outputs: how many logits.
        index_size: size of an index.
        hidden_size: hidden units of g and of h.
        prior_scale: weight of the prior.
        generator: source of the initial values; without it, torch's default generator.
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        num_outputs: int,
        *,
        index_size: int = 20,
        hidden_size: int = 50,
        prior_scale: float = 4.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.backbone, self.index_size, self.prior_scale = backbone, index_size, prior_scale
        self.base = lecun_linear(num_features, num_outputs, generator=generator)
        sizes = (num_features, index_size, hidden_size, num_outputs)
        self.corrector = IndexedMLP(*sizes, generator=generator)
        self.prior = IndexedMLP(*sizes, generator=generator).requires_grad_(False)

    def forward(self, inputs: Tensor, indices: Tensor) -> Tensor:
        """Logits `(m, n, num_outputs)` of n inputs for m indices `(m, index_size)`."""
        features = self.backbone(inputs)
        fixed = functional.layer_norm(features.detach(), features.shape[-1:])
        indexed = self.corrector(fixed, indices) + self.prior_scale * self.prior(fixed, indices)
        return self.base(features) + indexed


class IndexedMLP(nn.Module):
    """An MLP of (z, f) with one hidden layer, whose outputs are a matrix that multiplies z.

    >>> IndexedMLP(4, 20, 50, 10)(torch.zeros(2, 4), torch.zeros(5, 20)).shape
    torch.Size([5, 2, 10])
    """

    def __init__(
        self,
        num_features: int,
        index_size: int,
        hidden_size: int,
        num_outputs: int,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.index_size, self.num_outputs = index_size, num_outputs
        self.hidden = lecun_linear(index_size + num_features, hidden_size, generator=generator)
        self.out = lecun_linear(hidden_size, num_outputs * index_size, generator=generator)

    def forward(self, features: Tensor, indices: Tensor) -> Tensor:
        """Features `(n, num_features)` and indices `(m, index_size)` to `(m, n, num_outputs)`."""
        # Each factor is computed for the rows and for the indices alone, and they meet late: the
        # (m, n, num_outputs, index_size) tensor of the plain formula is never made.
        index_part, feature_part = self.hidden.weight.split(
            [self.index_size, features.shape[-1]], dim=1
        )
        by_index = (indices @ index_part.T).unsqueeze(1)
        hidden = (by_index + features @ feature_part.T + self.hidden.bias).relu()
        matrix = self.out.weight.unflatten(0, (self.num_outputs, self.index_size))
        contracted = torch.einsum("kih,mi->mhk", matrix, indices)
        bias = indices @ self.out.bias.view(self.num_outputs, self.index_size).T
        return hidden @ contracted + bias.unsqueeze(1)
