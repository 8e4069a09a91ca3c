"""Laid-out pairs as batches: padding, labels, and the draw of two responses per row.

Batches are dicts of integer tensors `(rows, tokens)`, as every causal language model of
`transformers` takes them. What stands where in a row is `formatting`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from secondguess.language.formatting import AnyRow, PairFormatter, PairTokens

PaddingSide = Literal["left", "right"]
Batch = dict[str, Tensor]

NOT_SCORED = -100
"""The label of `transformers` for a token that the loss leaves out."""


def pad(rows: Sequence[Sequence[int]], filler: int, side: PaddingSide) -> Tensor:
    """Rows of unequal length as one integer tensor.

    >>> pad([[1, 2], [3]], 0, "left")
    tensor([[1, 2],
            [0, 3]])
    """
    width = max(map(len, rows))
    padded = np.full((len(rows), width), filler, dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, slice(width - len(row), None) if side == "left" else slice(len(row))] = row
    return torch.from_numpy(padded)


def collate_pairs(
    pairs: Sequence[PairTokens], *, end: int, padding_side: PaddingSide = "right"
) -> Batch:
    """Sequences as the batch that every causal language model of `transformers` takes.

    `attention_mask` is always there: without it `transformers` would take a jump in `position_ids`
    for the border between two packed sequences and hide y1 from y2.
    """
    labels = [
        [token if scored else NOT_SCORED for token, scored in zip(p.tokens, p.scored, strict=True)]
        for p in pairs
    ]
    return {
        "input_ids": pad([p.tokens for p in pairs], end, padding_side),
        "attention_mask": pad([[1] * len(p.tokens) for p in pairs], 0, padding_side),
        "position_ids": pad([p.positions for p in pairs], 0, padding_side),
        "labels": pad(labels, NOT_SCORED, padding_side),
    }


class PairCollator:
    """Draws two responses per row and makes a batch: for `transformers.Trainer` or any loop.

    >>> from secondguess.language.formatting import PairFormat
    >>> from secondguess.language.tokenizer import word_tokenizer
    >>> tokenizer = word_tokenizer(["flip", "heads", "tails"])
    >>> collator = PairCollator(PairFormatter(tokenizer, PairFormat(response_length=2)), seed=0)
    >>> batch = collator([{"prompt": "flip", "responses": ["heads", "tails"]}])
    >>> batch["labels"]
    tensor([[-100, -100,    4,    0,    3,    0]])

    Each call draws anew, so every epoch sees other pairs of a row with three or more responses, and
    both orders. Data-loader workers draw from their own streams. In `Trainer` set
    `remove_unused_columns=False`.

    Args:
        formatter: the format of the pairs.
        seed: the stream of the draws of `collator(rows)`.
        padding_side: where short rows are filled.
    """

    def __init__(
        self, formatter: PairFormatter, *, seed: int = 0, padding_side: PaddingSide = "right"
    ) -> None:
        self.formatter = formatter
        self.seed = seed
        self.padding_side: PaddingSide = padding_side
        self._num_calls = 0

    def __call__(self, rows: Sequence[AnyRow]) -> Batch:
        """The batch of these rows, with the next draws of this collator's stream."""
        # A worker starts every epoch from a copy of this object; only its seed is new.
        worker = get_worker_info()
        key = [self.seed, self._num_calls, *([] if worker is None else [worker.seed])]
        self._num_calls += 1
        return self.collate(rows, np.random.default_rng(key))

    def collate(self, rows: Sequence[AnyRow], rng: np.random.Generator) -> Batch:
        """The batch of these rows, two responses of each drawn without replacement."""
        encoded = [self.formatter.encode(row) for row in rows]
        counts = np.array([len(row.responses) for row in encoded])
        first = rng.integers(counts)
        second = rng.integers(counts - 1)
        second += second >= first
        pairs = [
            self.formatter.lay_out(row.prompt, row.responses[i], row.responses[j])
            for row, i, j in zip(encoded, first, second, strict=True)
        ]
        return collate_pairs(pairs, end=self.formatter.end, padding_side=self.padding_side)
