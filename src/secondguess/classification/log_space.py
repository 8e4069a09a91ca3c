"""Small functions of log-probabilities that neither overflow nor cancel."""

from __future__ import annotations

import torch
from torch import Tensor


def log_peek(log_marginal: Tensor, log_relative_variance: Tensor) -> Tensor:
    """Log p(y|y,x) = log m + log1p(V / m^2), never below log m; -inf where m is 0."""
    peek = log_marginal + torch.logaddexp(log_relative_variance, torch.zeros_like(log_marginal))
    return torch.where(log_marginal == -torch.inf, log_marginal, peek)


def log1mexp(value: Tensor) -> Tensor:
    """Log (1 - e^-value) for value >= 0."""
    return (-torch.expm1(-value)).log()


def log_mix(first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Log ((1 - weight) e^first + weight e^second)."""
    return torch.logaddexp(torch.log1p(-weight) + first, weight.log() + second)


def log_softmax_table(logits: Tensor) -> Tensor:
    """Log-probabilities over both class axes."""
    return logits.flatten(-2).log_softmax(-1).reshape(logits.shape)


def gather(values: Tensor, index: Tensor) -> Tensor:
    """`values[row, index[row, ...]]` for values `(n, m)` and index `(n, ...)`."""
    return values.gather(-1, index.reshape(len(index), -1)).reshape(index.shape)
