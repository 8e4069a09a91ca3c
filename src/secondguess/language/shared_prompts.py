"""The loss of pairs, with each distinct prompt of a batch read once.

Many data sets ask one thing many times. All rows that share a prompt attend to the same keys and
values, which gives the logits and the gradients of reading it in every row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from secondguess.language.collating import NOT_SCORED, Batch
from secondguess.language.prefixes import last_logits_only

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
    if _worth_sharing(network, batch, starts):
        logits, targets = response_logits(network, batch, starts)
    else:
        inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
        # No prompt is scored: a large vocabulary makes its logits dear.
        width = labels.shape[1] - int(starts.min()) + 1
        kept = {"logits_to_keep": width} if last_logits_only(network) else {}
        logits = network(**inputs, use_cache=False, **kept).logits[:, -width:-1]
        targets = labels[:, 1 - width :]
    total = functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=NOT_SCORED, reduction="sum"
    )
    return total / len(targets)


def _worth_sharing(network: nn.Module, batch: Batch, starts: Tensor) -> bool:
    """Whether prompts come up repeatedly, in a network that keeps a cache while it is trained."""
    if getattr(network, "is_gradient_checkpointing", False):
        return False  # it computes layers again, without their cache
    if int(starts.min()) < 2:
        return False  # a prompt's last token is read with the responses, and nothing is left
    num_prompts = len(torch.unique(_prompts(batch["input_ids"], starts), dim=0))
    return num_prompts * FEWEST_ROWS_PER_PROMPT <= len(starts)


def response_logits(network: nn.Module, batch: Batch, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of all tokens behind the prompts, and their labels.

    Args:
        network: a causal language model.
        batch: `input_ids`, `position_ids`, `labels` and perhaps `attention_mask`, `(n, tokens)`,
            padded on the right.
        starts: `(n,)`, how many tokens each prompt has, at least 2.

    Returns:
        Logits `(n, columns, vocabulary)` and labels `(n, columns)`; column 0 is the first token
        behind the prompt.
    """
    tokens, positions, mask = batch["input_ids"], batch["position_ids"], batch.get("attention_mask")
    prompts, prompt_of_row = torch.unique(_prompts(tokens, starts), dim=0, return_inverse=True)
    is_prompt = prompts != _NO_TOKEN
    read = network(
        input_ids=prompts.clamp(min=0),
        position_ids=(is_prompt.cumsum(dim=1) - 1).clamp(min=0),
        use_cache=True,
        **({} if mask is None else {"attention_mask": is_prompt.to(mask.dtype)}),
        **last_logits_only(network),
    )
    read.past_key_values.batch_select_indices(prompt_of_row)

    width = tokens.shape[1] - int(starts.min())
    columns = starts[:, None] - 1 + torch.arange(width + 1, device=tokens.device)
    inside = columns < tokens.shape[1]
    columns = columns.clamp(max=tokens.shape[1] - 1)
    masks = {}
    if mask is not None:
        behind = mask.gather(1, columns) * inside
        before = is_prompt[prompt_of_row].to(mask.dtype)
        masks["attention_mask"] = torch.cat([before, behind[:, :-1]], dim=1)
    logits = network(
        input_ids=tokens.gather(1, columns)[:, :-1],
        position_ids=positions.gather(1, columns)[:, :-1],
        past_key_values=read.past_key_values,
        use_cache=True,
        **masks,
    ).logits
    labels = torch.where(inside, batch["labels"].gather(1, columns), NOT_SCORED)
    return logits, labels[:, 1:]


def _prompts(tokens: Tensor, starts: Tensor) -> Tensor:
    """The prompts without their last tokens, padded on the left: `(n, longest - 1)`.

    The last token stays with the responses: it predicts the first of them.
    """
    longest = int(starts.max())
    columns = torch.arange(longest - 1, device=tokens.device) - (longest - starts)[:, None]
    return torch.where(columns >= 0, tokens.gather(1, columns.clamp(min=0)), _NO_TOKEN)
