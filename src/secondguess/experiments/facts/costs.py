"""What a network was made to do: the tokens that it read, and in how many passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(slots=True)
class Read:
    """Counts that grow while the network is at work.

    Attributes:
        tokens: tokens read, padding included.
        passes: calls of the network.
    """

    tokens: int = 0
    passes: int = 0


@contextmanager
def tokens_read(network: nn.Module) -> Iterator[Read]:
    """Count what a network reads.

    >>> import torch
    >>> from secondguess.language.examples import tiny_pair_model
    >>> network = tiny_pair_model().network
    >>> with tokens_read(network) as read:
    ...     _ = network(input_ids=torch.zeros(2, 3, dtype=torch.long))
    >>> read
    Read(tokens=6, passes=1)
    """
    read = Read()

    def count(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        read.passes += 1
        read.tokens += kwargs["input_ids"].numel()

    handle = network.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield read
    finally:
        handle.remove()
