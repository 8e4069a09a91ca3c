"""Pairs of sequences by the thousand: what the language layer lays out row by row, as arrays.

The sequence experiments draw fresh pairs for every step from worlds that they can enumerate, with
prompts of one length and responses from a table of tokens. So a batch is a few NumPy gathers. The
layout is that of `secondguess.language.PairFormatter`, token for token. Axes: rows are pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from secondguess._arrays import FloatArray, IntArray
from secondguess.language.formatting import NOT_SCORED, PairFormatter

Batch = dict[str, Tensor]
WEIGHTS = "weights"
"""The key of a batch under which the weights of its pairs are, `(n,)`; without it they are 1."""


@dataclass(frozen=True, kw_only=True)
class PairLayout:
    """Where everything stands in a pair whose prompts all have one length.

    Attributes:
        formatter: the format of the pairs.
        prompt_length: tokens of a prompt, its separator included.
    """

    formatter: PairFormatter
    prompt_length: int

    @property
    def response_length(self) -> int:
        """Positions that a response owns."""
        return self.formatter.config.response_length

    @property
    def start_of_second(self) -> int:
        """The position of y2's first token."""
        return self.prompt_length + self.response_length + len(self.formatter.separator)

    def response_tokens(self, texts: list[str]) -> IntArray:
        """The tokens of each response, filled with end tokens: `(n, response_length)`."""
        rows = np.full((len(texts), self.response_length), self.formatter.end)
        for row, text in zip(rows, texts, strict=True):
            tokens = self.formatter.response_tokens(text)
            row[: len(tokens)] = tokens
        return rows

    def batch(self, prompts: IntArray, first: IntArray, second: IntArray) -> Batch:
        """One sequence a row, padded on the right: what a causal language model takes.

        Args:
            prompts: `(n, prompt_length)` tokens, the separator included.
            first: y1, `(n, response_length)`, filled with end tokens.
            second: y2, likewise.

        Returns:
            `input_ids`, `position_ids` and `labels`, each `(n, tokens)`; a causal model needs no
            attention mask for padding on the right.
        """
        count, end = len(prompts), self.formatter.end
        separator = np.broadcast_to(
            self.formatter.separator, (count, len(self.formatter.separator))
        )
        everything = np.concatenate([prompts, first, separator.astype(np.int64), second], axis=1)
        first_lengths = 1 + (first != end).sum(axis=1, keepdims=True)
        second_lengths = 1 + (second != end).sum(axis=1, keepdims=True)
        last_of_first = self.prompt_length + self.response_length - 1

        # `source` says which column of `everything` each column of the batch shows.
        is_padded = self.formatter.config.layout == "padded"
        kept = np.full_like(first_lengths, self.response_length) if is_padded else first_lengths
        total = self.start_of_second - self.response_length + kept + second_lengths
        column = np.arange(total.max())[None]
        behind_first = column >= self.prompt_length + kept
        source = np.where(behind_first, column + self.response_length - kept, column)
        source = np.minimum(source, everything.shape[1] - 1)
        positions = source.copy()
        if not is_padded:
            positions[column == self.prompt_length + first_lengths - 1] = last_of_first

        tokens = np.take_along_axis(everything, source, axis=1)
        in_first = (source >= self.prompt_length) & (source < self.prompt_length + first_lengths)
        in_second = (source >= self.start_of_second) & (column < total)
        labels = np.where(in_first | in_second, tokens, NOT_SCORED)
        return {
            "input_ids": torch.from_numpy(tokens),
            "position_ids": torch.from_numpy(positions),
            "labels": torch.from_numpy(labels),
        }

    @torch.inference_mode()
    def log_probs(
        self,
        network: PreTrainedModel,
        prompts: IntArray,
        first: IntArray,
        second: IntArray,
        *,
        batch_size: int = 256,
    ) -> tuple[FloatArray, FloatArray]:
        """Log p(y1|x) and log p(y2|y1,x) of each pair, each of shape `(n,)`."""
        totals = np.empty((len(prompts), 2))
        for rows in _chunks(np.argsort(_lengths(first, second, self.formatter.end)), batch_size):
            batch = self.batch(prompts[rows], first[rows], second[rows])
            surprise = self._surprise(network, batch)
            in_second = batch["position_ids"][:, self.prompt_length :] >= self.start_of_second
            totals[rows, 0] = -torch.where(in_second, 0.0, surprise).sum(dim=1).double()
            totals[rows, 1] = -torch.where(in_second, surprise, 0.0).sum(dim=1).double()
        return totals[:, 0], totals[:, 1]

    def loss(self, network: PreTrainedModel, batch: Batch) -> Tensor:
        """Nats of a pair, -log p(y1, y2 | x), averaged over the batch by weight."""
        nats = self._surprise(network, batch).sum(dim=1)
        return (nats * batch[WEIGHTS] if WEIGHTS in batch else nats).mean()

    def response_logits(self, network: PreTrainedModel, batch: Batch) -> Tensor:
        """Logits of all tokens behind the prompt, `(n, tokens - prompt_length, vocabulary)`.

        Prompts repeat within a batch. Each is read once, and all rows that share it attend to its
        keys and values, which gives the logits and the gradients of reading it in every row.
        """
        tokens, positions = batch["input_ids"], batch["position_ids"]
        # The prompt's last token stays with the responses: it predicts the first of them.
        shared = self.prompt_length - 1
        prompts, prompt_of_row = torch.unique(tokens[:, :shared], dim=0, return_inverse=True)
        read = network(
            input_ids=prompts, position_ids=positions[:1, :shared], use_cache=True, logits_to_keep=1
        )
        read.past_key_values.batch_select_indices(prompt_of_row)
        return network(
            input_ids=tokens[:, shared:-1],
            position_ids=positions[:, shared:-1],
            past_key_values=read.past_key_values,
            use_cache=True,
        ).logits

    def _surprise(self, network: PreTrainedModel, batch: Batch) -> Tensor:
        """-log p of each scored token, 0 elsewhere: `(n, tokens - prompt_length)`."""
        return functional.cross_entropy(
            self.response_logits(network, batch).transpose(1, 2).float(),
            batch["labels"][:, self.prompt_length :],
            ignore_index=NOT_SCORED,
            reduction="none",
        )


def _lengths(first: IntArray, second: IntArray, end: int) -> NDArray[np.int64]:
    return (first != end).sum(axis=1) + (second != end).sum(axis=1)


def _chunks(rows: IntArray, size: int) -> Iterator[IntArray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
