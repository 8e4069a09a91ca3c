"""Answer or abstain: from a request to decisions.

A choice is decided by itself: its candidates are sampled, cut where the request says, scored as
they were cut, and handed to the decoder. What a candidate says never changes after it was scored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from secondguess.language.answering import Strategy
from secondguess.language.engines import Draw, Engine, Question
from secondguess.language.formatting import FormatError
from secondguess.language.generation import Sampling
from secondguess.language.marked import MarkedAnswers
from secondguess.language.meaning_functions import Meaning, meaning_from
from secondguess.language.meanings import ScoredMeaning
from secondguess.language.scoring import ScoredResponse, Tokens, totals
from secondguess.serving.batching import Batcher, Job
from secondguess.serving.config import Defaults, ServerConfig
from secondguess.serving.errors import RefusedRequest
from secondguess.serving.schemas import Decoding
from secondguess.theory.decoding import decode_rejection, decode_top1, withheld
from secondguess.theory.records import Decision, GapKind, SelfCheatScores

CandidateT = TypeVar("CandidateT", ScoredResponse, ScoredMeaning)
ScoresOf = Callable[[Sequence[CandidateT]], SelfCheatScores]
Seed = tuple[int, ...]

_meaning_of = cache(meaning_from)
"""One function per description, so that the questions of several requests are of one kind."""

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
        num_samples: how many responses were drawn.
        settled: whether further candidates would change nothing.
        marked: what marked answers guarantee, if it was decided just as they were.
    """

    decision: Decision[ScoredResponse] | Decision[ScoredMeaning]
    candidates: Sequence[ScoredResponse | ScoredMeaning]
    rate: float
    gap: GapKind
    num_samples: int
    settled: bool
    marked: MarkedAnswers | None = None


@dataclass(frozen=True, eq=False)
class _Rule:
    """How the candidates of a choice become a decision."""

    strategy: Strategy
    rate: float
    gap: GapKind
    fits: Callable[[str], bool] | None
    marked: MarkedAnswers | None

    def choice(
        self, candidates: list[CandidateT], scores: ScoresOf[CandidateT], num_samples: int
    ) -> Choice:
        """The decision over candidates in the order in which they were drawn."""
        pool = candidates[:1] if self.strategy == "selective" else candidates
        eligible = [each for each in pool if self.fits is None or self.fits(each.text)]
        decode = decode_top1 if self.strategy == "top1" else decode_rejection
        chosen_at = self.rate if self.marked is None else self.marked.chosen_at
        chosen: Any = decode(
            eligible, scores(eligible), max_hallucination_rate=chosen_at, gap=self.gap
        )
        decision = withheld(chosen, None if self.marked is None else self.marked.max_gap)
        settled = not chosen.abstained
        return Choice(decision, candidates, self.rate, self.gap, num_samples, settled, self.marked)


async def decide_choices(
    batcher: Batcher,
    prompts: Sequence[Tokens],
    request: Decoding,
    config: ServerConfig,
    *,
    max_tokens: int | None,
    fits: Callable[[str], bool] | None = None,
) -> list[Choice]:
    """`n` decisions per prompt, prompt by prompt.

    Args:
        batcher: the line before the engine.
        prompts: as tokens.
        request: how to decode.
        config: where the request does not say, and how much it may ask for.
        max_tokens: how many tokens an answer may have.
        fits: whether a text may be an answer at all; None if any may.
    """
    defaults = config.defaults
    length = batcher.engine.formatter.config.response_length
    if max_tokens is not None and max_tokens >= length - 1:
        max_tokens = None  # no response is longer
    altered = [*request.resampled, *([] if max_tokens is None else ["max_tokens"])]
    rule = _rule_for(request, config, fits, resampled=bool(altered))
    size = request.num_candidates or defaults.num_candidates
    if config.meaning is not None:
        size = max(2, size)
    elif rule.strategy == "selective":
        size = 1
    seed = secrets.randbits(63) if request.seed is None else request.seed % 2**64
    asked = [(prompt, (seed, number)) for prompt in prompts for number in range(request.n or 1)]
    if len(asked) * size > config.max_samples:
        raise RefusedRequest(
            400,
            f"the request asks for {len(asked)} choices of {size} candidates; expected at most "
            f"{config.max_samples} samples in all (lower n or num_candidates, or send fewer "
            f"prompts).",
            param="n",
        )
    if config.meaning is None:
        return await _by_wording(batcher, asked, request, rule, defaults, size, max_tokens)
    if altered:
        raise RefusedRequest(
            400,
            f"answers are judged by their meaning here, over the model's own samples; leave out "
            f"{', '.join(altered)}.",
            param=altered[0],
        )
    return await _by_meaning(batcher, asked, _meaning_of(config.meaning), rule, size)


def _rule_for(
    request: Decoding,
    config: ServerConfig,
    fits: Callable[[str], bool] | None,
    *,
    resampled: bool,
) -> _Rule:
    """The operator's rule with the changes of the request, if the model's check supports them."""
    as_marked = not resampled and fits is None and not request.decides_otherwise
    marked = config.marked if as_marked else None
    rate = request.max_hallucination_rate or config.defaults.max_hallucination_rate
    finding = config.finding if marked is None else None
    if finding is not None and (objection := finding.objection(rate)):
        raise RefusedRequest(400, f"{objection}.", param="max_hallucination_rate")
    return _Rule(
        request.strategy or config.defaults.strategy,
        rate,
        request.gap or config.defaults.gap,
        fits,
        marked,
    )


async def _by_wording(
    batcher: Batcher,
    asked: Sequence[tuple[Tokens, Seed]],
    request: Decoding,
    rule: _Rule,
    defaults: Defaults,
    size: int,
    max_tokens: int | None,
) -> list[Choice]:
    """Decide about responses.

    Rejection takes the first candidate that will do, so candidates are drawn in waves that double,
    and only for choices that are still open; unless the request wants to see all of them.
    """
    sampling = _sampling(request, defaults)
    if objection := batcher.engine.objection(sampling):
        raise RefusedRequest(400, objection)
    at_once = rule.strategy == "top1" or request.return_candidates
    candidates: list[list[ScoredResponse]] = [[] for _ in asked]
    choices = [rule.choice(each, totals, 0) for each in candidates]
    for wave in [range(size)] if at_once else _waves(size):
        waiting = [row for row, choice in enumerate(choices) if not choice.settled]
        draws = [
            Draw(asked[row][0], seed=(*asked[row][1], candidate), sampling=sampling)
            for row in waiting
            for candidate in wave
        ]
        drawn = await _drawn(batcher, draws, request.stops, max_tokens, admitted=wave.start > 0)
        for place, row in enumerate(waiting):
            candidates[row] += drawn[place * len(wave) : (place + 1) * len(wave)]
            choices[row] = rule.choice(candidates[row], totals, len(candidates[row]))
    return choices


async def _by_meaning(
    batcher: Batcher,
    asked: Sequence[tuple[Tokens, Seed]],
    meaning: Meaning,
    rule: _Rule,
    num_samples: int,
) -> list[Choice]:
    """Decide about meanings, by scores with the sampling error inside."""
    questions = [Question(prompt, seed, num_samples, meaning) for prompt, seed in asked]
    return [
        rule.choice(meanings, _cautious, num_samples)
        for meanings in await batcher.run(Job(questions))
    ]


def _cautious(meanings: Sequence[ScoredMeaning]) -> SelfCheatScores:
    """The scores of meanings that bounds rest on, `(n,)`."""
    return SelfCheatScores(
        np.array([each.cautious.log_marginal for each in meanings], dtype=np.float64),
        np.array([each.cautious.log_self_conditional for each in meanings], dtype=np.float64),
    )


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
    drawn = await batcher.run(Job(draws, admitted))
    cut = [_cut(batcher.engine, each, stops, max_tokens) for each in drawn]
    items = [
        (draw.prompt, each.tokens)
        for draw, each in zip(draws, cut, strict=True)
        if each is not None
    ]
    scored = iter(await batcher.run(Job(items, admitted=True)))
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
