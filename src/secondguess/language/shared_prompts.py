"""The loss of pairs, with whatever prompts of a batch share read once.

Many data sets ask one thing many times, or begin all prompts alike: with a system message, or with
the same words. All rows that share a beginning attend to the same keys and values, which gives the
logits and the gradients of reading it in every row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from secondguess.language.collating import NOT_SCORED, Batch
from secondguess.language.prefixes import FEWEST_ALIKE, last_logits_only

FEWEST_ROWS_PER_PROMPT = 2
"""Prompts are shared where there are this many rows to one of them, on average."""

_NO_TOKEN = -1


def pair_loss(network: nn.Module, batch: Batch) -> Tensor:
    """-log p(y1, y2|x), the mean over the pairs of a batch, in nats.

    >>> from secondguess.language.collating import PairCollator
    >>> from secondguess.language.examples import tiny_pair_model
    >>> model = tiny_pair_model()
    >>> rows = [{"prompt": "flip", "responses": ["heads", "tails"]}]
    >>> bool(pair_loss(model.network, PairCollator(model.formatter)(rows)) > 0)
    True

    The mean is over pairs, not over tokens, so that the parts of a batch on several processes
    average to the whole.

    Args:
        network: a causal language model.
        batch: padded on the right, as `PairCollator` makes it.
    """
    labels = batch["labels"]
    starts = (labels != NOT_SCORED).int().argmax(dim=1)
    shared = _shared(network, batch, starts)
    if shared is not None:
        logits, targets = response_logits(network, batch, starts, shared)
    else:
        inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
        first, end = int(starts.min()), labels.shape[1]
        logits = _logits_at(network, range(first - 1, end - 1), **inputs, use_cache=False)
        targets = labels[:, first:]
    total = functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=NOT_SCORED, reduction="sum"
    )
    return total / len(targets)


def _shared(network: nn.Module, batch: Batch, starts: Tensor) -> Tensor | None:
    """How many tokens of each row are in the part that is read once; None to share nothing.

    Whole prompts where they come up repeatedly, else what all of them begin with.
    """
    if getattr(network, "is_gradient_checkpointing", False):
        return None  # it computes layers again, without their cache
    shortest = int(starts.min())
    if shortest < 2:
        return None  # a prompt's last token is read with the responses, and nothing is left
    tokens = batch["input_ids"]
    num_prompts = len(torch.unique(_beginnings(tokens, starts - 1), dim=0))
    if num_prompts * FEWEST_ROWS_PER_PROMPT <= len(starts):
        return starts - 1
    alike = (tokens[:, : shortest - 1] == tokens[:1, : shortest - 1]).all(dim=0)
    num_alike = int(alike.int().cumprod(dim=0).sum())
    return torch.full_like(starts, num_alike) if num_alike >= FEWEST_ALIKE else None


def response_logits(
    network: nn.Module, batch: Batch, starts: Tensor, shared: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits of all tokens behind the prompts, and their labels.

    Args:
        network: a causal language model.
        batch: `input_ids`, `position_ids`, `labels` and perhaps `attention_mask`, `(n, tokens)`,
            padded on the right.
        starts: `(n,)`, how many tokens each prompt has, at least 2.
        shared: `(n,)`, how many of them are read once for all rows that begin with the same; at
            least 1, and not all. By default, all but the last.

    Returns:
        Logits `(n, columns, vocabulary)` and labels `(n, columns)`; the first token behind the
        prompt is in column 0 of the row in which the least of the prompt is left.
    """
    shared = starts - 1 if shared is None else shared
    tokens, positions, mask = batch["input_ids"], batch["position_ids"], batch.get("attention_mask")
    beginnings, beginning_of_row = torch.unique(
        _beginnings(tokens, shared), dim=0, return_inverse=True
    )
    is_token = beginnings != _NO_TOKEN
    read = network(
        input_ids=beginnings.clamp(min=0),
        position_ids=(is_token.cumsum(dim=1) - 1).clamp(min=0),
        use_cache=True,
        **({} if mask is None else {"attention_mask": is_token.to(mask.dtype)}),
        **last_logits_only(network),
    )
    read.past_key_values.batch_select_indices(beginning_of_row)

    width = tokens.shape[1] - int(shared.min()) - 1
    columns = shared[:, None] + torch.arange(width + 1, device=tokens.device)
    inside = columns < tokens.shape[1]
    columns = columns.clamp(max=tokens.shape[1] - 1)
    masks = {}
    if mask is not None:
        behind = mask.gather(1, columns) * inside
        before = is_token[beginning_of_row].to(mask.dtype)
        masks["attention_mask"] = torch.cat([before, behind[:, :-1]], dim=1)
    scored = width - int((starts - shared).min()) + 1
    logits = _logits_at(
        network,
        range(width - scored, width),
        input_ids=tokens.gather(1, columns)[:, :-1],
        position_ids=positions.gather(1, columns)[:, :-1],
        past_key_values=read.past_key_values,
        use_cache=True,
        **masks,
    )
    labels = torch.where(inside, batch["labels"].gather(1, columns), NOT_SCORED)
    return logits, labels[:, -scored:]


def _logits_at(network: nn.Module, columns: range, **inputs: Any) -> Tensor:
    """Logits of these columns alone: a large vocabulary makes those of prompts dear.

    Columns are named one by one where the model allows it, because the last layer multiplies a copy
    of them in one go, and a view of the last ones row by row, which is slow.
    """
    kept = torch.arange(columns.start, columns.stop, device=inputs["input_ids"].device)
    if last_logits_only(network):
        return network(**inputs, logits_to_keep=kept).logits
    return network(**inputs).logits[:, kept]


def _beginnings(tokens: Tensor, lengths: Tensor) -> Tensor:
    """The first tokens of each row, padded on the left: `(n, longest)`."""
    longest = int(lengths.max())
    columns = torch.arange(longest, device=tokens.device) - (longest - lengths)[:, None]
    return torch.where(columns >= 0, tokens.gather(1, columns.clamp(min=0)), _NO_TOKEN)
