"""What a model has read, to be continued in several ways: prompts, and first responses behind them.

Nothing here knows whole problems: `scoring` scores given responses behind prefixes, `drawing` and
`generation` draw new ones. Rows of tensors are sequences; log-probabilities are per token.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from secondguess._arrays import FloatArray
from secondguess.language.collating import pad
from secondguess.language.formatting import PairTokens
from secondguess.language.model import PairLanguageModel

Tokens = tuple[int, ...]

FEWEST_ALIKE = 3
"""Tokens that all prompts begin with, from which on a pass of its own for them is worth it."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """What a model has read, one sequence per row, padded on the left.

    Attributes:
        cache: the keys and values of every layer.
        attention_mask: `(rows, tokens)`, 0 for padding.
        logits: `(rows, vocabulary)`, of the token behind each sequence.
        starts: the position of that token, for each row.
    """

    cache: Any
    attention_mask: Tensor
    logits: Tensor
    starts: tuple[int, ...]

    @classmethod
    def of(
        cls,
        model: PairLanguageModel,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]] | None = None,
    ) -> Prefix:
        """Read sequences of tokens; without `positions`, they are prompts, which count from 0.

        What all prompts begin with is read once.
        """
        if positions is not None:
            return cls._padded(model, sequences, positions)
        num_alike = _num_alike(sequences)
        if num_alike < FEWEST_ALIKE:
            return cls._padded(model, sequences, [range(len(tokens)) for tokens in sequences])
        begun = cls._padded(model, [sequences[0][:num_alike]], [range(num_alike)])
        if begun.slides:  # the padding behind it would push real tokens out of the window
            return cls._padded(model, sequences, [range(len(tokens)) for tokens in sequences])
        return cls._padded(
            model,
            [tokens[num_alike:] for tokens in sequences],
            [range(num_alike, len(tokens)) for tokens in sequences],
            begun.select([0] * len(sequences)),
        )

    @classmethod
    def _padded(
        cls,
        model: PairLanguageModel,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        begun: Prefix | None = None,
    ) -> Prefix:
        """Read sequences in one pass, behind what was begun with; that is used up."""
        device = model.network.device
        mask = pad([[1] * len(tokens) for tokens in sequences], 0, "left").to(device)
        if begun is not None:
            mask = torch.cat([begun.attention_mask, mask], dim=1)
        output = model.network(
            input_ids=pad(sequences, model.formatter.end, "left").to(device),
            attention_mask=mask,
            position_ids=pad(positions, 0, "left").to(device),
            past_key_values=None if begun is None else begun.cache,
            use_cache=True,
            **last_logits_only(model.network),
        )
        starts = tuple(each[-1] + 1 for each in positions)
        return cls(output.past_key_values, mask, output.logits[:, -1], starts)

    def select(self, rows: Sequence[int]) -> Prefix:
        """A prefix whose row i is row `rows[i]` of this one; this one stays as it is."""
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        if list(rows) != list(range(len(self.starts))):
            select_rows(cache, rows, self.logits.device)
        index = torch.tensor(rows, device=self.logits.device)
        return Prefix(
            cache,
            self.attention_mask[index],
            self.logits[index],
            tuple(self.starts[r] for r in rows),
        )

    @property
    def slides(self) -> bool:
        """Whether a layer sees only the last tokens, from which holes would push out real ones."""
        return any(getattr(layer, "is_sliding", False) for layer in self.cache.layers)

    def scores(self, model: PairLanguageModel, laid_out: Sequence[PairTokens]) -> list[FloatArray]:
        """Log-probabilities of the scored tokens behind each row; the cache is used up."""
        # The last token is only predicted, never read.
        if all(len(each.tokens) == 1 for each in laid_out):
            tokens = torch.tensor([each.tokens for each in laid_out], device=self.logits.device)
            only = log_prob_of(self.logits[:, None], tokens)
            return [row[each.scored] for row, each in zip(only, laid_out, strict=True)]
        _, _, log_probs = self._read(model, laid_out, unread=1)
        return log_probs

    def behind(
        self, model: PairLanguageModel, firsts: Sequence[Tokens]
    ) -> tuple[Prefix, list[FloatArray]]:
        """What is known behind a first response of each row, and the scores of that response.

        The cache of this prefix is used up. Rows of several lengths leave masked holes.
        """
        laid_out = [
            model.formatter.lay_out_responses(start, first, ())
            for start, first in zip(self.starts, firsts, strict=True)
        ]
        output, mask, log_probs = self._read(model, laid_out, unread=0)
        last = torch.tensor([len(each.tokens) - 1 for each in laid_out], device=mask.device)
        logits = output.logits[torch.arange(len(last), device=mask.device), last]
        starts = tuple(each.positions[-1] + 1 for each in laid_out)
        return Prefix(output.past_key_values, mask, logits, starts), log_probs

    def _read(
        self, model: PairLanguageModel, laid_out: Sequence[PairTokens], *, unread: int
    ) -> tuple[Any, Tensor, list[FloatArray]]:
        """Read all but the last `unread` tokens: output, mask, log-probabilities where scored."""
        device = self.logits.device
        tokens = pad([each.tokens for each in laid_out], model.formatter.end, "right").to(device)
        read = [slice(0, len(each.tokens) - unread) for each in laid_out]
        positions = [each.positions[part] for each, part in zip(laid_out, read, strict=True)]
        here = pad([[1] * len(each) for each in positions], 0, "right").to(device)
        mask = torch.cat([self.attention_mask, here], dim=1)
        output = model.network(
            input_ids=tokens[:, : here.shape[1]],
            attention_mask=mask,
            position_ids=pad(positions, 0, "right").to(device),
            past_key_values=self.cache,
            use_cache=True,
        )
        ahead = output.logits[:, : tokens.shape[1] - 1]
        table = np.concatenate(
            [
                log_prob_of(self.logits[:, None], tokens[:, :1]),
                log_prob_of(ahead, tokens[:, 1:]),
            ],
            axis=1,
        )
        log_probs = [
            row[: len(each.tokens)][each.scored] for row, each in zip(table, laid_out, strict=True)
        ]
        for each in log_probs:
            check_numbers(each)
        return output, mask, log_probs


def _num_alike(sequences: Sequence[Sequence[int]]) -> int:
    """How many tokens several sequences begin with, all of them, leaving one of each to read."""
    if len(sequences) < 2:
        return 0
    shortest = min(map(len, sequences)) - 1
    begins = [tuple(tokens[:shortest]) for tokens in sequences]
    first, last = min(begins), max(begins)  # what these two share, those between them share too
    differ = (place for place in range(shortest) if first[place] != last[place])
    return next(differ, shortest)


def last_logits_only(network: nn.Module) -> dict[str, int]:
    """The option that spares the logits of all tokens but the last, where a model has it."""
    accepted = inspect.signature(network.forward).parameters
    return {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}


def select_rows(cache: Any, rows: Sequence[int], device: torch.device) -> None:
    """Let row i of a cache be what row `rows[i]` was."""
    index = torch.tensor(rows, device=device)
    for layer in cache.layers:
        if not hasattr(layer, "batch_select_indices"):
            raise ValueError(
                f"the model's cache has a {type(layer).__name__}; expected attention layers only "
                f"(recurrent models cannot share a prompt between responses)."
            )
        layer.batch_select_indices(index)


def log_prob_of(logits: Tensor, tokens: Tensor) -> FloatArray:
    """Log-probabilities of tokens `(...)` under logits `(..., vocabulary)`, as float64."""
    logits = at_least_float32(logits)
    chosen = logits.gather(-1, tokens[..., None]).squeeze(-1)
    return (chosen - logits.logsumexp(dim=-1)).double().cpu().numpy()


def check_numbers(values: FloatArray) -> None:
    """Complain where a model predicts NaN: no token can be chosen by that, and no score given."""
    if np.isnan(values).any():
        raise FloatingPointError(
            "the model's predictions are not numbers (NaN): its weights are damaged, or too large "
            "for their precision."
        )


def at_least_float32(logits: Tensor) -> Tensor:
    """Half-precision logits as float32: a softmax over a vocabulary needs the digits."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
