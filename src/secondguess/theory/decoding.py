"""Decoders that abstain when the hallucination bound is too weak (section 4.1).

They work over any sampler and any scorer, on batches of prompts, and return one `Decision` a
prompt. If the scores come from a calibrated pair model, and the sampler sees a prompt only through
that model, then among the responses given at most a share `max_hallucination_rate` has true
probability zero (Theorem 4.5): the gap of each response is a bound on its own chance.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from secondguess._arrays import check_at_least, check_rate
from secondguess.theory.bounds import hallucination_bound
from secondguess.theory.records import Decision, GapKind, SelfCheatScores

PromptT = TypeVar("PromptT")
ResponseT = TypeVar("ResponseT", bound=Hashable)

Sampler = Callable[[Sequence[PromptT], np.random.Generator], Sequence[ResponseT]]
"""Draws one response for each prompt."""

Scorer = Callable[[Sequence[PromptT], Sequence[ResponseT]], SelfCheatScores]
"""Scores response i as an answer to prompt i."""


def selective_filter(
    prompts: Sequence[PromptT],
    sampler: Sampler[PromptT, ResponseT],
    scorer: Scorer[PromptT, ResponseT],
    *,
    max_hallucination_rate: float,
    rng: np.random.Generator,
    gap: GapKind = "absolute",
) -> list[Decision[ResponseT]]:
    """Sample one response a prompt and keep it if its gap is at most `max_hallucination_rate`.

    >>> def sampler(prompts, rng):
    ...     return ["heads"] * len(prompts)
    >>> def scorer(prompts, responses):  # it knows the fair coin, but not which way the other leans
    ...     conditional = [0.5 if prompt == "fair" else 0.9 for prompt in prompts]
    ...     return SelfCheatScores(np.log([0.5] * len(prompts)), np.log(conditional))
    >>> rng = np.random.default_rng(0)
    >>> for decision in selective_filter(
    ...     ["fair", "biased"], sampler, scorer, max_hallucination_rate=0.1, rng=rng
    ... ):
    ...     print(decision.response, decision.bound, sep=": ")
    heads: 0.0 if calibrated on pairs
    None: None

    Args:
        prompts: what to answer.
        sampler: draws one response a prompt.
        scorer: scores them.
        max_hallucination_rate: the largest gap that is still answered, in (0, 1).
        rng: handed to the sampler.
        gap: how confidences above 1, which a calibrated model never has, are treated; see
            `SelfCheatScores.confidence_gap`.
    """
    return rejection_sample(
        prompts,
        sampler,
        scorer,
        max_hallucination_rate=max_hallucination_rate,
        max_attempts=1,
        rng=rng,
        gap=gap,
    )


def rejection_sample(
    prompts: Sequence[PromptT],
    sampler: Sampler[PromptT, ResponseT],
    scorer: Scorer[PromptT, ResponseT],
    *,
    max_hallucination_rate: float,
    max_attempts: int,
    rng: np.random.Generator,
    gap: GapKind = "absolute",
) -> list[Decision[ResponseT]]:
    """Sample until a response's gap is at most `max_hallucination_rate`, `max_attempts` times.

    Only prompts still without an answer are sampled again, and a response that comes up a second
    time for the same prompt is not scored again.

    >>> def sampler(prompts, rng):
    ...     return [str(rng.choice(["heads", "edge"])) for _ in prompts]
    >>> def scorer(prompts, responses):
    ...     conditional = [0.5 if response == "heads" else 0.9 for response in responses]
    ...     return SelfCheatScores(np.log([0.5] * len(responses)), np.log(conditional))
    >>> decisions = rejection_sample(
    ...     ["fair"] * 3, sampler, scorer, max_hallucination_rate=0.1, max_attempts=50,
    ...     rng=np.random.default_rng(0),
    ... )
    >>> [(decision.response, decision.num_candidates) for decision in decisions]
    [('heads', 2), ('heads', 2), ('heads', 2)]
    """
    rate = check_rate("max_hallucination_rate", max_hallucination_rate)
    check_at_least("max_attempts", max_attempts, 1)
    decisions = [_abstain(max_attempts) for _ in prompts]
    rejected: list[set[ResponseT]] = [set() for _ in prompts]
    waiting = list(range(len(prompts)))
    for attempt in range(1, max_attempts + 1):
        if not waiting:
            break
        responses = _sample(sampler, [prompts[row] for row in waiting], rng)
        fresh = [
            (row, response)
            for row, response in zip(waiting, responses, strict=True)
            if response not in rejected[row]
        ]
        scores = _score(scorer, [(prompts[row], response) for row, response in fresh])
        gaps = scores.confidence_gap(gap)
        for index, (row, response) in enumerate(fresh):
            if gaps[index] <= rate:
                decisions[row] = _answer(response, scores[index], float(gaps[index]), attempt)
            else:
                rejected[row].add(response)
        waiting = [row for row in waiting if decisions[row].abstained]
    return decisions


def top1_search(
    prompts: Sequence[PromptT],
    sampler: Sampler[PromptT, ResponseT],
    scorer: Scorer[PromptT, ResponseT],
    *,
    max_hallucination_rate: float,
    num_candidates: int,
    rng: np.random.Generator,
    gap: GapKind = "absolute",
) -> list[Decision[ResponseT]]:
    """The most probable of `num_candidates` samples whose gap is at most `max_hallucination_rate`.

    It approximates the argmax over all responses by the argmax over samples; equal samples of one
    prompt are scored once, and of equally probable ones the first drawn wins.

    >>> def sampler(prompts, rng):
    ...     return [int(rng.integers(3)) for _ in prompts]
    >>> def scorer(prompts, responses):
    ...     marginal = np.array([0.5, 0.3, 0.2])[list(responses)]
    ...     conditional = np.array([0.9, 0.3, 0.2])[list(responses)]  # unsure about 0 only
    ...     return SelfCheatScores(np.log(marginal), np.log(conditional))
    >>> [decision] = top1_search(
    ...     ["?"], sampler, scorer, max_hallucination_rate=0.1, num_candidates=20,
    ...     rng=np.random.default_rng(0),
    ... )
    >>> decision.response
    1
    """
    rate = check_rate("max_hallucination_rate", max_hallucination_rate)
    check_at_least("num_candidates", num_candidates, 1)
    repeated = [prompt for prompt in prompts for _ in range(num_candidates)]
    responses = _sample(sampler, repeated, rng) if repeated else []
    distinct = [
        (row, response)
        for row in range(len(prompts))
        for response in dict.fromkeys(responses[row * num_candidates : (row + 1) * num_candidates])
    ]
    scores = _score(scorer, [(prompts[row], response) for row, response in distinct])
    gaps = scores.confidence_gap(gap)
    decisions = [_abstain(num_candidates) for _ in prompts]
    # The most probable comes first; a stable sort keeps equally probable ones in drawing order.
    for index in np.argsort(-scores.log_marginal, kind="stable"):
        row, response = distinct[index]
        if gaps[index] <= rate and decisions[row].abstained:
            decisions[row] = _answer(response, scores[index], float(gaps[index]), num_candidates)
    return decisions


def _sample(sampler, prompts, rng):
    responses = list(sampler(prompts, rng))
    if len(responses) != len(prompts):
        raise ValueError(
            f"the sampler gave {len(responses)} responses to {len(prompts)} prompts; expected one "
            f"each."
        )
    return responses


def _score(scorer, pairs) -> SelfCheatScores:
    if not pairs:
        return SelfCheatScores(np.empty(0), np.empty(0))
    prompts, responses = zip(*pairs, strict=True)
    scores = scorer(list(prompts), list(responses))
    if scores.log_marginal.shape != (len(pairs),):
        raise ValueError(
            f"the scorer gave scores of shape {scores.log_marginal.shape} for {len(pairs)} "
            f"responses; expected ({len(pairs)},)."
        )
    return scores


def _answer(response, score: SelfCheatScores, gap: float, num_candidates: int) -> Decision:
    return Decision(response, score, gap, hallucination_bound(score), num_candidates)


def _abstain(num_candidates: int) -> Decision:
    return Decision(None, None, None, None, num_candidates)
