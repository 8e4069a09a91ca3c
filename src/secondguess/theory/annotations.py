"""The truth that metrics compare predictions with: counts of annotators, or known probabilities.

Metrics need two things of it: p(y|x) and, for squared errors, its square. Both can be estimated
without bias from annotations, and both are exact in a known world. `Annotations` holds them, of the
shape `(n, num_classes)`, or `(n,)` for one event; metrics take it, or plain counts. It knows
nothing about predictions but their shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, as_counts, as_floats, as_probs, same_shape


@dataclass(frozen=True, slots=True, eq=False)
class Annotations:
    """What is known of p(y|x), one row per input.

    >>> Annotations.from_counts([[3, 1]]).shares
    array([[0.75, 0.25]])
    >>> Annotations.known([[0.7, 0.3]]).shares
    array([[0.7, 0.3]])

    Attributes:
        shares: p(y|x) as known, or unbiased estimates of it.
        squares: unbiased estimates of p(y|x)², of the same shape and NaN in rows that allow none;
            None where `shares` are known to be exact.
    """

    shares: FloatArray
    squares: FloatArray | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", as_floats("shares", self.shares))
        if self.squares is not None:
            object.__setattr__(self, "squares", np.asarray(self.squares, dtype=np.float64))
            same_shape(shares=self.shares, squares=self.squares)

    @classmethod
    def from_counts(cls, counts: ArrayLike) -> Annotations:
        """From how many annotations of a row chose each class.

        With k of the K annotations, the share is k/K and the estimate of its square
        k(k-1)/(K(K-1)), the share of pairs of annotations that both chose the class. A row with one
        annotation has no such pair.

        >>> Annotations.from_counts([[3, 1], [1, 0]]).squares
        array([[0.5, 0. ],
               [nan, nan]])

        Args:
            counts: `(n, num_classes)`; for one event the columns are (absent, present).
        """
        chosen = as_counts("counts", counts)
        totals = chosen.sum(axis=1).astype(np.float64)[:, None]
        shares = chosen / totals
        # k(k-1) / (K(K-1)) = s (s K - 1) / (K - 1) with the share s = k/K, which is 0/0 if K = 1;
        # in place, because with 10^7 rows each temporary is 80 MB.
        squares = shares * totals
        squares -= 1
        squares *= shares
        with np.errstate(invalid="ignore"):
            squares /= totals - 1
        return cls(shares, squares)

    @classmethod
    def known(cls, true_probs: ArrayLike) -> Annotations:
        """From the true probabilities, in known worlds only.

        Args:
            true_probs: `(n, num_classes)` with rows summing to one, or `(n,)` for one event.
        """
        return cls(as_probs("true_probs", true_probs), None)

    def of(self, probs: FloatArray) -> Annotations:
        """The annotations in the shape of a prediction: for one event, those that it is present.

        >>> Annotations.from_counts([[1, 3]]).of(np.array([0.5])).shares
        array([0.75])
        """
        if self.shares.shape == probs.shape:
            return self
        if probs.ndim == 1 and self.shares.shape == (len(probs), 2):
            return Annotations(
                self.shares[:, 1], None if self.squares is None else self.squares[:, 1]
            )
        raise ValueError(
            f"probs has shape {probs.shape} but the annotations have {self.shares.shape}; expected "
            f"one row per input and one column per class in both (for probs of one event, of shape "
            f"(n,), the two columns absent and present)."
        )


def as_annotations(truth: Annotations | ArrayLike) -> Annotations:
    """Annotations as they are; anything else is taken as counts.

    >>> as_annotations([[3, 1]]).shares
    array([[0.75, 0.25]])
    """
    return truth if isinstance(truth, Annotations) else Annotations.from_counts(truth)
