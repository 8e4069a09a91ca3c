"""Answer or abstain through an engine: the decoders of section 4.1 over what it draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from secondguess._arrays import check_at_least
from secondguess.language.answering import Rule, Strategy, choose_meaning
from secondguess.language.engines import Draw, Engine, Question
from secondguess.language.generation import Sampling
from secondguess.language.meaning_functions import Meaning
from secondguess.language.meanings import ScoredMeaning
from secondguess.language.scoring import ScoredResponse, Tokens, totals
from secondguess.theory.decoding import decode_rejection, decode_top1
from secondguess.theory.records import Decision, GapKind


def answer_with(
    engine: Engine,
    prompts: Sequence[Tokens],
    max_hallucination_rate: float,
    *,
    seed: Sequence[int],
    strategy: Strategy = "selective",
    num_candidates: int = 10,
    sampling: Sampling | None = None,
    gap: GapKind = "absolute",
    meaning: Meaning | None = None,
) -> list[Decision[ScoredResponse]] | list[Decision[ScoredMeaning]]:
    """Answer each prompt, or abstain where the bound on hallucination is too weak.

    >>> from secondguess.language.engines import LocalEngine
    >>> from secondguess.language.examples import tiny_pair_model
    >>> engine = LocalEngine(tiny_pair_model())
    >>> prompt = engine.formatter.prompt_tokens("flip")
    >>> [decision] = answer_with(engine, [prompt], 0.9, seed=[0], strategy="rejection")
    >>> decision.abstained, decision.gap <= 0.9
    (False, True)

    Unlike `answer`, every candidate has a seed of its own, so that what is drawn does not depend on
    what else is asked for.

    Args:
        engine: samples and scores.
        prompts: as tokens.
        max_hallucination_rate: the largest bound that is still answered, in (0, 1).
        seed: with the number of the prompt and of the candidate, the seed of each draw.
        strategy: as in `answer`.
        num_candidates: the most samples drawn per prompt; not used by `selective`.
        sampling: how tokens are chosen.
        gap: how confidences above 1 are treated.
        meaning: what an answer means, as in `answer`.
    """
    check_at_least("num_candidates", num_candidates, 1)
    rule: Rule = {"max_hallucination_rate": max_hallucination_rate, "gap": gap}
    if meaning is not None:
        questions = [
            Question(prompt, (*seed, row), num_candidates, meaning)
            for row, prompt in enumerate(prompts)
        ]
        judged = engine.judge(questions)
        return [choose_meaning(each, strategy, num_candidates, rule) for each in judged]
    size = 1 if strategy == "selective" else num_candidates
    sampling = sampling or Sampling()
    if objection := engine.objection(sampling):
        raise ValueError(objection)
    decode = decode_top1 if strategy == "top1" else decode_rejection
    candidates: list[list[ScoredResponse]] = [[] for _ in prompts]
    decisions: dict[int, Decision[ScoredResponse]] = {}
    waves = [range(size)] if strategy == "top1" else [range(k, k + 1) for k in range(size)]
    for wave in waves:
        waiting = [
            row for row in range(len(prompts)) if wave.start == 0 or decisions[row].abstained
        ]
        draws = [
            Draw(prompts[row], (*seed, row, candidate), sampling)
            for row in waiting
            for candidate in wave
        ]
        drawn = iter(engine.sample(draws))
        for row in waiting:
            candidates[row] += [next(drawn) for _ in wave]
            decisions[row] = decode(candidates[row], totals(candidates[row]), **rule)
    return [
        replace(each, cut_off=each.response is not None and each.response.cut_off)
        for each in (decisions[row] for row in range(len(prompts)))
    ]
