"""Questions to a trained model: the answers that it draws, their scores, and what these cost.

One answer is drawn per question; arrays have one entry per question.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.experiments.facts.costs import tokens_read
from secondguess.experiments.facts.questions import Fact
from secondguess.experiments.runner import PartResult
from secondguess.language.drawing import sample_firsts
from secondguess.language.generation import sample
from secondguess.language.meaning_functions import Meaning
from secondguess.language.meanings import DrawnPairs, ScoredMeaning, draw_pairs, judge_pairs
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import ScoredResponse, Tokens, score_tokens, totals

BATCH_SIZE = 128
TIMED = 24
"""Questions, for the costs."""

Worded = dict[tuple[Tokens, str], ScoredResponse]
"""The wordings that were scored, by prompt and text."""


def asked(
    model: PairLanguageModel,
    questions: Sequence[Fact],
    meaning: Meaning,
    rng: np.random.Generator,
    *,
    num_samples: int,
) -> PartResult:
    """The answer drawn first to each question, whether it is right, and its scores."""
    drawn, found, scored = judged_meanings(model, questions, meaning, rng, num_samples=num_samples)
    given = [meanings[0] for meanings in found]
    worded = [scored[each.prompt, answer.text] for each, answer in zip(drawn, given, strict=True)]
    wording = totals(worded)
    lengths = np.array([len(each.tokens) for each in worded])
    arrays = {
        "right": np.array(
            [each.meaning == fact.answer for each, fact in zip(given, questions, strict=True)]
        ),
        "meaning_log_marginal": np.array([each.scores.log_marginal for each in given]),
        "meaning_log_self_conditional": np.array(
            [each.scores.log_self_conditional for each in given]
        ),
        "wording_log_marginal": wording.log_marginal,
        "wording_log_self_conditional": wording.log_self_conditional,
        "mean_log_probability": wording.log_marginal / lengths,
        "semantic_entropy": np.array([_entropy(each, model, meaning) for each in drawn]),
    }
    return PartResult(metrics={"share_right": float(arrays["right"].mean())}, arrays=arrays)


def judged_meanings(
    model: PairLanguageModel,
    questions: Sequence[Fact],
    meaning: Meaning,
    rng: np.random.Generator,
    *,
    num_samples: int,
) -> tuple[list[DrawnPairs], list[list[ScoredMeaning]], Worded]:
    """What was drawn for each question, the meaning drawn first, and the wordings it was given."""
    text = model.formatter.text
    drawn = draw_pairs(
        model,
        [fact.prompt for fact in questions],
        meaning,
        rng=rng,
        num_samples=num_samples,
        others=[()] * len(questions),
        batch_size=BATCH_SIZE,
    )
    worded: Worded = {}

    def scored(items: list[tuple[Tokens, Tokens, Tokens]]) -> list[tuple[FloatArray, FloatArray]]:
        results = score_tokens(model, items, batch_size=BATCH_SIZE)
        for (prompt, one, two), result in zip(items, results, strict=True):
            if one == two:
                worded[prompt, text(one)] = ScoredResponse(one, text(one), *result)
        return results

    found = judge_pairs(drawn, meaning, model.formatter, scored, recalibration=None)
    return drawn, found, worded


def _entropy(drawn: DrawnPairs, model: PairLanguageModel, meaning: Meaning) -> float:
    """Of the shares of the draws that the meanings have (Kuhn et al. 2023, discrete form)."""
    meanings = [meaning(model.formatter.text(one)) for one, _ in drawn.pairs]
    shares = np.array([*Counter(meanings).values()]) / len(meanings)
    return float(-np.sum(shares * np.log(shares)))


def costs(
    model: PairLanguageModel,
    questions: Sequence[Fact],
    meaning: Meaning,
    *,
    num_samples: int,
    seed: int,
) -> PartResult:
    """What each score costs per question: tokens read by the network, and seconds."""
    some = questions[:TIMED]
    prompts = [fact.prompt for fact in some]
    ways: dict[str, Callable[[np.random.Generator], object]] = {
        "an answer alone, and its log-probability": lambda rng: sample_firsts(
            model, prompts, rng=rng, batch_size=BATCH_SIZE
        ),
        "confidence of the wording": lambda rng: sample(
            model, prompts, rng=rng, batch_size=BATCH_SIZE
        ),
        "semantic entropy": lambda rng: sample_firsts(
            model,
            [prompt for prompt in prompts for _ in range(num_samples)],
            rng=rng,
            batch_size=BATCH_SIZE,
        ),
        "confidence of the meaning": lambda rng: judged_meanings(
            model, some, meaning, rng, num_samples=num_samples
        ),
    }
    metrics: dict[str, Any] = {}
    for name, compute in ways.items():
        with tokens_read(model.network) as read:
            start = time.process_time()
            compute(np.random.default_rng([seed, 4]))
            seconds = time.process_time() - start
        metrics[name] = {
            "tokens": read.tokens / len(some),
            "passes": read.passes / len(some),
            "seconds": seconds / len(some),
        }
    return PartResult(metrics=metrics)
