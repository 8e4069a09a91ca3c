"""Five ways to order sampled statements from the most to the least trusted (appendix F.3.3).

Every ranking is an array of gaps like the statements, `(n, m)`: the smaller, the more trusted. They
are the rankers of `secondguess.language.rankers` on statements that are kept as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess.experiments.digits_of_pi.evaluation import MALFORMED, Statements
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
            f"{size} samples per digit do not split into groups of {group_size}; "
            f"expected a multiple."
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


def rates_at(
    gap: FloatArray,
    is_true: np.ndarray,
    response_rates: Sequence[float],
    *,
    rng: np.random.Generator,
) -> list[tuple[float, float]]:
    """The hallucination rate when each share is answered, and its standard error.

    All samples about a digit come from one belief about it, so digits are the independent units:
    ten times as many samples would not make the error smaller.

    >>> gap, is_true = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[True, True], [False, True]])
    >>> rates_at(gap, is_true, [0.5, 1.0], rng=np.random.default_rng(0))
    [(0.0, 0.0), (0.25, 0.25)]

    Args:
        gap: `(n, m)`, as of `ranking_gaps`.
        is_true: `(n, m)`.
        response_rates: the shares of all statements that are answered.
        rng: puts statements of equal gap in random order.
    """
    order = np.lexsort((rng.permutation(gap.size), gap.ravel()))
    num_digits = len(gap)
    found = []
    for response_rate in response_rates:
        kept = order[: max(1, round(response_rate * gap.size))]
        digits = kept // gap.shape[1]
        false = np.bincount(digits, weights=~is_true.ravel()[kept], minlength=num_digits)
        rate = false.sum() / len(kept)
        excess = false - rate * np.bincount(digits, minlength=num_digits)
        spread = np.sqrt(num_digits / max(1, num_digits - 1) * np.square(excess).sum())
        found.append((float(rate), float(spread / len(kept))))
    return found
