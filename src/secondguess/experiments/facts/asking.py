"""Questions to a trained model: the answer that it draws, and every score of this answer.

The wordings of an answer are known here, so the probabilities of its meaning are sums over them
(`score_listed`), and one draw per question is enough. Rivals that need more draws or prompts of
their own have them on some of the questions. Arrays have one entry per question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.baselines.answers import RIVALS, Asked
from secondguess.experiments.facts.costs import tokens_read
from secondguess.experiments.facts.questions import Fact, Wordings
from secondguess.experiments.runner import PartResult
from secondguess.language.drawing import DrawnResponse, sample_firsts
from secondguess.language.formatting import Response
from secondguess.language.generation import sample
from secondguess.language.listed_wordings import ListedScores, score_listed
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.language.recalibration_fit import fit_recalibration
from secondguess.theory.records import SelfCheatScores

BATCH_SIZE = 64
TIMED = 48
"""Questions, for the costs."""


def asked(
    model: PairLanguageModel,
    questions: Sequence[Fact],
    wordings: Wordings,
    rng: np.random.Generator,
) -> PartResult:
    """The answer drawn to each question, whether it is right, and its scores."""
    drawn, texts = _drawn(model, questions, rng)
    answers = [each.tokens for each in drawn]
    meaning, wording = listed_scores(model, questions, answers, wordings)
    right = [
        wordings.meaning(text) == fact.answer for text, fact in zip(texts, questions, strict=True)
    ]
    arrays = {
        "right": np.array(right),
        "text": np.array(texts),
        "meaning_log_marginal": meaning.log_marginal,
        "meaning_log_self_conditional": meaning.log_self_conditional,
        "wording_log_marginal": wording.log_marginal,
        "wording_log_self_conditional": wording.log_self_conditional,
        "num_tokens": np.array([len(each.tokens) for each in drawn]),
    }
    return PartResult(metrics={"share_right": float(np.mean(right))}, arrays=arrays)


def _drawn(
    model: PairLanguageModel, questions: Sequence[Fact], rng: np.random.Generator
) -> tuple[list[DrawnResponse], list[str]]:
    prompts = [fact.prompt for fact in questions]
    drawn = sample_firsts(model, prompts, rng=rng, batch_size=BATCH_SIZE)
    return drawn, [model.formatter.text(each.tokens) for each in drawn]


def listed_scores(
    model: PairLanguageModel,
    questions: Sequence[Fact],
    answers: Sequence[Response],
    wordings: Wordings,
) -> ListedScores:
    """The scores of answers and of what they mean, in all wordings of ours and in their own."""
    texts = [y if isinstance(y, str) else model.formatter.text(y) for y in answers]
    listed = [
        [answer, *wordings.of(wordings.meaning(text))]
        for answer, text in zip(answers, texts, strict=True)
    ]
    prompts = [fact.prompt for fact in questions]
    return score_listed(model, prompts, listed, drawn=answers, batch_size=BATCH_SIZE)


def held_out_scores(
    model: PairLanguageModel,
    questions: Sequence[Fact],
    wordings: Wordings,
    rng: np.random.Generator,
    *,
    num_samples: int,
) -> dict[str, np.ndarray]:
    """What a recalibration rests on: scores of given answers beside drawn ones, by exact sums.

    Returns:
        `given_log_marginal` and `given_log_self_conditional`, `(questions, 1)`: of what y1 means;
        `repeats`, of the same shape, whether y2 means the same; `drawn_...`, `(questions,
        num_samples)`: of what the model drew.
    """
    given = [row["responses"] for row in wordings.rows(questions, rng)]
    repeated = [fact for fact in questions for _ in range(num_samples)]
    drawn = [each.tokens for each in _drawn(model, repeated, rng)[0]]
    people = listed_scores(model, questions, [y1 for y1, _ in given], wordings).meaning
    own = listed_scores(model, repeated, drawn, wordings).meaning
    shape = (len(questions), num_samples)
    repeats = [wordings.meaning(y1) == wordings.meaning(y2) for y1, y2 in given]
    return {
        "given_log_marginal": people.log_marginal[:, None],
        "given_log_self_conditional": people.log_self_conditional[:, None],
        "repeats": np.array(repeats)[:, None],
        "drawn_log_marginal": own.log_marginal.reshape(shape),
        "drawn_log_self_conditional": own.log_self_conditional.reshape(shape),
    }


def recalibration_of(arrays: Mapping[str, np.ndarray]) -> SequenceRecalibration:
    """The lines that `held_out_scores` ask for."""
    given, drawn = (
        SelfCheatScores(arrays[f"{who}_log_marginal"], arrays[f"{who}_log_self_conditional"])
        for who in ("given", "drawn")
    )
    return fit_recalibration(given, arrays["repeats"], drawn, of_meanings=True)


def rivals(
    model: PairLanguageModel,
    questions: Sequence[Fact],
    texts: Sequence[str],
    wordings: Wordings,
    rng: np.random.Generator,
    *,
    num_samples: int,
) -> PartResult:
    """Scores of the same answers by every rival, and what they cost per question."""
    prompts = [fact.prompt for fact in questions]
    draw = partial(sample_firsts, model, [p for p in prompts for _ in range(num_samples)])
    drawn, drawing = _measured(model, len(prompts), lambda: draw(rng=rng, batch_size=BATCH_SIZE))
    samples = [model.formatter.text(each.tokens) for each in drawn]
    question_and_draws = Asked(
        prompts,
        texts,
        [samples[start : start + num_samples] for start in range(0, len(samples), num_samples)],
        wordings.meaning,
        float(np.mean([len(each.tokens) for each in drawn])),
    )
    arrays: dict[str, FloatArray] = {}
    metrics: dict[str, Any] = {}
    for name, method in RIVALS.items():
        found, cost = _measured(model, len(prompts), lambda f=method: f(model, question_and_draws))
        if name in NEED_DRAWS:
            cost = {key: cost[key] + drawing[key] for key in cost}
        arrays[name] = found.values
        metrics[name] = {**cost, "passes": found.passes}
    return PartResult(metrics=metrics, arrays=arrays)


NEED_DRAWS = ("semantic entropy", "mutual information of iterated prompts")


def _measured(
    model: PairLanguageModel, num_questions: int, compute: Callable[[], Any]
) -> tuple[Any, dict[str, float]]:
    """What a call gives, and its tokens and seconds of processor time per question."""
    with tokens_read(model.network) as read:
        start = time.process_time()
        found = compute()
        seconds = time.process_time() - start
    return found, {"tokens": read.tokens / num_questions, "seconds": seconds / num_questions}


def costs(
    model: PairLanguageModel, questions: Sequence[Fact], wordings: Wordings, *, seed: int
) -> PartResult:
    """What an answer and our scores of it cost per question."""
    some = questions[:TIMED]
    prompts = [fact.prompt for fact in some]

    def meaning(rng: np.random.Generator) -> object:
        return listed_scores(model, some, _drawn(model, some, rng)[1], wordings)

    def wording(rng: np.random.Generator) -> object:
        return sample(model, prompts, rng=rng, batch_size=BATCH_SIZE)

    ways: dict[str, Callable[[np.random.Generator], object]] = {
        "an answer alone, and its log-probability": lambda rng: _drawn(model, some, rng),
        "confidence of the wording": wording,
        "confidence of the meaning": meaning,
    }
    metrics: dict[str, Any] = {}
    for name, compute in ways.items():
        rng = np.random.default_rng([seed, 4])
        _, metrics[name] = _measured(model, len(some), partial(compute, rng))
    return PartResult(metrics=metrics)
