"""From a request to decisions.

A choice is decided by itself: its candidates are sampled, cut where the request says, scored as
they were cut, and handed to the decoder. What a candidate says never changes after it was scored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from secondguess.language.answering import Strategy
from secondguess.language.engines import Draw, Engine
from secondguess.language.generation import Sampling
from secondguess.language.scoring import ScoredResponse, Tokens, totals
from secondguess.serving.batching import Batcher, Job
from secondguess.serving.schemas import Decoding
from secondguess.theory.decoding import decode_rejection, decode_top1
from secondguess.theory.records import Decision, GapKind


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """How requests are answered that do not say how.

    Attributes:
        max_hallucination_rate: the largest bound that is still answered.
        strategy: `selective`, `rejection` or `top1`.
        num_candidates: how many samples one answer may cost.
        min_probability: no token less likely than this is sampled.
        gap: how confidences above 1 are treated.
    """

    max_hallucination_rate: float = 0.1
    strategy: Strategy = "rejection"
    num_candidates: int = 10
    min_probability: float | None = None
    gap: GapKind = "absolute"


@dataclass(frozen=True, eq=False)
class Choice:
    """One answer or abstention.

    Attributes:
        decision: what was decided.
        candidates: all that was drawn, in that order.
        rate: the largest bound that was allowed.
    """

    decision: Decision[ScoredResponse]
    candidates: list[ScoredResponse]
    rate: float


async def decide_choices(
    batcher: Batcher,
    prompts: Sequence[Tokens],
    request: Decoding,
    defaults: Defaults,
    *,
    max_tokens: int | None,
    fits: Callable[[str], bool] = lambda text: True,
) -> list[Choice]:
    """`n` decisions per prompt, prompt by prompt.

    Args:
        batcher: the line before the engine.
        prompts: as tokens.
        request: how to decode.
        defaults: where the request does not say.
        max_tokens: how many tokens an answer may have.
        fits: whether a text may be an answer at all.
    """
    strategy = request.strategy or defaults.strategy
    num_candidates = request.num_candidates or defaults.num_candidates
    size = 1 if strategy == "selective" else num_candidates
    rate = request.max_hallucination_rate or defaults.max_hallucination_rate
    seed = secrets.randbits(63) if request.seed is None else request.seed % 2**64
    sampling = _sampling(request, defaults)
    draws = [
        Draw(prompt, seed=(seed, choice, candidate), sampling=sampling)
        for prompt in prompts
        for choice in range(request.n or 1)
        for candidate in range(size)
    ]
    drawn = await batcher.run(Job(draws=draws))
    cut = [_cut(batcher.engine, each, request.stops, max_tokens) for each in drawn]
    rows = [row for row, each in enumerate(cut) if each is not None]
    items = [(draws[row].prompt, each.tokens) for row, each in enumerate(cut) if each is not None]
    for row, scored in zip(rows, await batcher.run(Job(items=items)), strict=True):
        drawn[row] = replace(scored, cut_off=cut[row].cut_off)  # pyright: ignore
    decode = decode_top1 if strategy == "top1" else decode_rejection
    choices = []
    for start in range(0, len(draws), size):
        candidates = drawn[start : start + size]
        eligible = [each for each in candidates if fits(each.text)]
        decision = decode(
            eligible,
            totals(eligible),
            max_hallucination_rate=rate,
            gap=request.gap or defaults.gap,
        )
        choices.append(Choice(decision, candidates, rate))
    return choices


@dataclass(frozen=True)
class _Cut:
    """A response that the request ends earlier than the model did."""

    tokens: Tokens
    cut_off: bool


def _cut(
    engine: Engine, response: ScoredResponse, stops: Sequence[str], max_tokens: int | None
) -> _Cut | None:
    """What is left of a response before the first stop text and within `max_tokens`, if less."""
    formatter = engine.formatter
    text = response.text
    ends = [at for stop in stops if (at := text.find(stop)) >= 0]
    tokens = response.tokens
    if ends:
        # A stop text that comes first leaves nothing to score: the response keeps its one end.
        kept = text[: min(ends)]
        tokens = formatter.response_tokens(kept) if kept else tokens[-1:]
    if max_tokens is not None and len(tokens) - 1 > max_tokens:
        return _Cut((*tokens[:max_tokens], tokens[-1]), cut_off=True)
    return _Cut(tokens, cut_off=False) if ends else None


def _sampling(request: Decoding, defaults: Defaults) -> Sampling:
    temperature = 1.0 if request.temperature is None else request.temperature
    return Sampling(
        temperature=temperature or 1.0,
        top_k=None if temperature else 1,
        top_p=None if request.top_p in (None, 1) else request.top_p,
        min_probability=request.min_probability or defaults.min_probability,
    )
