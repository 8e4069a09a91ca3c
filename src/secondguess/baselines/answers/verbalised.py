"""Verbalised confidence: the model says in words how likely its answer is (Tian et al. 2023).

The words are scored in place of one being drawn, so that the score is their mean and has no noise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import softmax

from secondguess.baselines.answers.asking import (
    AskAgain,
    Asked,
    RivalScores,
    continuation_log_probs,
)
from secondguess.language.model import PairLanguageModel

WORDS = {" certain": 1.0, " likely": 0.75, " possible": 0.5, " unlikely": 0.25, " impossible": 0.0}
"""What each word is taken for."""


def how_likely(question: str, answer: str) -> str:
    """The prompt.

    >>> print(how_likely("2 + 2?", " 4"))
    Question: 2 + 2?
    Answer: 4
    How likely is it that this answer is right: certain, likely, possible, unlikely or impossible?
    It is
    """
    return (
        f"Question: {question}\nAnswer: {answer.strip()}\nHow likely is it that this answer is "
        f"right: certain, likely, possible, unlikely or impossible?\nIt is"
    )


def score(
    model: PairLanguageModel,
    asked: Asked,
    *,
    ask: AskAgain = how_likely,
    words: Mapping[str, float] = WORDS,
) -> RivalScores:
    """The mean of what the words are taken for, by their probabilities among each other.

    Args:
        model: a pair model, of which p(y1|x) is asked.
        asked: the answers.
        ask: the prompt about a question and an answer.
        words: what the model may say, and the confidence that each stands for.
    """
    prompts = [ask(*pair) for pair in zip(asked.prompts, asked.answers, strict=True)]
    logs = np.array(
        [
            continuation_log_probs(model, prompts, [word] * len(prompts), with_end=False)
            for word in words
        ]
    )
    values = softmax(logs, axis=0).T @ np.array(list(words.values()))
    return RivalScores(values, passes=1 + len(words))
