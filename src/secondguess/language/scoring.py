"""Log p(y|x) and log p(y|y,x) of sequences, token by token.

A prompt is computed once for all of its responses, and one pass over y, y gives both numbers,
because the second y reads the keys and values of the first. Batches are grouped by length; padding
and batch size do not change the result. Everything here is per token: arrays have one entry per
response token, the end token included.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from secondguess._arrays import FloatArray, check_at_least
from secondguess.language.collating import pad
from secondguess.language.formatting import AnyRow
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration import SequenceRecalibration, wordings_only
from secondguess.theory.records import SelfCheatScores

Tokens = tuple[int, ...]
ItemT = TypeVar("ItemT")

DEFAULT_BATCH_SIZE = 32


@dataclass(frozen=True, slots=True, eq=False)
class ScoredResponse:
    """A response and, for each of its tokens, how likely it was with and without peeking.

    >>> one = ScoredResponse((3, 0), "yes", np.log([0.5, 1.0]), np.log([0.8, 1.0]))
    >>> one.cheating.round(3)
    array([0.47, 0.  ])

    Two scored responses are equal if their tokens are.

    Attributes:
        tokens: the tokens, with the end token.
        text: the response without its end.
        log_marginal: `(tokens,)`, log p(y_t | x, y_<t).
        log_self_conditional: `(tokens,)`, log p(y_t | x, y, y_<t).
        cut_off: whether it is the beginning of a longer response: it was drawn from the model, had
            not ended at the last of its positions, and was ended there.
        recalibration: how the totals are corrected; tokens are as the network has them.
    """

    tokens: Tokens
    text: str
    log_marginal: FloatArray
    log_self_conditional: FloatArray
    cut_off: bool = False
    recalibration: SequenceRecalibration | None = None

    @property
    def cheating(self) -> FloatArray:
        """`(tokens,)`: how much more likely peeking made each token, in nats."""
        return self.log_self_conditional - self.log_marginal

    @property
    def scores(self) -> SelfCheatScores:
        """The totals over the tokens, of shape `()`, recalibrated if the model was."""
        return totals([self])[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScoredResponse) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(self.tokens)


def totals(responses: Sequence[ScoredResponse]) -> SelfCheatScores:
    """The scores of whole responses, `(n,)`: sums over their tokens in float64.

    They are recalibrated if the model that scored them was.

    >>> one = ScoredResponse((3, 0), "yes", np.log([0.5, 1.0]), np.log([0.8, 1.0]))
    >>> totals([one]).epistemic_confidence.round(6)
    array([0.625])
    """
    plain = SelfCheatScores(
        np.array([each.log_marginal.sum() for each in responses], dtype=np.float64),
        np.array([each.log_self_conditional.sum() for each in responses], dtype=np.float64),
    )
    recalibrations = {each.recalibration for each in responses}
    if len(recalibrations) > 1:
        raise ValueError("the responses are of models with different recalibrations.")
    recalibration = recalibrations.pop() if recalibrations else None
    return plain if recalibration is None else recalibration(plain)


def score(
    model: PairLanguageModel,
    rows: Sequence[AnyRow],
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[list[ScoredResponse]]:
    """Score responses to prompts: once at first sight, once after peeking at themselves.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> rows = [{"prompt": "flip", "responses": ["heads", "tails"]}]
    >>> [[heads, tails]] = score(tiny_pair_model(), rows)
    >>> heads.text, heads.cheating.shape  # one word and the end
    ('heads', (2,))
    >>> totals([heads, tails]).epistemic_confidence.shape
    (2,)

    Args:
        model: a pair model.
        rows: `{"prompt": ..., "responses": [...]}` with one or more responses, or such rows
            encoded; equal prompts are computed once.
        batch_size: how many sequences are in one pass.

    Returns:
        The scored responses of each row; `totals` makes `SelfCheatScores` of them.
    """
    formatter = model.formatter
    encoded = [formatter.encode(row, min_responses=1) for row in rows]
    items = [(row.prompt, tokens, tokens) for row in encoded for tokens in row.responses]
    results = iter(score_tokens(model, items, batch_size=batch_size))
    recalibration = wordings_only(model.recalibration)
    return [
        [
            ScoredResponse(
                tokens, formatter.text(tokens), *next(results), recalibration=recalibration
            )
            for tokens in row.responses
        ]
        for row in encoded
    ]


def score_pairs(
    model: PairLanguageModel,
    rows: Sequence[AnyRow],
    *,
    both_orders: bool = False,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> tuple[FloatArray, FloatArray]:
    """Log p(y1|x) and log p(y2|y1,x) of the first two responses of each row, of shape `(rows,)`.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> rows = [{"prompt": "flip", "responses": ["heads", "tails"]}]
    >>> first, second = score_pairs(tiny_pair_model(), rows)
    >>> first.shape, second.shape
    ((1,), (1,))

    Args:
        model: a pair model.
        rows: `{"prompt": ..., "responses": [...]}` with two or more responses, or encoded rows.
        both_orders: average p(y1, y2|x) over the two orders of the pair, which a calibrated model
            has equal and a trained one does not; it costs twice the time. The mean log-likelihood
            of pairs in a random order never falls by it (an average exceeds a geometric mean).
        batch_size: how many sequences are in one pass.
    """
    encoded = [model.formatter.encode(row) for row in rows]
    items = [(row.prompt, row.responses[0], row.responses[1]) for row in encoded]
    turned = [(prompt, second, first) for prompt, first, second in items] if both_orders else []
    results = score_tokens(model, items + turned, batch_size=batch_size)
    sums = np.array([[first.sum(), second.sum()] for first, second in results], dtype=np.float64)
    sums = sums.reshape(1 + both_orders, len(items), 2)
    log_first = sums[0, :, 0]
    if not both_orders:
        return log_first, sums[0, :, 1]
    log_joint = np.logaddexp(*sums.sum(axis=2)) - np.log(2)
    return log_first, log_joint - log_first


@torch.inference_mode()
def score_tokens(
    model: PairLanguageModel, items: Sequence[tuple[Tokens, Tokens, Tokens]], *, batch_size: int
) -> list[tuple[FloatArray, FloatArray]]:
    """Per-token log p(y1_t | x, y1_<t) and log p(y2_t | x, y1, y2_<t) of items (x, y1, y2)."""
    check_at_least("batch_size", batch_size, 1)
    by_prompt: dict[Tokens, set[tuple[Tokens, Tokens]]] = {}
    for prompt, first, second in items:
        by_prompt.setdefault(prompt, set()).add((first, second))
    results: dict[tuple[Tokens, Tokens, Tokens], tuple[FloatArray, FloatArray]] = {}
    # Sorting by length, then by tokens, makes batches that depend on nothing but the items.
    order = sorted(by_prompt, key=lambda prompt: (len(prompt), prompt))
    for prompts in chunks(order, batch_size):
        prefix = Prefix.of(model, prompts)
        waiting = [(row, *pair) for row, prompt in enumerate(prompts) for pair in by_prompt[prompt]]
        waiting.sort(key=lambda item: (len(item[1]) + len(item[2]), item))
        for batch in chunks(waiting, batch_size):
            scored = _score_batch(model, prefix.select([row for row, _, _ in batch]), batch)
            for (row, first, second), result in zip(batch, scored, strict=True):
                results[prompts[row], first, second] = result
    return [results[item] for item in items]


def chunks(items: Sequence[ItemT], size: int) -> Iterator[Sequence[ItemT]]:
    """Consecutive pieces of at most `size` items."""
    return (items[start : start + size] for start in range(0, len(items), size))


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
        """Read sequences of tokens; without `positions`, they are prompts, which count from 0."""
        device = model.network.device
        if positions is None:
            positions = [range(len(tokens)) for tokens in sequences]
        mask = pad([[1] * len(tokens) for tokens in sequences], 0, "left").to(device)
        output = model.network(
            input_ids=pad(sequences, model.formatter.end, "left").to(device),
            attention_mask=mask,
            position_ids=pad(positions, 0, "left").to(device),
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


def _score_batch(
    model: PairLanguageModel, prefix: Prefix, batch: Sequence[tuple[int, Tokens, Tokens]]
) -> list[tuple[FloatArray, FloatArray]]:
    laid_out = [
        model.formatter.lay_out_responses(start, first, second)
        for start, (_, first, second) in zip(prefix.starts, batch, strict=True)
    ]
    device = prefix.logits.device
    # The last token is only predicted, never read.
    mask = pad([[1] * (len(each.tokens) - 1) for each in laid_out], 0, "right").to(device)
    tokens = pad([each.tokens for each in laid_out], model.formatter.end, "right").to(device)
    output = model.network(
        input_ids=tokens[:, :-1],
        attention_mask=torch.cat([prefix.attention_mask, mask], dim=1),
        position_ids=pad([each.positions[:-1] for each in laid_out], 0, "right").to(device),
        past_key_values=prefix.cache,
        use_cache=True,
    )
    log_probs = np.concatenate(
        [
            log_prob_of(prefix.logits[:, None], tokens[:, :1]),
            log_prob_of(output.logits, tokens[:, 1:]),
        ],
        axis=1,
    )
    results = []
    for row, ((_, first, _), each) in enumerate(zip(batch, laid_out, strict=True)):
        scored = log_probs[row, : len(each.tokens)][each.scored]
        check_numbers(scored)
        results.append((scored[: len(first)], scored[len(first) :]))
    return results


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
