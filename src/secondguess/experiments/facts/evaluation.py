"""How good a score of answers is: by deciles, by its ranking, and by what it lets through.

Arrays are one-dimensional, one entry per question; `right` says whether the answer was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata

from secondguess._arrays import FloatArray
from secondguess.theory.calibration.thresholds import guaranteed_threshold

TRUSTED_SHARE = 0.1
NUM_BINS = 10
ERROR_RATES = (0.05, 0.1, 0.2)
"""Which marked answers are asked to guarantee."""


def area_under_curve(scores: FloatArray, right: np.ndarray) -> float:
    """The chance that a right answer scores above a wrong one, ties counting half (AUROC).

    >>> area_under_curve(np.array([0.9, 0.8, 0.3]), np.array([True, False, False]))
    1.0
    """
    num_right = int(right.sum())
    num_wrong = len(right) - num_right
    if not num_right or not num_wrong:
        return float("nan")
    ranks = rankdata(scores)
    above = ranks[right].sum() - num_right * (num_right + 1) / 2
    return float(above / (num_right * num_wrong))


def deciles(confidence: FloatArray, right: np.ndarray) -> list[tuple[float, float]]:
    """Mean confidence and share of right answers in ten equal parts, from the least confident on.

    >>> deciles(np.linspace(0, 1, 20), np.arange(20) >= 10)[-1]
    (0.9736842105263157, 1.0)
    """
    parts = np.array_split(np.argsort(confidence, kind="stable"), NUM_BINS)
    return [
        (float(confidence[part].mean()), float(right[part].mean())) for part in parts if len(part)
    ]


def wrong_among_trusted(scores: FloatArray, right: np.ndarray) -> float:
    """The share of wrong answers among the tenth with the highest scores.

    Ties at the border count by their share of wrong answers: no order of the rows is preferred.

    >>> wrong_among_trusted(np.arange(20.0), np.arange(20) != 18)
    0.5
    """
    num_trusted = max(1, round(TRUSTED_SHARE * len(scores)))
    border = np.sort(scores)[-num_trusted]
    above, level = scores > border, scores == border
    num_level = num_trusted - int(above.sum())
    wrong = float((~right[above]).sum()) + num_level * float((~right[level]).mean())
    return wrong / num_trusted


def judged(
    scores: FloatArray,
    right: np.ndarray,
    marked_scores: FloatArray,
    marked_right: np.ndarray,
) -> dict[str, Any]:
    """One row of the table: a score on test questions, with thresholds from marked answers."""
    answered, wrong = {}, {}
    for rate in ERROR_RATES:
        found = guaranteed_threshold(marked_scores, ~marked_right, max_error_rate=rate)
        given = found.answers(scores)
        answered[f"{rate:g}"] = float(given.mean())
        wrong[f"{rate:g}"] = float((~right[given]).mean()) if given.any() else None
    return {
        "auroc": area_under_curve(scores, right),
        "wrong_among_trusted": wrong_among_trusted(scores, right),
        "answered": answered,
        "wrong_among_answered": wrong,
    }
