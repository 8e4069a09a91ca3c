"""The epinet method: what the softmax does when the index of an `Epinet` changes."""

from __future__ import annotations

import torch
from torch import Tensor

from secondguess.classification.batches import PairBatch
from secondguess.models.epinet import Epinet
from secondguess.theory.records import Prediction


def loss(
    model: Epinet,
    batch: PairBatch,
    *,
    num_indices: int = 5,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Mean of -log p(y|x, index) over both responses of each row and a few random indices.

    >>> y = torch.tensor([0, 1])
    >>> network = Epinet(torch.nn.Identity(), num_features=3, num_outputs=10)
    >>> loss(network, PairBatch(torch.zeros(2, 3), y, y)).shape
    torch.Size([])

    Args:
        model: the network.
        batch: one pair per row.
        num_indices: indices of a step, the same for all rows.
        generator: source of the indices; without it, torch's default generator, which the training
            loop seeds for each step.
    """
    indices = _indices(num_indices, model, generator)
    log_probs = model(batch.inputs, indices).log_softmax(dim=-1)
    responses = torch.stack([batch.y1, batch.y2], dim=1)
    return -log_probs.gather(2, responses.expand(num_indices, -1, -1)).mean()


@torch.no_grad()
def predict(
    model: Epinet,
    inputs: Tensor,
    *,
    num_indices: int = 1000,
    generator: torch.Generator,
    chunk: int = 128,
) -> Prediction:
    """Mean and variance of the softmax over random indices.

    >>> network = Epinet(torch.nn.Identity(), num_features=3, num_outputs=10)
    >>> predict(network, torch.zeros(2, 3), generator=torch.Generator().manual_seed(0)).probs.shape
    (2, 10)

    Args:
        model: the network.
        inputs: `(n, ...)`, as the backbone wants them.
        num_indices: indices for each input.
        generator: source of the indices, on the CPU.
        chunk: inputs at a time, to bound memory; each chunk draws its own indices, so that an
            unlucky draw does not move all rows alike.
    """
    model.eval()
    means, variances = [], []
    for rows in inputs.split(chunk):
        indices = _indices(num_indices, model, generator)
        probs = model(rows, indices).double().softmax(dim=-1)
        means.append(probs.mean(dim=0).cpu())
        variances.append(probs.var(dim=0).cpu())
    return Prediction(torch.cat(means).numpy(), torch.cat(variances).numpy())


def _indices(number: int, model: Epinet, generator: torch.Generator | None) -> Tensor:
    drawn = torch.randn(number, model.index_size, generator=generator)
    return drawn.to(model.base.weight.device)
