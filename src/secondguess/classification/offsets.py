"""Log-odds of another model, behind the features of a head: added to its logits, or kept.

Axes: rows (n), then features, or classes (K).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def keep_marginal(head: nn.Module) -> None:
    """Make a head with an offset keep that as its marginal; a symmetric head cannot, and does not.

    >>> from secondguess.classification.heads import CorrelationPairHead
    >>> head = CorrelationPairHead(in_features=3, num_classes=2, offset=True)
    >>> keep_marginal(head)
    >>> head(torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0]])).marginal
    tensor([[0.5000, 0.5000]])
    """
    if hasattr(head, "keeps_marginal"):
        head.get_buffer("keeps_marginal").fill_(True)


def add_switch(head: nn.Module, num_offsets: int) -> None:
    """For `keep_marginal`; it is saved with the weights."""
    if num_offsets:
        head.register_buffer("keeps_marginal", torch.tensor(False))


def with_offset(head: nn.Module, logits: Tensor, offset: Tensor | None) -> Tensor:
    """The logits with the other model's log-odds added, or those alone where they are kept."""
    if offset is None:
        return logits
    return offset if head.get_buffer("keeps_marginal") else logits + offset


def split_offset(features: Tensor, num_offsets: int) -> tuple[Tensor, Tensor | None]:
    """The features proper, and the log-odds behind them where there are any."""
    if num_offsets == 0:
        return features, None
    return features[:, :-num_offsets], full_precision(features[:, -num_offsets:])


def full_precision(logits: Tensor) -> Tensor:
    """At least float32, where mixed precision made the logits in less."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
