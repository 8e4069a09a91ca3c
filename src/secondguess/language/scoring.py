"""Log p(y|x) and log p(y|y,x) of sequences, token by token.

A prompt is computed once for all of its responses, and one pass over y, y gives both numbers,
because the second y reads the keys and values of the first; a y1 with several y2 is read once.
Batches are grouped by length; padding and batch size do not change the result. Everything here is
per token: arrays have one entry per response token, the end token included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from secondguess._arrays import FloatArray, check_at_least
from secondguess.language.formatting import AnyRow, PairTokens
from secondguess.language.model import PairLanguageModel
from secondguess.language.prefixes import Prefix, Tokens
from secondguess.language.recalibration import SequenceRecalibration, wordings_only
from secondguess.theory.records import SelfCheatScores

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
    def num_tokens(self) -> int:
        """How many tokens it has, with the end."""
        return len(self.tokens)

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
        work = _score_sharing if _worth_sharing(prefix, waiting) else _score_each
        for (row, first, second), result in work(model, prefix, waiting, batch_size):
            results[prompts[row], first, second] = result
    return [results[item] for item in items]


_Item = tuple[int, Tokens, Tokens]
_Scored = Iterator[tuple[_Item, tuple[FloatArray, FloatArray]]]


def _worth_sharing(prefix: Prefix, items: Sequence[_Item]) -> bool:
    """Whether first responses come up repeatedly, in a model that lets what is read have holes."""
    return len({item[:2] for item in items}) < len(items) and not prefix.slides


def _score_each(
    model: PairLanguageModel, prefix: Prefix, items: Sequence[_Item], batch_size: int
) -> _Scored:
    """Both responses of each item in one pass."""
    for batch in chunks(items, batch_size):
        here = prefix.select([row for row, _, _ in batch])
        laid_out = [
            model.formatter.lay_out_responses(start, first, second)
            for start, (_, first, second) in zip(here.starts, batch, strict=True)
        ]
        for item, scored in zip(batch, here.scores(model, laid_out), strict=True):
            yield item, (scored[: len(item[1])], scored[len(item[1]) :])


def _score_sharing(
    model: PairLanguageModel, prefix: Prefix, items: Sequence[_Item], batch_size: int
) -> _Scored:
    """Each first response of a prompt in one pass, and its second ones in another."""
    seconds: dict[tuple[int, Tokens], list[Tokens]] = {}
    for row, first, second in items:
        seconds.setdefault((row, first), []).append(second)
    order = sorted(seconds, key=lambda each: (len(each[1]), each))
    for batch in chunks(order, batch_size):
        behind, alone = prefix.select([row for row, _ in batch]).behind(
            model, [first for _, first in batch]
        )
        waiting = [(place, y) for place, each in enumerate(batch) for y in seconds[each]]
        waiting.sort(key=lambda each: (len(each[1]), each))
        for part in chunks(waiting, batch_size):
            here = behind.select([place for place, _ in part])
            plain = [
                PairTokens([*y], [*range(start, start + len(y))], [True] * len(y))
                for start, (_, y) in zip(here.starts, part, strict=True)
            ]
            for (place, y), scored in zip(part, here.scores(model, plain), strict=True):
                row, first = batch[place]
                yield (row, first, y), (alone[place], scored)


def chunks(items: Sequence[ItemT], size: int) -> Iterator[Sequence[ItemT]]:
    """Consecutive pieces of at most `size` items."""
    return (items[start : start + size] for start in range(0, len(items), size))
