"""Five ways to order sampled statements from the most to the least trusted (appendix F.3.3).

Every ranking is an array of gaps like the statements, `(n, m)`: the smaller, the more trusted. They
are the rankers of `secondguess.language.rankers` on statements that are kept as arrays.
"""

from __future__ import annotations

import numpy as np

from secondguess.experiments.digits_of_pi.evaluation import MALFORMED, Statements
from secondguess.theory.checks import FloatArray, IntArray
from secondguess.theory.metrics import HallucinationCurve, hallucination_curve
from secondguess.theory.records import GapKind

GAP_KINDS: tuple[GapKind, ...] = ("absolute", "one_minus", "clipped", "reciprocal")
RIVALS = ("total log-probability", "mean token log-probability", "clusters of 10", "all clustered")
CONFIDENCE = "epistemic confidence"


def ranking_gaps(statements: Statements) -> dict[str, FloatArray]:
    """The gap of each statement by the paper's five rankings: four rivals, then the confidence."""
    log_marginal = statements.scores.log_marginal
    meanings = statements.meanings
    total, mean_token, groups, everything = RIVALS
    return {
        total: -log_marginal,
        mean_token: -log_marginal / statements.num_tokens,
        groups: -cluster_sizes(meanings, group_size=10),
        everything: -cluster_sizes(meanings, group_size=meanings.shape[1]),
        CONFIDENCE: statements.scores.confidence_gap(),
    }


def cluster_sizes(meanings: IntArray, *, group_size: int) -> FloatArray:
    """How many samples of the same group say the same; 1 for malformed ones.

    >>> cluster_sizes(np.array([[3, 3, 5, 3, -1, -1]]), group_size=3)
    array([[2., 2., 1., 1., 1., 1.]])

    Args:
        meanings: `(n, m)`, MALFORMED where a sample means nothing.
        group_size: how many consecutive samples of a row are clustered; it must divide m.
    """
    count, size = meanings.shape
    if size % group_size:
        raise ValueError(
            f"{size} samples a digit do not split into groups of {group_size}; expected a multiple."
        )
    groups = meanings.reshape(-1, group_size)
    # Count (group, meaning) pairs through one number that names both.
    codes = np.arange(len(groups))[:, None] * (meanings.max() + 2) + groups - MALFORMED
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    sizes = np.where(groups == MALFORMED, 1, counts[inverse].reshape(groups.shape))
    return sizes.reshape(count, size).astype(np.float64)


def curves(
    statements: Statements, gaps: dict[str, FloatArray], *, rng: np.random.Generator
) -> dict[str, HallucinationCurve]:
    """The hallucination curve of each ranking."""
    wrong = ~statements.is_true.ravel()
    return {name: hallucination_curve(gap.ravel(), wrong, rng=rng) for name, gap in gaps.items()}


def rate_at(curve: HallucinationCurve, response_rate: float) -> tuple[float, float]:
    """The hallucination rate when that share is answered, and its standard error."""
    kept = max(1, round(response_rate * len(curve.response_rate)))
    rate = float(curve.hallucination_rate[kept - 1])
    return rate, float(np.sqrt(rate * (1 - rate) / kept))
