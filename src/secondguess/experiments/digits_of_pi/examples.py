"""Statements word by word, as in appendix A: pairs and scored answers.

What is picked is plain data (JSON types), so that figures and pages are drawn from the results
alone. A word comes with the log-probability of its token.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess.experiments.digits_of_pi.evaluation import SAMPLING, log_probs_after
from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.pairs import PiPairs
from secondguess.experiments.digits_of_pi.questions import digits_at, question
from secondguess.experiments.runner import PartResult
from secondguess.language.generation import sample
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import ScoredResponse, score_tokens, totals

NUM_ROWS = 8


def pick_examples(
    model: PairLanguageModel, pairs: PiPairs, exact: PartResult, rng: np.random.Generator
) -> dict[str, Any]:
    """Examples for the last digit that the model knows and the last that it does not."""
    columns = exact.arrays["columns"].astype(np.int64)
    offsets = exact.arrays["offsets"]
    is_true = grammar().probs[digits_at(offsets)[:, None], columns] > 0
    correct = (exact.arrays["weights"] * is_true).sum(axis=1)
    chosen = {"known": correct >= correct.max() - 0.02, "unknown": correct <= correct.min() + 0.2}
    return {
        name: _examples_of(model, pairs, int(offsets[np.flatnonzero(candidates)[-1]]), rng)
        for name, candidates in chosen.items()
    }


def _examples_of(
    model: PairLanguageModel, pairs: PiPairs, offset: int, rng: np.random.Generator
) -> dict[str, Any]:
    drawn = sample(model, [question(offset)] * NUM_ROWS, rng=rng, sampling=SAMPLING)
    scores = totals(drawn)
    digit = int(digits_at(offset))
    return {
        "offset": offset,
        "digit": digit,
        "pairs": [_pair(model, pairs, offset, each, rng) for each in drawn],
        "scored": [
            {
                "words": model.formatter.pieces(each.tokens),
                "log_marginal": each.log_marginal.tolist(),
                "log_self_conditional": each.log_self_conditional.tolist(),
                "confidence": float(confidence),
                "is_true": bool(grammar().is_true(each.text, digit)),
            }
            for each, confidence in zip(drawn, scores.epistemic_confidence, strict=True)
        ],
    }


def _pair(
    model: PairLanguageModel,
    pairs: PiPairs,
    offset: int,
    first: ScoredResponse,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """A second response drawn from p(y2 | y1, x), by scoring every sentence behind y1."""
    drawn = _draw(log_probs_after(model, pairs, offset, first.tokens), rng)
    second = _tokens(pairs.sentence_tokens[drawn], pairs.layout.formatter.end)
    prompt = pairs.prompt_tokens[offset]
    [(_, second_log_probs)] = score_tokens(
        model, [(tuple(prompt.tolist()), first.tokens, second)], batch_size=1
    )
    return {
        "first": model.formatter.pieces(first.tokens),
        "first_log_probs": first.log_marginal.tolist(),
        "second": model.formatter.pieces(second),
        "second_log_probs": second_log_probs.tolist(),
    }


def _draw(log_weights: FloatArray, rng: np.random.Generator) -> int:
    weights = np.exp(log_weights - log_weights.max())
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def _tokens(padded: IntArray, end: int) -> tuple[int, ...]:
    return tuple(padded[: 1 + int((padded != end).sum())].tolist())
