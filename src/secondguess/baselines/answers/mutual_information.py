"""Iterative prompting (Abbasi-Yadkori et al. 2024): does an answer in the prompt change the next?

A model that was not trained on pairs is told an answer and asked again. If it knows the answers,
those are independent; the mutual information of two answers is a lower bound of what it does not
know. It is the idea of this library without the training: nothing makes p(y2|y1,x) of a prompt the
calibrated conditional.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import rel_entr, softmax

from secondguess._arrays import FloatArray
from secondguess.baselines.answers.asking import (
    AskAgain,
    Asked,
    RivalScores,
    continuation_log_probs,
)
from secondguess.language.model import PairLanguageModel
from secondguess.theory.records import SelfCheatScores


def told_an_answer(question: str, answer: str) -> str:
    """The prompt that tells an answer and asks again.

    >>> print(told_an_answer("2 + 2?", " 4"))
    Consider the following question: 2 + 2?
    One answer to this question is 4.
    Provide an answer to the following question: 2 + 2?
    """
    return (
        f"Consider the following question: {question}\n"
        f"One answer to this question is {answer.strip()}.\n"
        f"Provide an answer to the following question: {question}"
    )


def score(model: PairLanguageModel, asked: Asked, *, ask: AskAgain = told_an_answer) -> RivalScores:
    """Minus the mutual information of two answers, estimated on the distinct draws.

    Of draws that mean the same, the first stands for all. Probabilities are normalised among the
    draws, as in the paper's Algorithm 1, without its stabilising constants.

    Args:
        model: a pair model, of which p(y1|x) is asked.
        asked: the answers and draws.
        ask: the prompt that tells an answer and asks again.
    """
    chosen = [[group[0] for group in asked.meanings(row)] for row in range(len(asked))]
    prompts, texts = [], []
    for question, distinct in zip(asked.prompts, chosen, strict=True):
        for prompt in (question, *(ask(question, told) for told in distinct)):
            prompts += [prompt] * len(distinct)
            texts += distinct
    logs = continuation_log_probs(model, prompts, texts)
    values, start, passes = np.empty(len(asked)), 0, 0
    for row, distinct in enumerate(chosen):
        size = len(distinct)
        block = logs[start : start + size * (size + 1)].reshape(size + 1, size)
        values[row] = -mutual_information(block[0], block[1:])
        start += block.size
        passes += 1 + size + block.size
    return RivalScores(values, asked.drawing_passes + passes / len(asked))


def mutual_information(log_first: FloatArray, log_second: FloatArray) -> float:
    """Of the joint that the normalised first and second answers make, in nats.

    >>> round(mutual_information(np.log([0.5, 0.5]), np.log([[1.0, 1e-12], [1e-12, 1.0]])), 3)
    0.693

    Args:
        log_first: `(k,)`, log p(y|x), up to a constant.
        log_second: `(k, k)`, log p(y2|y1,x) with y1 in rows, up to a constant per row.
    """
    first = softmax(log_first)
    joint = first[:, None] * softmax(log_second, axis=1)
    return float(rel_entr(joint, np.outer(first, joint.sum(axis=0))).sum())


def told_scores(
    model: PairLanguageModel, prompts: Sequence[str], answers: Sequence[str], *, ask: AskAgain
) -> SelfCheatScores:
    """Log p(y|x), and log p(y|y,x) as the model has it when y is told in the prompt: `(n,)`.

    Both are of the beginnings of what follows: a model that was not trained to end an answer there
    does not.
    """
    again = [ask(*pair) for pair in zip(prompts, answers, strict=True)]
    return SelfCheatScores(
        continuation_log_probs(model, prompts, answers, with_end=False),
        continuation_log_probs(model, again, answers, with_end=False),
    )
