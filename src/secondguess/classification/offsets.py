"""Log-odds of another model, behind the features of a head, and how far its marginal leaves them.

A head with an offset adds its logits to the log-odds of another model. A share of 1 adds them
whole; a share of 0 keeps the other model's marginal; between them, p(y|x) is proportional to
p(y|x of the other)^(1 - share) p(y|x of the head)^share.

Axes: rows (n), then features, or classes (K).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def set_own_share(head: nn.Module, share: float) -> None:
    """Set how much of its own a head adds to the other model's log-odds.

    A symmetric head, whose marginal is that of its table, adds everything and takes no share.

    >>> from secondguess.classification.heads import CorrelationPairHead
    >>> head = CorrelationPairHead(in_features=3, num_classes=2, offset=True)
    >>> set_own_share(head, 0.0)
    >>> head(torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0]])).marginal.detach()
    tensor([[0.5000, 0.5000]])
    """
    if takes_share(head):
        head.get_buffer("own_share").fill_(share)


def takes_share(head: nn.Module) -> bool:
    """Whether the share can be set.

    >>> takes_share(nn.Linear(2, 2))
    False
    """
    return hasattr(head, "own_share")


def add_share(head: nn.Module, num_offsets: int) -> None:
    """Give a head the share that `set_own_share` sets, among what is saved with its weights."""
    if num_offsets:
        head.register_buffer("own_share", torch.tensor(1.0))


def with_offset(head: nn.Module, logits: Tensor, offset: Tensor | None) -> Tensor:
    """The other model's log-odds, with the head's share of its logits added."""
    if offset is None:
        return logits
    return offset + head.get_buffer("own_share") * logits


def split_offset(features: Tensor, num_offsets: int) -> tuple[Tensor, Tensor | None]:
    """The features proper, and the log-odds behind them where there are any."""
    if num_offsets == 0:
        return features, None
    return features[:, :-num_offsets], full_precision(features[:, -num_offsets:])


def full_precision(logits: Tensor) -> Tensor:
    """At least float32, where mixed precision made the logits in less."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
