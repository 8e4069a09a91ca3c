"""Answer or abstain: the decoders of section 4.1 over samples of a pair model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypedDict, get_args, overload

import numpy as np

from secondguess._arrays import check_at_least
from secondguess.language.beams import beam_search
from secondguess.language.findings import CheckFinding
from secondguess.language.formatting import EncodedRow, Prompt
from secondguess.language.generation import Sampling, sample
from secondguess.language.meaning_functions import Meaning
from secondguess.language.meanings import ScoredMeaning, score_meanings
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, ScoredResponse, chunks, totals
from secondguess.theory.decoding import decode_rejection, decode_selective, decode_top1
from secondguess.theory.records import Decision, GapKind, SelfCheatScores

Strategy = Literal["selective", "rejection", "top1"]


class Rule(TypedDict):
    """What all decoders are told."""

    max_hallucination_rate: float
    gap: GapKind


@overload
def answer(
    model: PairLanguageModel,
    prompts: Sequence[Prompt | EncodedRow],
    max_hallucination_rate: float,
    *,
    rng: np.random.Generator,
    strategy: Strategy = "selective",
    num_candidates: int | None = 10,
    beams: bool = False,
    sampling: Sampling | None = None,
    gap: GapKind = "absolute",
    meaning: None = None,
    finding: CheckFinding | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[Decision[ScoredResponse]]: ...


@overload
def answer(
    model: PairLanguageModel,
    prompts: Sequence[Prompt | EncodedRow],
    max_hallucination_rate: float,
    *,
    rng: np.random.Generator,
    strategy: Strategy = "selective",
    num_candidates: int = 10,
    beams: bool = False,
    sampling: Sampling | None = None,
    gap: GapKind = "absolute",
    meaning: Meaning,
    finding: CheckFinding | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[Decision[ScoredMeaning]]: ...


def answer(
    model: PairLanguageModel,
    prompts: Sequence[Prompt | EncodedRow],
    max_hallucination_rate: float,
    *,
    rng: np.random.Generator,
    strategy: Strategy = "selective",
    num_candidates: int | None = 10,
    beams: bool = False,
    sampling: Sampling | None = None,
    gap: GapKind = "absolute",
    meaning: Meaning | None = None,
    finding: CheckFinding | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[Decision[ScoredResponse]] | list[Decision[ScoredMeaning]]:
    """Answer each prompt, or abstain where the bound on hallucination is too weak.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> model, rng = tiny_pair_model(), np.random.default_rng(0)
    >>> [decision] = answer(model, ["flip"], 0.9, strategy="rejection", rng=rng)
    >>> decision.abstained, decision.gap <= 0.9, str(decision.bound.rests_on)
    (False, True, 'if calibrated on pairs')

    Args:
        model: a pair model.
        prompts: text, chat messages, tokens or encoded rows.
        max_hallucination_rate: the largest bound that is still answered, in (0, 1).
        rng: the randomness of the samples.
        strategy: `selective` (one sample), `rejection` (sample up to `num_candidates` times) or
            `top1` (the most probable of `num_candidates` samples); see `theory.decoding`.
        num_candidates: the most samples drawn per prompt; not used by `selective`, unless there is
            a `meaning`. `rejection` takes None for no limit, as the paper has it: a prompt costs
            one over the chance of a good enough sample on average (`Decision.num_candidates` says
            what it did), and never ends where there is none.
        beams: whether the candidates are what a beam search of the width `num_candidates` finds, in
            place of samples: the most probable one for `selective`, all of them for `top1`. The
            answer is then the same whatever `rng` is.
        sampling: how tokens are chosen; with a `meaning`, always as the model has it.
        gap: how confidences above 1 are treated; see `SelfCheatScores.confidence_gap`.
        meaning: what an answer means, as a function of its text. Then the candidates are meanings:
            `num_candidates` pairs are drawn per prompt, and the bound is about the meaning, with
            its sampling error inside (see `meanings`). `selective` judges the meaning of the first
            draw, `rejection` takes the first that is good enough, `top1` the most probable one.
        finding: what `check` found about the model; a rate that it does not support is refused.
        batch_size: how many responses are drawn side by side.
    """
    if finding is not None and (objection := finding.objection(max_hallucination_rate)):
        raise ValueError(f"{objection}; raise the rate, train it further, or leave finding out.")
    rule: Rule = {"max_hallucination_rate": max_hallucination_rate, "gap": gap}

    encoded = [EncodedRow(model.formatter.prompt_tokens(prompt)) for prompt in prompts]

    def draw(asked: Sequence[EncodedRow]) -> list[ScoredResponse]:
        return sample(model, asked, rng=rng, sampling=sampling, batch_size=batch_size)

    if strategy not in get_args(Strategy):
        raise ValueError(
            f"strategy is {strategy!r}; expected one of {', '.join(get_args(Strategy))}."
        )
    if beams and (strategy == "rejection" or sampling is not None or meaning is not None):
        raise ValueError(
            "beams is given together with strategy 'rejection', sampling or meaning, which draw "
            "their candidates; expected 'selective' or 'top1' alone."
        )
    if num_candidates is None:
        if strategy != "rejection" or meaning is not None:
            raise ValueError(
                "num_candidates is None; expected a number, except for strategy 'rejection' "
                "without a meaning."
            )
        decisions = _answer_by_rejection(encoded, draw, None, rule)
        return [_told_where_cut_off(each) for each in decisions]
    check_at_least("num_candidates", num_candidates, 1)
    if meaning is not None:
        if sampling is not None:
            raise ValueError(
                "sampling is given together with meaning; expected None, because the chance of a "
                "meaning is counted over draws from the model itself."
            )
        scored = score_meanings(
            model,
            encoded,
            meaning,
            rng=rng,
            num_samples=num_candidates,
            others=[()] * len(encoded) if strategy == "selective" else None,
            batch_size=batch_size,
        )
        return [choose_meaning(each, strategy, num_candidates, rule) for each in scored]
    if beams:
        found = beam_search(model, encoded, num_beams=num_candidates, batch_size=batch_size)
        kept = 1 if strategy == "selective" else num_candidates
        decisions = [decode_top1(each[:kept], totals(each[:kept]), **rule) for each in found]
    elif strategy == "selective":
        drawn = draw(encoded)
        decisions = decode_selective(drawn, totals(drawn), **rule)
    elif strategy == "rejection":
        decisions = _answer_by_rejection(encoded, draw, num_candidates, rule)
    else:
        drawn = draw([prompt for prompt in encoded for _ in range(num_candidates)])
        decisions = [
            decode_top1(each, totals(each), **rule) for each in chunks(drawn, num_candidates)
        ]
    return [_told_where_cut_off(each) for each in decisions]


def _told_where_cut_off(decision: Decision[ScoredResponse]) -> Decision[ScoredResponse]:
    cut_off = decision.response is not None and decision.response.cut_off
    return replace(decision, cut_off=cut_off)


def choose_meaning(
    meanings: Sequence[ScoredMeaning], strategy: Strategy, num_candidates: int, rule: Rule
) -> Decision[ScoredMeaning]:
    """Decide by cautious scores, in the order in which the meanings were drawn."""
    candidates = meanings[:1] if strategy == "selective" else meanings
    cautious = SelfCheatScores(
        np.array([each.cautious.log_marginal for each in candidates]),
        np.array([each.cautious.log_self_conditional for each in candidates]),
    )
    decode = decode_top1 if strategy == "top1" else decode_rejection
    decision = decode(candidates, cautious, **rule)
    cut_off = decision.response is not None and decision.response.cut_off
    return replace(decision, num_candidates=num_candidates, cut_off=cut_off)


def _answer_by_rejection(
    prompts: Sequence[EncodedRow],
    draw: Callable[[Sequence[EncodedRow]], list[ScoredResponse]],
    num_candidates: int | None,
    rule: Rule,
) -> list[Decision[ScoredResponse]]:
    """One candidate at a time, for the prompts that are still without an answer."""
    decisions: dict[int, Decision[ScoredResponse]] = {}
    rejected: list[set[ScoredResponse]] = [set() for _ in prompts]
    waiting = list(range(len(prompts)))
    for count in range(1, num_candidates + 1) if num_candidates else itertools.count(1):
        drawn = draw([prompts[row] for row in waiting]) if waiting else []
        for row, response in zip(waiting, drawn, strict=True):
            # What was rejected once is not judged again: its scores may differ by rounding.
            fresh = [response] if response not in rejected[row] else []
            decision = decode_rejection(fresh, totals(fresh), **rule)
            decisions[row] = replace(decision, num_candidates=count)
            rejected[row].add(response)
        waiting = [row for row in waiting if decisions[row].abstained]
        if not waiting:
            break
    return [decisions[row] for row in range(len(prompts))]
