"""Algorithm 1 on the one-dimensional world: how the variance inflation converges (appendix B).

Fresh inputs and pairs of responses are drawn in a stream, so that 10^9 of them need no memory. The
network is tabulated on a fine grid of x once and interpolated linearly. Algorithm 1 holds for any
predictor, so the bounds are exact for the interpolated one; responses come from the closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray
from secondguess.experiments.regression.data import quantile_inputs, sample_pairs
from secondguess.experiments.regression.methods import Predictor
from secondguess.experiments.runner import PartResult
from secondguess.theory.calibration.inflation import InflationStream, VarianceInflation
from secondguess.theory.calibration.means import MeanMethod
from secondguess.theory.metrics import interval_coverage
from secondguess.theory.records import Prediction

ROOT_MIN_VARIANCES = (0.001, 0.01, 0.02, 0.05, 0.5)
MISS_RATES = (0.05, 0.1, 0.2, 0.5)
FAILURE_RATE = 0.05
METHODS: tuple[MeanMethod, ...] = ("betting", "hoeffding")
CURVES = (*METHODS, "mean_product", "mean_squared_error")
"""Arrays of the study by the size of the calibration set: inflations, and the means of S and D."""
CALIBRATION_SIZE = 10**6
"""Pairs behind the bands of Figure 4."""

_TABLE_END = 6.5
TABLE_CELLS = 2**18
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class TabulatedPredictor:
    """A predictor of one input, evaluated once on a uniform grid and interpolated linearly.

    >>> table = TabulatedPredictor.of(lambda x: Prediction(0.5 + 0 * x, 0.01 + 0 * x))
    >>> table(np.array([0.123])).probs
    array([0.5])

    Attributes:
        values: `(cells + 1, 2)`: probability and variance at the grid points of [-6.5, 6.5].
            Inputs outside, one in 10^10, get the value at the end.
    """

    values: FloatArray

    @classmethod
    def of(cls, predict: Predictor) -> TabulatedPredictor:
        """Tabulate a predictor."""
        prediction = predict(np.linspace(-_TABLE_END, _TABLE_END, TABLE_CELLS + 1))
        return cls(np.stack([prediction.probs, prediction.variance], axis=1))

    def __call__(self, inputs: FloatArray) -> Prediction:
        """Interpolated predictions."""
        position = (inputs.clip(-_TABLE_END, _TABLE_END) + _TABLE_END) * (
            TABLE_CELLS / (2 * _TABLE_END)
        )
        cell = np.minimum(position.astype(np.int64), TABLE_CELLS - 1)
        share = (position - cell)[:, None]
        values = (1 - share) * self.values[cell] + share * self.values[cell + 1]
        return Prediction(values[:, 0], values[:, 1])


def calibration_sizes(largest: int) -> list[int]:
    """Where the convergence is looked at: four sizes per decade from 100 on.

    >>> calibration_sizes(2000)
    [100, 178, 316, 562, 1000, 1778, 2000]
    """
    sizes = (round(10 ** (2 + i / 4)) for i in range(40))
    return [size for size in sizes if size < largest] + [largest]


def study_intervals(
    predict: Predictor,
    probability: Callable[[ArrayLike], FloatArray],
    *,
    largest: int,
    num_evaluation: int,
    seed: int,
) -> PartResult:
    """Variance inflations at every size, and the coverage of the intervals that follow.

    Args:
        predict: the predictor, as it is; it is tabulated here.
        probability: the true p(Y=1|x).
        largest: pairs in the stream, at least `CALIBRATION_SIZE` for the coverage.
        num_evaluation: inputs of equal probability mass, for coverage and for E[D].
        seed: of the stream.

    Returns:
        Arrays with the axes (min_variance, size): the inflation by each method, and the running
        averages of S and D; metrics with E[D], the inflation from 10^6 pairs and the coverage.
    """
    table = TabulatedPredictor.of(predict)
    sizes, calibration_size = calibration_sizes(largest), min(CALIBRATION_SIZE, largest)
    looks = dict(_looks(table, probability, sorted({*sizes, calibration_size}), seed=seed))
    inputs = quantile_inputs(num_evaluation)
    evaluation, truth = table(inputs), probability(inputs)
    calibrated = dict(zip(ROOT_MIN_VARIANCES, looks[calibration_size].betting, strict=True))
    raised = np.maximum(evaluation.variance, np.square(ROOT_MIN_VARIANCES)[:, None])
    limits = ((evaluation.probs - truth) ** 2 / raised).mean(axis=1)
    direct = predict(inputs)
    curves = {name: np.stack([looks[n].curves()[name] for n in sizes], axis=1) for name in CURVES}
    return PartResult(
        metrics={
            "largest": largest,
            "calibration_size": calibration_size,
            "inflation": {f"{root:g}": found.value for root, found in calibrated.items()},
            "limit": {f"{r:g}": float(d) for r, d in zip(ROOT_MIN_VARIANCES, limits, strict=True)},
            "coverage": {
                f"{root:g}": {
                    f"{rate:g}": interval_coverage(
                        inflation.interval(evaluation.probs, evaluation.variance, rate), truth
                    )
                    for rate in MISS_RATES
                }
                for root, inflation in calibrated.items()
            },
            "least_lead_of_betting": float((curves["hoeffding"] - curves["betting"]).min()),
            "largest_table_error": float(np.abs(evaluation.probs - direct.probs).max()),
        },
        arrays={"sizes": np.array(sizes), **curves},
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """What the stream says after some number of pairs, one entry per cut-off.

    Attributes:
        betting: the variance inflations by betting.
        hoeffding: those by Hoeffding's inequality.
        mean_squared_error: the mean of D so far, which the inflations bound.
    """

    betting: list[VarianceInflation]
    hoeffding: list[VarianceInflation]
    mean_squared_error: FloatArray

    def curves(self) -> dict[str, FloatArray]:
        """A point of each of `CURVES`, `(cut-offs,)`."""
        return {
            "betting": np.array([found.value for found in self.betting]),
            "hoeffding": np.array([found.value for found in self.hoeffding]),
            "mean_product": np.array([found.mean for found in self.betting]),
            "mean_squared_error": self.mean_squared_error,
        }


def _looks(
    table: TabulatedPredictor,
    probability: Callable[[ArrayLike], FloatArray],
    sizes: list[int],
    *,
    seed: int,
) -> Iterator[tuple[int, _Look]]:
    """Draw pairs and calibrate on them as they come; a look at each of the sizes."""
    streams: dict[MeanMethod, list[InflationStream]] = {
        method: [
            InflationStream(min_variance=root**2, method=method) for root in ROOT_MIN_VARIANCES
        ]
        for method in METHODS
    }
    error_sums = np.zeros(len(ROOT_MIN_VARIANCES))
    rng = np.random.default_rng([seed, 3])
    for rows, size in _chunks(sizes):
        x, responses = sample_pairs(rows, rng, probability=probability)
        predicted = table(x)
        for stream in (*streams["betting"], *streams["hoeffding"]):
            stream.update(predicted.probs, predicted.variance, responses)
        squared = (predicted.probs - probability(x)) ** 2
        for i, root in enumerate(ROOT_MIN_VARIANCES):
            error_sums[i] += (squared / np.maximum(predicted.variance, root**2)).sum()
        if size is not None:
            betting, hoeffding = (
                [stream.result(FAILURE_RATE) for stream in streams[method]] for method in METHODS
            )
            yield size, _Look(betting, hoeffding, error_sums / size)


def _chunks(sizes: list[int]) -> Iterator[tuple[int, int | None]]:
    """Numbers of rows to draw, each with the size reached where that is one of `sizes`."""
    reached = 0
    for size in sizes:
        while reached < size:
            rows = min(_CHUNK, size - reached)
            reached += rows
            yield rows, size if reached == size else None
