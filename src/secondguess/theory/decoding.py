"""Decoders that abstain when the hallucination bound is too weak (section 4.1).

They choose among candidates that were drawn and scored elsewhere, and neither sample nor score.
`decode_selective` takes one candidate for each of n prompts; `decode_rejection` and `decode_top1`
take all candidates of one prompt, in the order in which they were drawn. In each, `scores` has the
shape `(n,)`, one entry per candidate. Equal candidates of one prompt count once: the first drawn
stands for them.

If the scores come from a calibrated pair model, and the candidates were drawn by something that
sees a prompt only through that model, then among the responses given at most a share
`max_hallucination_rate` has true probability zero (Theorem 4.5): the gap of each response is a
bound on its own chance.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import FloatArray, check_rate
from secondguess.theory.bounds import hallucination_bound
from secondguess.theory.records import Decision, GapKind, SelfCheatScores

ResponseT = TypeVar("ResponseT", bound=Hashable)


def decode_selective(
    responses: Sequence[ResponseT],
    scores: SelfCheatScores,
    *,
    max_hallucination_rate: float,
    gap: GapKind = "absolute",
) -> list[Decision[ResponseT]]:
    """Keep the one candidate of each prompt if its gap is at most `max_hallucination_rate`.

    >>> # The model knows the fair coin, but not which way the other one leans.
    >>> scores = SelfCheatScores(np.log([0.5, 0.5]), np.log([0.5, 0.9]))
    >>> for decision in decode_selective(["heads", "tails"], scores, max_hallucination_rate=0.1):
    ...     print(decision.response, decision.bound, sep=": ")
    heads: 0.0 if calibrated on pairs
    None: None

    Args:
        responses: one candidate for each prompt.
        scores: `(n,)`, their scores.
        max_hallucination_rate: the largest gap that is still answered, in (0, 1).
        gap: how confidences above 1, which a calibrated model never has, are treated; see
            `SelfCheatScores.confidence_gap`.
    """
    gaps, accepted = _judge(responses, scores, max_hallucination_rate, gap)
    return [
        _answer(responses, scores, gaps, row, num_candidates=1) if accepted[row] else _abstain(1)
        for row in range(len(responses))
    ]


def decode_rejection(
    responses: Sequence[ResponseT],
    scores: SelfCheatScores,
    *,
    max_hallucination_rate: float,
    gap: GapKind = "absolute",
) -> Decision[ResponseT]:
    """The first candidate of a prompt whose gap is at most `max_hallucination_rate`.

    `num_candidates` of the decision counts the candidates up to that one: those after it need not
    be drawn.

    >>> scores = SelfCheatScores(np.log([0.1, 0.5, 0.4]), np.log([0.9, 0.5, 0.4]))
    >>> decision = decode_rejection(["edge", "heads", "tails"], scores, max_hallucination_rate=0.1)
    >>> decision.response, decision.num_candidates
    ('heads', 2)

    Args:
        responses: the candidates of one prompt, in the order in which they were drawn.
        scores: `(n,)`, their scores.
        max_hallucination_rate: as in `decode_selective`.
        gap: as in `decode_selective`.
    """
    gaps, accepted = _judge(responses, scores, max_hallucination_rate, gap)
    for index in _distinct(responses):
        if accepted[index]:
            return _answer(responses, scores, gaps, index, num_candidates=index + 1)
    return _abstain(len(responses))


def decode_top1(
    responses: Sequence[ResponseT],
    scores: SelfCheatScores,
    *,
    max_hallucination_rate: float,
    gap: GapKind = "absolute",
) -> Decision[ResponseT]:
    """The most probable candidate of a prompt whose gap is at most `max_hallucination_rate`.

    It approximates the argmax over all responses by the argmax over candidates; of equally probable
    ones the first drawn wins.

    >>> scores = SelfCheatScores(np.log([0.2, 0.5, 0.3]), np.log([0.2, 0.9, 0.3]))
    >>> decode_top1(["edge", "heads", "tails"], scores, max_hallucination_rate=0.1).response
    'tails'

    Args:
        responses: the candidates of one prompt.
        scores: `(n,)`, their scores.
        max_hallucination_rate: as in `decode_selective`.
        gap: as in `decode_selective`.
    """
    gaps, accepted = _judge(responses, scores, max_hallucination_rate, gap)
    eligible = [index for index in _distinct(responses) if accepted[index]]
    if not eligible:
        return _abstain(len(responses))
    best = eligible[int(np.argmax(scores.log_marginal[eligible]))]
    return _answer(responses, scores, gaps, best, num_candidates=len(responses))


def withheld(decision: Decision[ResponseT], max_gap: float | None) -> Decision[ResponseT]:
    """An answer that was chosen already, unless its gap exceeds `max_gap`: then an abstention.

    Told a smaller rate, `decode_rejection` and `decode_top1` would choose another candidate. What
    is known of the answers that were chosen, such as a guaranteed threshold, needs them unchanged.

    >>> scores = SelfCheatScores(np.log([0.3, 0.6]), np.log([0.3, 0.7]))
    >>> decision = decode_top1(["edge", "heads"], scores, max_hallucination_rate=0.5)
    >>> withheld(decision, 0.2).response, withheld(decision, 0.1).response
    ('heads', None)

    Args:
        decision: what a decoder decided.
        max_gap: the largest gap that is still given; None for any.
    """
    if decision.gap is None or max_gap is None or decision.gap <= max_gap:
        return decision
    return _abstain(decision.num_candidates)


def _judge(
    responses: Sequence[ResponseT],
    scores: SelfCheatScores,
    max_hallucination_rate: float,
    gap: GapKind,
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The gap of each candidate, and whether it is small enough."""
    rate = check_rate("max_hallucination_rate", max_hallucination_rate)
    if scores.log_marginal.shape != (len(responses),):
        raise ValueError(
            f"scores has shape {scores.log_marginal.shape} for {len(responses)} responses; "
            f"expected ({len(responses)},), one entry per response."
        )
    gaps = scores.confidence_gap(gap)
    return gaps, gaps <= rate


def _distinct(responses: Sequence[ResponseT]) -> list[int]:
    """Where each distinct response was drawn first. Its later scores may differ by rounding."""
    first: dict[ResponseT, int] = {}
    for index, response in enumerate(responses):
        first.setdefault(response, index)
    return list(first.values())


def _answer(
    responses: Sequence[ResponseT],
    scores: SelfCheatScores,
    gaps: FloatArray,
    index: int,
    *,
    num_candidates: int,
) -> Decision[ResponseT]:
    score = scores[index]
    bound = hallucination_bound(score)
    return Decision(responses[index], score, float(gaps[index]), bound, num_candidates)


def _abstain(num_candidates: int) -> Decision:
    return Decision(None, None, None, None, num_candidates)
