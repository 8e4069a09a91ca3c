"""Answer or abstain: from a request to decisions.

A choice is decided by itself: its candidates are sampled, cut where the request says, scored as
they were cut, and handed to the decoder. What a candidate says never changes after it was scored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from secondguess.language.engines import Draw, Engine
from secondguess.language.formatting import FormatError
from secondguess.language.generation import Sampling
from secondguess.language.scoring import ScoredResponse, Tokens, totals
from secondguess.serving.batching import Batcher, Job
from secondguess.serving.config import Defaults, ServerConfig
from secondguess.serving.errors import RefusedRequest
from secondguess.serving.schemas import Decoding
from secondguess.theory.decoding import decode_rejection, decode_top1
from secondguess.theory.records import Decision, GapKind

LOWEST_TEMPERATURE = 1e-3
"""What is colder is frozen: the likeliest token, without a division that overflows."""


@dataclass(frozen=True, eq=False)
class Choice:
    """One answer or abstention.

    Attributes:
        decision: what was decided.
        candidates: all that was drawn, in that order.
        rate: the largest bound that was allowed.
        gap: how confidences above 1 were treated.
    """

    decision: Decision[ScoredResponse]
    candidates: list[ScoredResponse]
    rate: float
    gap: GapKind


@dataclass(eq=False)
class _Open:
    """A choice that is not decided yet."""

    prompt: Tokens
    number: int
    candidates: list[ScoredResponse] = field(default_factory=list)


async def decide_choices(
    batcher: Batcher,
    prompts: Sequence[Tokens],
    request: Decoding,
    config: ServerConfig,
    *,
    max_tokens: int | None,
    fits: Callable[[str], bool] = lambda text: True,
) -> list[Choice]:
    """`n` decisions per prompt, prompt by prompt.

    Rejection takes the first candidate that will do, so candidates are drawn in waves that double,
    and only for choices that are still open; unless the request wants to see all of them.

    Args:
        batcher: the line before the engine.
        prompts: as tokens.
        request: how to decode.
        config: where the request does not say, and how much it may ask for.
        max_tokens: how many tokens an answer may have.
        fits: whether a text may be an answer at all.
    """
    defaults = config.defaults
    strategy = request.strategy or defaults.strategy
    size = 1 if strategy == "selective" else (request.num_candidates or defaults.num_candidates)
    choices = [_Open(prompt, number) for prompt in prompts for number in range(request.n or 1)]
    if len(choices) * size > config.max_samples:
        raise RefusedRequest(
            400,
            f"the request asks for {len(choices)} choices of {size} candidates; expected at most "
            f"{config.max_samples} samples in all (lower n or num_candidates, or send fewer "
            f"prompts).",
            param="n",
        )
    rate = request.max_hallucination_rate or defaults.max_hallucination_rate
    gap = request.gap or defaults.gap
    seed = secrets.randbits(63) if request.seed is None else request.seed % 2**64
    sampling = _sampling(request, defaults)
    if objection := batcher.engine.objection(sampling):
        raise RefusedRequest(400, objection)
    decode = decode_top1 if strategy == "top1" else decode_rejection
    at_once = strategy == "top1" or request.return_candidates

    def decided(choice: _Open) -> Decision[ScoredResponse]:
        eligible = [each for each in choice.candidates if fits(each.text)]
        return decode(eligible, totals(eligible), max_hallucination_rate=rate, gap=gap)

    for wave in [range(size)] if at_once else _waves(size):
        waiting = [each for each in choices if wave.start == 0 or decided(each).abstained]
        draws = [
            Draw(each.prompt, seed=(seed, each.number, candidate), sampling=sampling)
            for each in waiting
            for candidate in wave
        ]
        drawn = await _drawn(batcher, draws, request.stops, max_tokens, admitted=wave.start > 0)
        for place, each in enumerate(waiting):
            each.candidates += drawn[place * len(wave) : (place + 1) * len(wave)]
    return [Choice(decided(each), each.candidates, rate, gap) for each in choices]


def _waves(size: int) -> Iterator[range]:
    """Candidates that are drawn together: each wave is as large as all before it.

    >>> list(_waves(10))
    [range(0, 1), range(1, 2), range(2, 4), range(4, 8), range(8, 10)]
    """
    start = 0
    while start < size:
        stop = min(max(2 * start, 1), size)
        yield range(start, stop)
        start = stop


async def _drawn(
    batcher: Batcher,
    draws: list[Draw],
    stops: Sequence[str],
    max_tokens: int | None,
    *,
    admitted: bool,
) -> list[ScoredResponse]:
    """Responses as the request cuts them, scored as they were cut."""
    drawn = await batcher.run(Job(draws=draws, admitted=admitted))
    cut = [_cut(batcher.engine, each, stops, max_tokens) for each in drawn]
    items = [
        (draw.prompt, each.tokens)
        for draw, each in zip(draws, cut, strict=True)
        if each is not None
    ]
    scored = iter(await batcher.run(Job(items=items, admitted=True)))
    return [
        old if new is None else replace(next(scored), cut_off=new.cut_off)
        for old, new in zip(drawn, cut, strict=True)
    ]


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
        # A stop text that comes first leaves nothing to score but the end.
        try:
            tokens = formatter.response_tokens(text[: min(ends)])
        except FormatError:
            tokens = tokens[-1:]
    if max_tokens is not None and len(tokens) - 1 > max_tokens:
        return _Cut((*tokens[:max_tokens], tokens[-1]), cut_off=True)
    return _Cut(tokens, cut_off=False) if ends else None


def _sampling(request: Decoding, defaults: Defaults) -> Sampling:
    temperature = 1.0 if request.temperature is None else request.temperature
    frozen = temperature < LOWEST_TEMPERATURE
    return Sampling(
        temperature=1.0 if frozen else temperature,
        top_k=1 if frozen else None,
        top_p=None if request.top_p in (None, 1) else request.top_p,
        min_probability=request.min_probability or defaults.min_probability,
    )
