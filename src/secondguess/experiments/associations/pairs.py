"""Pairs of people's answers for training, with everybody's answers as soft targets.

A step takes some cues and draws a few first answers to each, spread evenly over the people. What
follows a first token is learned from a draw, as always. The first tokens themselves, of y1 and of
y2 given y1, are learned from the shares of all people (of all others, for y2): the expected loss is
that of drawn pairs, with far less noise. Axes: rows are pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from secondguess._arrays import IntArray
from secondguess.experiments.associations.norms import Cue
from secondguess.language.collating import NOT_SCORED, Batch, collate_pairs
from secondguess.language.formatting import PairFormatter
from secondguess.language.shared_prompts import response_logits

_TARGETS = ("target_tokens", "target_shares")
"""`(n, 2, k)`: first tokens of y1 and y2 and the share of people, padded with shares of zero."""


def response_length(cues: Sequence[Cue], tokenizer: object) -> int:
    """Positions that the longest response needs, its end included."""
    texts = sorted({text for cue in cues for text in cue.responses()[0]})
    encode = tokenizer.encode  # pyright: ignore[reportAttributeAccessIssue]
    return 1 + max(len(encode(text, add_special_tokens=False)) for text in texts)


def association_batches(
    cues: Sequence[Cue],
    formatter: PairFormatter,
    *,
    cues_per_step: int,
    pairs_per_cue: int,
    seed: int,
) -> Callable[[int], Batch]:
    """A function from the step to its batch: every cue once per epoch, in a new order."""

    def batch_at(step: int) -> Batch:
        rng = np.random.default_rng([seed, 1, step])
        chosen = []
        for place in range(step * cues_per_step, (step + 1) * cues_per_step):
            epoch, index = divmod(place, len(cues))
            order = np.random.default_rng([seed, 0, epoch]).permutation(len(cues))
            chosen.append(cues[int(order[index])])
        return _batch(chosen, formatter, pairs_per_cue, rng)

    return batch_at


def _batch(
    cues: Sequence[Cue], formatter: PairFormatter, pairs_per_cue: int, rng: np.random.Generator
) -> Batch:
    pairs, tokens, shares = [], [], []
    for cue in cues:
        texts, people = cue.responses()
        prompt = formatter.prompt_tokens(cue.prompt)
        responses = [formatter.response_tokens(text) for text in texts]
        first_tokens = [response[0] for response in responses]
        for first in even_draws(people, pairs_per_cue, rng):
            others = people - (np.arange(len(people)) == first)
            second = int(rng.choice(len(people), p=others / others.sum()))
            pairs.append(formatter.lay_out(prompt, responses[first], responses[second]))
            tokens.append((first_tokens, first_tokens))
            shares.append((people / people.sum(), others / others.sum()))
    width = max(len(first) for first, _ in tokens)

    def padded(rows: Sequence[tuple[Sequence[float], ...]], dtype: type) -> Tensor:
        filled = np.zeros((len(rows), 2, width), dtype=dtype)
        for row, pair in enumerate(rows):
            for which, values in enumerate(pair):
                filled[row, which, : len(values)] = values
        return torch.from_numpy(filled)

    return {
        **collate_pairs(pairs, end=formatter.end, padding_side="right"),
        **dict(zip(_TARGETS, (padded(tokens, np.int64), padded(shares, np.float32)), strict=True)),
    }


def even_draws(people: IntArray, num_draws: int, rng: np.random.Generator) -> IntArray:
    """Responses of people who stand at equal distances in a random line: `(num_draws,)`.

    Each is the response of a random person, and together they differ as much as they can.

    >>> even_draws(np.array([2, 2]), 2, np.random.default_rng(0)).tolist() in ([0, 1], [1, 0])
    True
    """
    order = rng.permutation(len(people))
    ends = np.cumsum(people[order])
    places = (rng.random() + np.arange(num_draws)) / num_draws * ends[-1]
    return order[np.searchsorted(ends, places, side="right")]


def soft_pair_loss(network: PreTrainedModel, batch: Batch) -> Tensor:
    """-log p(y1, y2|x) in nats, the mean over pairs, first tokens against the shares of people.

    Nearly all answers have one token, and a few have many: pairs of the shortest length are read
    apart from the others, which halves the tokens that are read.
    """
    is_scored = batch["labels"] != NOT_SCORED
    starts = is_scored.int().argmax(dim=1)
    ends = is_scored.shape[1] - is_scored.flip(1).int().argmax(dim=1)
    is_short = ends - starts == (ends - starts).min()
    parts = [rows for rows in (is_short, ~is_short) if rows.any()]
    losses = [_soft_nats(network, batch, rows, starts[rows], ends[rows]).sum() for rows in parts]
    return torch.stack(losses).sum() / len(starts)


def _soft_nats(
    network: PreTrainedModel, batch: Batch, chosen: Tensor, starts: Tensor, ends: Tensor
) -> Tensor:
    """Nats of the chosen pairs, `(pairs,)`."""
    width = int(ends.max())
    inputs = {name: batch[name][chosen, :width] for name in batch if name not in _TARGETS}
    logits, labels = response_logits(network, inputs, starts)
    log_probs = functional.log_softmax(logits.float(), dim=-1)
    scored = labels != NOT_SCORED
    hard = log_probs.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
    rows = torch.arange(len(labels), device=labels.device)
    firsts = torch.stack([torch.zeros_like(rows), _length_of_first(inputs, starts, ends)], dim=1)
    at_first = log_probs[rows[:, None], firsts]
    tokens, shares = (batch[name][chosen] for name in _TARGETS)
    soft = (at_first.gather(-1, tokens) * shares).sum(dim=(1, 2))
    is_first = torch.zeros_like(scored).scatter(1, firsts, True)
    return -(torch.where(scored & ~is_first, hard, 0.0).sum(dim=1) + soft)


def _length_of_first(inputs: Batch, starts: Tensor, ends: Tensor) -> Tensor:
    """How many tokens y1 has, its end included; y2's end is the last token, and names it."""
    tokens = inputs["input_ids"]
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    is_end = tokens == tokens.gather(1, ends[:, None] - 1)
    return (is_end & (columns >= starts[:, None])).int().argmax(dim=1) - starts + 1
