"""Predictors of digits of pi whose calibration is known."""

from __future__ import annotations

import numpy as np

from secondguess.experiments.digits_of_pi.evaluation import Statements
from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.questions import digits_at
from secondguess.theory.records import SelfCheatScores


def balanced_offsets(copies: int) -> np.ndarray:
    """Offsets among which every digit is equally frequent, in order."""
    digits = digits_at(np.arange(1, 10_000))
    chosen = [1 + np.flatnonzero(digits == digit)[:copies] for digit in range(10)]
    return np.sort(np.concatenate(chosen))


def knowing(offsets: np.ndarray, num_known: int) -> Statements:
    """A predictor that knows the first `num_known` rows and takes the rest for any digit."""
    probs = grammar().probs
    known = (np.arange(len(offsets)) < num_known)[:, None]
    marginal = np.where(known, probs[digits_at(offsets)], probs.mean(axis=0))
    second_moment = np.where(known, probs[digits_at(offsets)] ** 2, (probs**2).mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = SelfCheatScores(
            np.log(marginal), np.where(marginal > 0, np.log(second_moment / marginal), -np.inf)
        )
    columns = np.broadcast_to(np.arange(441), marginal.shape)
    lengths = np.array([len(sentence.split()) + 1 for sentence in grammar().sentences])
    return Statements(offsets, columns, lengths[columns], scores, marginal)
