"""The decoders at work: how often what they answer is false, beside the rate that they promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np

from secondguess._arrays import IntArray
from secondguess.experiments.digits_of_pi.evaluation import MALFORMED, SAMPLING, columns_of
from secondguess.experiments.digits_of_pi.grammar import HAZY, grammar
from secondguess.experiments.digits_of_pi.questions import digits_at, question
from secondguess.language.answering import Strategy, answer
from secondguess.language.model import PairLanguageModel

MAX_HALLUCINATION_RATES = (0.05, 0.2)
NUM_CANDIDATES = 10


def decoder_rates(
    model: PairLanguageModel, offsets: IntArray, *, seed: int
) -> dict[str, dict[str, float]]:
    """Each strategy at each promised rate, asked once about each digit.

    Returns:
        By strategy and rate, such as `"top1 0.05"`, what was promised and what was measured.
    """
    prompts = [question(int(offset)) for offset in offsets]
    rates: dict[str, dict[str, float]] = {}
    for strategy in get_args(Strategy):
        for promised in MAX_HALLUCINATION_RATES:
            decisions = answer(
                model,
                prompts,
                promised,
                rng=np.random.default_rng([seed, 3]),
                strategy=strategy,
                num_candidates=NUM_CANDIDATES,
                sampling=SAMPLING,
                batch_size=2400,
            )
            texts = [each.response.text if each.response else None for each in decisions]
            rates[f"{strategy} {promised:g}"] = {
                "promised_rate": promised,
                **judge_answers(offsets, texts),
            }
    return rates


def judge_answers(offsets: IntArray, texts: Sequence[str | None]) -> dict[str, float]:
    """How many digits were answered (None is no answer), and how many of the answers are false.

    >>> judged = judge_answers(np.array([1, 2, 3, 4]), ["It's one", "It's one", None, None])
    >>> judged["answered"], judged["hallucination_rate"]  # pi = 3.14...
    (0.5, 0.5)
    """
    answered = np.array([text is not None for text in texts])
    columns = columns_of([text or "" for text in texts])
    is_true = (columns != MALFORMED) & (grammar().probs[digits_at(offsets), columns] > 0)
    count = max(1, int(answered.sum()))
    rate = float((answered & ~is_true).sum() / count)
    return {
        "hallucination_rate": rate,
        "standard_error": float(np.sqrt(rate * (1 - rate) / count)),
        "answered": float(answered.mean()),
        "hazy": float(np.mean([text == HAZY for text in texts])),
    }
