"""The evidential network: a Dirichlet distribution over p(y|x) as the output (Sensoy et al. 2018).

Concentrations are 1 + softplus(output), as in appendix F.1, where relu left dead units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from secondguess.classification.batches import PairBatch
from secondguess.theory.records import Prediction

EvidentialForm = Literal["cross_entropy", "squared_error"]


class EvidentialBatch(NamedTuple):
    """A `PairBatch` and the regularisation weight of its step: a tensor without axes."""

    inputs: Tensor
    y1: Tensor
    y2: Tensor
    regularisation: Tensor


def regularised_batches(
    batch_at: Callable[[int], PairBatch], *, final_weight: float = 1.0, ramp_steps: int
) -> Callable[[int], EvidentialBatch]:
    """Batches with a weight lambda that grows linearly from 0 to its final value.

    >>> source = lambda step: PairBatch(torch.zeros(2, 1), torch.zeros(2), torch.zeros(2))
    >>> batch_at = regularised_batches(source, ramp_steps=5000)
    >>> [batch_at(step).regularisation.item() for step in (0, 2500, 9999)]
    [0.0, 0.5, 1.0]

    Args:
        batch_at: the source of batches.
        final_weight: lambda after the ramp.
        ramp_steps: how many steps it grows.
    """

    def regularised(step: int) -> EvidentialBatch:
        weight = final_weight * min(1.0, step / ramp_steps)
        batch = batch_at(step)
        assert isinstance(batch.inputs, Tensor)  # rivals take no other kind
        return EvidentialBatch(batch.inputs, batch.y1, batch.y2, torch.tensor(weight))

    return regularised


def concentration(outputs: Tensor) -> Tensor:
    """Dirichlet parameters, at least 1 each.

    >>> concentration(torch.tensor([[-100.0, 100.0]]))
    tensor([[  1., 101.]])
    """
    return 1 + softplus(outputs)


def label_losses(
    alpha: Tensor, regularisation: Tensor | float, form: EvidentialForm = "cross_entropy"
) -> Tensor:
    """The loss of each label that could be observed, `(..., num_classes)`.

    With q ~ Dirichlet(alpha), S the sum of alpha and e_y the label y as a vector::

        cross_entropy   E[-log q_y]       = digamma(S) - digamma(alpha_y)
        squared_error   E[|e_y - q|^2]    = |e_y - alpha / S|^2 + sum_k m_k (1 - m_k) / (S + 1)

    with m = alpha / S, plus lambda KL(Dirichlet(alpha~) || Dirichlet(1, ..., 1)), where alpha~ is
    alpha with the entry of the label replaced by 1. (The paper prints Dirichlet([1, 1]) for ten
    classes as well.)

    >>> label_losses(torch.tensor([[1.0, 1.0]]), regularisation=1.0)
    tensor([[1.0000, 1.0000]])

    Args:
        alpha: concentrations `(..., num_classes)`.
        regularisation: lambda.
        form: which expected loss.
    """
    num_classes = alpha.shape[-1]
    total = alpha.sum(dim=-1, keepdim=True)
    if form == "cross_entropy":
        fit = torch.digamma(total) - torch.digamma(alpha)
    elif form == "squared_error":
        mean = alpha / total
        # |e_y - m|^2 = 1 - 2 m_y + |m|^2
        spread = (mean * (1 - mean)).sum(dim=-1, keepdim=True) / (total + 1)
        fit = 1 - 2 * mean + mean.square().sum(dim=-1, keepdim=True) + spread
    else:
        raise ValueError(f"form is {form!r}; expected 'cross_entropy' or 'squared_error'.")
    # One row for each label: alpha with that label's entry replaced by 1.
    right = torch.eye(num_classes, dtype=torch.bool, device=alpha.device)
    mislead = torch.where(right, 1.0, alpha.unsqueeze(-2))
    return fit + regularisation * _kl_to_uniform(mislead)


def loss(
    model: Callable[[Tensor], Tensor],
    batch: EvidentialBatch,
    *,
    form: EvidentialForm = "cross_entropy",
) -> Tensor:
    """Mean of `label_losses` over both responses of each row.

    >>> y = torch.tensor([0, 1])
    >>> loss(torch.nn.Identity(), EvidentialBatch(torch.zeros(2, 2), y, y, torch.tensor(0.0)))
    tensor(0.8618)
    """
    losses = label_losses(concentration(model(batch.inputs)), batch.regularisation, form)
    return losses.gather(1, torch.stack([batch.y1, batch.y2], dim=1)).mean()


@torch.no_grad()
def predict(model: Callable[[Tensor], Tensor], inputs: Tensor) -> Prediction:
    """Mean p and variance p(1 - p) / (S + 1) of the Dirichlet distribution.

    >>> predict(torch.nn.Identity(), torch.full((1, 2), -100.0)).variance.round(6)
    array([[0.083333, 0.083333]])
    """
    alpha = concentration(model(inputs).double())
    total = alpha.sum(dim=-1, keepdim=True)
    probs = alpha / total
    variance = probs * (1 - probs) / (total + 1)
    return Prediction(probs.cpu().numpy(), variance.cpu().numpy())


def optimal_concentration(
    true_probs: Tensor, *, regularisation: float = 1.0, num_steps: int = 2000
) -> Tensor:
    """The concentrations that minimise the expected loss for known label distributions.

    It is what a network of unlimited capacity would predict for an input with these p(y|x): the
    figure of appendix F.2.2, without a network.

    >>> alpha = optimal_concentration(torch.tensor([[0.5, 0.5]]), num_steps=500)
    >>> (alpha / alpha.sum()).round(decimals=3)
    tensor([[0.5000, 0.5000]])

    Args:
        true_probs: label distributions `(..., num_classes)`.
        regularisation: lambda.
        num_steps: steps of Adam on the outputs, with a learning rate that falls to zero.
    """
    outputs = torch.zeros_like(true_probs, requires_grad=True)
    optimizer = torch.optim.Adam([outputs], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    for _ in range(num_steps):
        optimizer.zero_grad()
        (true_probs * label_losses(concentration(outputs), regularisation)).sum().backward()
        optimizer.step()
        schedule.step()
    return concentration(outputs).detach()


def _kl_to_uniform(alpha: Tensor) -> Tensor:
    """KL(Dirichlet(alpha) || Dirichlet(1, ..., 1)), over the last axis."""
    total = alpha.sum(dim=-1)
    num_classes = torch.tensor(float(alpha.shape[-1]), dtype=alpha.dtype)
    log_ratio = torch.lgamma(total) - torch.lgamma(alpha).sum(dim=-1) - torch.lgamma(num_classes)
    slope = torch.digamma(alpha) - torch.digamma(total).unsqueeze(-1)
    return log_ratio + ((alpha - 1) * slope).sum(dim=-1)
