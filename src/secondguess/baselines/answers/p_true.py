"""P(True): whether the model calls its own answer true (Kadavath et al. 2022)."""

from __future__ import annotations

import numpy as np
from scipy.special import log_expit

from secondguess.baselines.answers.asking import (
    AskAgain,
    Asked,
    RivalScores,
    continuation_log_probs,
)
from secondguess.language.model import PairLanguageModel


def is_it_true(question: str, answer: str) -> str:
    """The prompt of the paper, without its brainstormed answers.

    >>> print(is_it_true("2 + 2?", " 4"))
    Question: 2 + 2?
    Proposed answer: 4
    Is the proposed answer true or false?
    The proposed answer is
    """
    return (
        f"Question: {question}\nProposed answer: {answer.strip()}\n"
        f"Is the proposed answer true or false?\nThe proposed answer is"
    )


def score(
    model: PairLanguageModel,
    asked: Asked,
    *,
    ask: AskAgain = is_it_true,
    words: tuple[str, str] = (" true", " false"),
) -> RivalScores:
    """Log of p(true) / (p(true) + p(false)), of the beginnings of what follows.

    Args:
        model: a pair model, of which p(y1|x) is asked.
        asked: the answers.
        ask: the prompt about a question and an answer.
        words: what stands for true and for false.
    """
    prompts = [ask(*pair) for pair in zip(asked.prompts, asked.answers, strict=True)]
    logs = np.array(
        [
            continuation_log_probs(model, prompts, [word] * len(prompts), with_end=False)
            for word in words
        ]
    )
    return RivalScores(log_expit(logs[0] - logs[1]), passes=3)
