"""Rival scores for sampled answers to one prompt, and ours, through one interface.

A ranker takes the samples of one prompt and gives each a number, `(samples,)`: the higher, the more
it is to be trusted. `metrics.hallucination_curve` compares rankers on the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from secondguess._arrays import FloatArray, check_at_least
from secondguess.language.scoring import ScoredResponse, totals
from secondguess.theory.records import GapKind

SampleT = TypeVar("SampleT")
SampleT_contra = TypeVar("SampleT_contra", contravariant=True)


class Ranker(Protocol[SampleT_contra]):
    """Gives each of the samples of one prompt a number; the higher, the better."""

    def __call__(self, samples: Sequence[SampleT_contra], /) -> FloatArray:
        """One number per sample."""
        ...


def total_log_probability(samples: Sequence[ScoredResponse], /) -> FloatArray:
    """Log p(y|x) of the whole response.

    >>> sure = ScoredResponse((3, 0), "yes", np.log([0.5, 1.0]), np.log([0.5, 1.0]))
    >>> total_log_probability([sure]).round(3)
    array([-0.693])
    """
    return totals(samples).log_marginal


def mean_token_log_probability(samples: Sequence[ScoredResponse], /) -> FloatArray:
    """Log p(y|x) divided by the number of tokens, the end included (Malinin & Gales 2020).

    >>> sure = ScoredResponse((3, 0), "yes", np.log([0.5, 1.0]), np.log([0.5, 1.0]))
    >>> mean_token_log_probability([sure]).round(3)
    array([-0.347])
    """
    return totals(samples).log_marginal / np.array([len(each.tokens) for each in samples])


def epistemic_confidence(kind: GapKind = "absolute") -> Ranker[ScoredResponse]:
    """Minus the gap between the epistemic confidence and 1: the ranking of the paper.

    >>> unsure = ScoredResponse((3, 0), "yes", np.log([0.5, 1.0]), np.log([0.8, 1.0]))
    >>> epistemic_confidence()([unsure]).round(3)
    array([-0.375])
    """

    def rank(samples: Sequence[ScoredResponse], /) -> FloatArray:
        return -totals(samples).confidence_gap(kind)

    return rank


def clustered(equal: Callable[[SampleT, SampleT], bool], *, group_size: int) -> Ranker[SampleT]:
    """How many of each group of `group_size` consecutive samples say the same (Kuhn et al. 2023).

    >>> same_letter = clustered(lambda one, two: one[0] == two[0], group_size=4)
    >>> same_letter(["a1", "b1", "a2", "a3", "b2", "b3", "c1", "b4"])
    array([3., 1., 3., 3., 3., 3., 1., 3.])

    Args:
        equal: whether two samples mean the same; an equivalence, except that a malformed sample may
            equal nothing, not even its twin, and then counts 1.
        group_size: how many samples are clustered together, at least 2.
    """
    check_at_least("group_size", group_size, 2)

    def rank(samples: Sequence[SampleT], /) -> FloatArray:
        if len(samples) % group_size:
            raise ValueError(
                f"there are {len(samples)} samples; expected a multiple of group_size "
                f"({group_size}), because a smaller group cannot be compared with the others."
            )
        sizes = np.empty(len(samples))
        for start in range(0, len(samples), group_size):
            clusters: list[list[int]] = []
            for index in range(start, start + group_size):
                for cluster in clusters:
                    if equal(samples[cluster[0]], samples[index]):
                        cluster.append(index)
                        break
                else:
                    clusters.append([index])
            for cluster in clusters:
                sizes[cluster] = len(cluster)
        return sizes

    return rank
