"""Pairs of sequences by the thousand: what `PairFormatter` lays out row by row, as arrays.

For data that is drawn afresh for every step, with prompts of one length and responses from a table
of tokens, so that a batch is a few NumPy gathers. The layout is that of `PairFormatter`, token for
token. Axes: rows are pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from secondguess._arrays import FloatArray, IntArray
from secondguess.language.collating import NOT_SCORED, Batch
from secondguess.language.formatting import PairFormatter
from secondguess.language.shared_prompts import response_logits


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
        """One sequence per row, padded on the right: what a causal language model takes.

        Args:
            prompts: `(n, prompt_length)` tokens, the separator included.
            first: y1, `(n, response_length)`, filled with end tokens.
            second: y2, likewise.

        Returns:
            `input_ids`, `position_ids` and `labels`, each `(n, tokens)`; a causal model needs no
            attention mask for padding on the right.
        """
        is_padded = self.formatter.config.layout == "padded"
        first_lengths, second_lengths = self._lengths(first), self._lengths(second)
        shown = np.full_like(first_lengths, self.response_length) if is_padded else first_lengths
        filler = self.response_length - shown
        totals = self.start_of_second - filler + second_lengths

        # Laid out with all filler, every token stands at its position. A column of the batch shows
        # the token that is there once the filler behind y1 is left out.
        columns = np.arange(totals.max())[None]
        end_of_first = self.prompt_length + shown
        positions = np.where(columns < end_of_first, columns, columns + filler)
        positions = np.minimum(positions, self.start_of_second + self.response_length - 1)
        tokens = np.take_along_axis(self._with_filler(prompts, first, second), positions, axis=1)
        in_first = (positions >= self.prompt_length) & (
            positions < self.prompt_length + first_lengths
        )
        in_second = (positions >= self.start_of_second) & (columns < totals)
        labels = np.where(in_first | in_second, tokens, NOT_SCORED)
        # The end of y1 sits on the last position that belongs to y1.
        positions = np.where(columns == end_of_first - 1, end_of_first + filler - 1, positions)
        return {
            "input_ids": torch.from_numpy(tokens),
            "position_ids": torch.from_numpy(positions),
            "labels": torch.from_numpy(labels),
        }

    def _with_filler(self, prompts: IntArray, first: IntArray, second: IntArray) -> IntArray:
        """Prompt, y1, separator, y2, each of full length."""
        separator = np.array(self.formatter.separator, dtype=np.int64)
        separators = np.broadcast_to(separator, (len(prompts), len(separator)))
        return np.concatenate([prompts, first, separators, second], axis=1)

    def _lengths(self, responses: IntArray) -> IntArray:
        """How many tokens each has, its end included: `(n, 1)`."""
        return 1 + (responses != self.formatter.end).sum(axis=1, keepdims=True)

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
        order = np.argsort((self._lengths(first) + self._lengths(second)).squeeze(1))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = self.batch(prompts[rows], first[rows], second[rows])
            surprise = self._surprise(network, batch)
            in_second = batch["position_ids"][:, self.prompt_length :] >= self.start_of_second
            totals[rows, 0] = -torch.where(in_second, 0.0, surprise).sum(dim=1).double()
            totals[rows, 1] = -torch.where(in_second, surprise, 0.0).sum(dim=1).double()
        return totals[:, 0], totals[:, 1]

    def loss(self, network: PreTrainedModel, batch: Batch) -> Tensor:
        """Nats of a pair, -log p(y1, y2 | x), averaged over the batch."""
        return self._surprise(network, batch).sum(dim=1).mean()

    def response_logits(self, network: PreTrainedModel, batch: Batch) -> Tensor:
        """Logits of all tokens behind the prompt, `(n, tokens - prompt_length, vocabulary)`.

        Each distinct prompt of the batch is read once; see `shared_prompts`.
        """
        starts = torch.full((len(batch["input_ids"]),), self.prompt_length)
        return response_logits(network, batch, starts.to(batch["input_ids"].device))[0]

    def _surprise(self, network: PreTrainedModel, batch: Batch) -> Tensor:
        """-log p of each scored token, 0 elsewhere: `(n, tokens - prompt_length)`."""
        return functional.cross_entropy(
            self.response_logits(network, batch).transpose(1, 2).float(),
            batch["labels"][:, self.prompt_length :],
            ignore_index=NOT_SCORED,
            reduction="none",
        )
