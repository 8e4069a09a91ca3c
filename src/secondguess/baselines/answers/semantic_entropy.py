"""How much the meanings of draws differ (Kuhn et al. 2023), in the form that counts draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secondguess.baselines.answers.asking import Asked, RivalScores
from secondguess.language.model import PairLanguageModel


def entropy_of_counts(counts: Sequence[int]) -> float:
    """The entropy of shares, in nats.

    >>> entropy_of_counts([3, 3])
    0.6931471805599453
    """
    shares = np.array(counts, dtype=np.float64) / sum(counts)
    return float(-np.sum(shares * np.log(shares)))


def score(model: PairLanguageModel, asked: Asked) -> RivalScores:
    """Minus the entropy of the shares of the draws that each meaning has.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> asked = Asked(["flip"], ["heads"], [["heads", "Heads!"]])
    >>> score(tiny_pair_model(), asked).values == 0
    array([ True])
    """
    entropies = [
        entropy_of_counts([len(group) for group in asked.meanings(question)])
        for question in range(len(asked))
    ]
    return RivalScores(-np.array(entropies), asked.drawing_passes)
