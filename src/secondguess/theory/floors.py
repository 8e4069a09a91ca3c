"""The floor of ECE-2: what a perfectly calibrated predictor would measure on a finite sample.

Finite samples and finitely many annotations give even a perfect predictor an ECE-2 above zero. How
much depends on the unknown distribution of the truths around the prediction.
`second_order_ece_floor` assumes that it is a Dirichlet distribution; `simulate_floor` takes any
other. The page "The floor of ECE-2" of the documentation says how far other truths move it.

Rows are inputs, columns classes: `(n, num_classes)`, or `(n,)` for one event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, IntArray, as_floats, check_at_least, fail_at
from secondguess.theory.annotations import Annotations
from secondguess.theory.records import Prediction
from secondguess.theory.reliability import NUM_BINS, second_order_ece


class EceFloor(NamedTuple):
    """The ECE-2 of a calibrated predictor over simulated worlds.

    >>> print(EceFloor(mean=0.0123, standard_deviation=0.0012, truths="Dirichlet"))
    0.0123 ± 0.0012 (Dirichlet truths)

    Attributes:
        mean: over the worlds.
        standard_deviation: from world to world: how far a calibrated predictor may be from the
            mean by chance.
        truths: the assumed distribution of the truths.
    """

    mean: float
    standard_deviation: float
    truths: str

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_deviation:.4f} ({self.truths} truths)"


def second_order_ece_floor(
    prediction: Prediction,
    num_annotations: ArrayLike,
    *,
    rng: np.random.Generator,
    num_bins: int = NUM_BINS,
    num_simulations: int = 50,
) -> EceFloor:
    """The ECE-2 that a perfectly calibrated predictor of this spread would measure.

    It assumes Dirichlet truths: they are drawn around each row of the prediction (from a Beta
    distribution for one event), annotations from the truths, and the ECE-2 of the predictor that
    reports exactly the variances of those distributions is measured. See `DirichletTruths.around`
    for what is matched.

    >>> rng = np.random.default_rng(0)
    >>> prediction = Prediction(np.full((2000, 2), 0.5), np.full((2000, 2), 0.01))
    >>> print(second_order_ece_floor(prediction, 50, rng=rng))  # the grouping error is 0.02
    0.0007 ± 0.0006 (Dirichlet truths)

    Args:
        prediction: of the method whose ECE-2 is to be compared with its floor.
        num_annotations: how many annotations each row has, one number or `(n,)`; at least two.
        rng: the source of truths and annotations.
        num_bins: as in `second_order_ece`.
        num_simulations: how many worlds to draw, at least two.
    """
    truths = DirichletTruths.around(prediction)
    reported = Prediction(truths.mean, truths.variance)
    if prediction.probs.ndim == 1:
        reported = Prediction(reported.probs[:, 1], reported.variance[:, 1])
    return simulate_floor(
        reported,
        truths.draw,
        num_annotations,
        truths="Dirichlet",
        rng=rng,
        num_bins=num_bins,
        num_simulations=num_simulations,
    )


def simulate_floor(
    prediction: Prediction,
    draw_truths: Callable[[np.random.Generator], FloatArray],
    num_annotations: ArrayLike,
    *,
    truths: str,
    rng: np.random.Generator,
    annotate: Callable[[IntArray], Annotations] = Annotations.from_counts,
    num_bins: int = NUM_BINS,
    num_simulations: int = 50,
) -> EceFloor:
    """The ECE-2 of a prediction in simulated worlds.

    >>> coins = Prediction(np.full(1000, 0.5), np.zeros(1000))  # it knows that they are fair
    >>> fair = lambda rng: np.full((1000, 2), 0.5)
    >>> print(simulate_floor(coins, fair, 9, truths="fair", rng=np.random.default_rng(0)))
    0.0010 ± 0.0007 (fair truths)

    Args:
        prediction: calibrated, if the result is to be a floor: probabilities and variances are the
            means and variances of the truths.
        draw_truths: draws p(y|x) of all rows, `(n, num_classes)`, two columns for one event.
        num_annotations: as in `second_order_ece_floor`.
        truths: what they are called in the result.
        rng: the source of truths and annotations.
        annotate: makes of counts what the prediction is compared with.
        num_bins: as in `second_order_ece`.
        num_simulations: how many worlds to draw, at least two.
    """
    check_at_least("num_simulations", num_simulations, 2)
    totals = as_floats("num_annotations", num_annotations)
    fail_at("num_annotations", (totals < 2) | (totals % 1 != 0), totals, "2 or more annotations")
    totals = np.broadcast_to(totals, len(prediction)).astype(np.int64)
    eces = [
        second_order_ece(
            prediction, annotate(rng.multinomial(totals, draw_truths(rng))), num_bins=num_bins
        )
        for _ in range(num_simulations)
    ]
    return EceFloor(float(np.mean(eces)), float(np.std(eces, ddof=1)), truths)


@dataclass(frozen=True, slots=True, eq=False)
class DirichletTruths:
    """A Dirichlet distribution around each row: Var = ratio * mean (1 - mean).

    >>> truths = DirichletTruths(np.array([[0.5, 0.5]]), np.array([1.0]))
    >>> truths.draw(np.random.default_rng(0))  # as far from the mean as can be
    array([[1., 0.]])

    Attributes:
        mean: `(n, num_classes)`.
        ratio: `(n,)`, in [0, 1].
    """

    mean: FloatArray
    ratio: FloatArray

    @classmethod
    def around(cls, prediction: Prediction) -> DirichletTruths:
        """Truths with the means of a prediction and the sum of its variances.

        One Dirichlet distribution has one spread, so of the variances of a row their sum is
        matched. For one event, whose columns are (absent, present), and for two classes that is
        each variance itself. Variances that no calibrated predictor can have, below 0 or above
        p(1 - p), are taken at that limit.
        """
        probs, variance = prediction.probs, prediction.variance
        if probs.ndim == 1:
            probs = np.stack([1 - probs, probs], axis=1)
            total_variance = 2 * variance
        else:
            total_variance = variance.sum(axis=1)
        mean = probs / probs.sum(axis=1, keepdims=True)
        return cls.of_spread(mean, total_variance, (mean * (1 - mean)).sum(axis=1))

    @classmethod
    def of_spread(
        cls, mean: FloatArray, total_variance: FloatArray, largest: FloatArray
    ) -> DirichletTruths:
        """The share of the largest total variance that is stated, cut to what is possible."""
        ratio = np.zeros(len(mean))
        np.divide(total_variance, largest, out=ratio, where=largest > 0)
        return cls(mean, ratio.clip(0.0, 1.0))

    @property
    def variance(self) -> FloatArray:
        """`(n, num_classes)`, that of each entry."""
        return self.ratio[:, None] * (self.mean * (1 - self.mean))

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """One draw per row, from Dirichlet(mean (1/ratio - 1))."""
        draws = self.mean.copy()
        inner = (self.ratio > 0) & (self.ratio < 1)
        concentration = self.mean[inner] * (1 / self.ratio[inner] - 1)[:, None]
        # log Gamma(a) = log Gamma(a + 1) + log(U) / a in distribution: tiny concentrations, whose
        # gamma variates underflow to zero, stay comparable in log space.
        uniform = rng.random(concentration.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            tilt = np.log1p(-uniform) / concentration
            logs = np.log(rng.standard_gamma(concentration + 1)) + tilt
        logs[concentration == 0] = -np.inf
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        draws[inner] = weights / weights.sum(axis=1, keepdims=True)
        certain = self.ratio == 1
        draws[certain] = rng.multinomial(1, self.mean[certain])
        return draws
