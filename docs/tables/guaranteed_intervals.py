"""The measurements behind docs/mean-bounds.md and docs/guaranteed-intervals.md.

    python docs/tables/guaranteed_intervals.py coverage|peer|world|extensions [--replicates 1000]

writes docs/results/guaranteed-intervals-<part>.json; then `python docs/tables/render.py` puts the
tables into the pages. All four parts take about ten minutes on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pages
from scipy.optimize import brentq

import secondguess as sg
from secondguess.experiments.regression.data import sample_pairs, true_probability
from secondguess.experiments.regression.half_blind import (
    half_blind_predictor,
    mean_scaled_squared_error,
)
from secondguess.theory.calibration.means import MeanMethod
from secondguess.theory.calibration.products import scaled_products
from secondguess.theory.calibration.scatter import order_of_parts, parts_of

METHODS: tuple[MeanMethod, ...] = get_args(MeanMethod)
CUTOFFS = tuple(root**2 for root in (0.001, 0.01, 0.02, 0.05, 0.5))
"""The five values of appendix B."""

GRID = np.linspace(-9, 9, 2_000_001)

Law = tuple[Callable[[np.random.Generator, int], np.ndarray], float, float, float]
"""How to draw n values, their mean, the low and the high end of their range."""


def task_products(rng: np.random.Generator, size: int, cutoff: float) -> np.ndarray:
    """S of the one-dimensional task."""
    inputs, responses = sample_pairs(size, rng)
    prediction = half_blind_predictor(inputs)
    return scaled_products(prediction.probs, prediction.variance, responses, cutoff)


def task_mean(cutoff: float) -> float:
    """E[S] = E[D] of the one-dimensional task."""
    prediction = half_blind_predictor(GRID)
    raised = np.maximum(prediction.variance, cutoff)
    return mean_scaled_squared_error(prediction.probs, raised, GRID)


def laws() -> dict[str, Law]:
    """The laws of the coverage table."""
    cutoff = 0.02**2
    return {
        "two points at the ends, even": (lambda r, n: r.integers(0, 2, n) * 1.0, 0.5, 0, 1),
        "two points at the ends, 9 to 1": (lambda r, n: (r.random(n) < 0.9) * 1.0, 0.9, 0, 1),
        "very rare large values": (lambda r, n: (r.random(n) < 0.002) * 1.0, 0.002, 0, 1),
        "skewed, Beta(0.2, 2)": (lambda r, n: r.beta(0.2, 2, n), 1 / 11, 0, 1),
        "symmetric, uniform": (lambda r, n: r.random(n), 0.5, 0, 1),
        "constant": (lambda r, n: np.full(n, 0.3), 0.3, 0, 1),
        "S of the one-dimensional task": (
            lambda r, n: task_products(r, n, cutoff),
            task_mean(cutoff),
            -0.25 / cutoff,
            1 / cutoff,
        ),
    }


def coverage(replicates: int, seed: int = 0) -> list[dict[str, Any]]:
    """How often the upper bound fails, and where it lies, for every law, size and method."""
    rows = []
    failure_rate = 0.05
    for name, (draw, mean, low, high) in laws().items():
        for size in (100, 1000):
            rng = np.random.default_rng([seed, size])
            bounds: dict[str, list[float]] = {method: [] for method in METHODS}
            for _ in range(replicates):
                values = draw(rng, size)
                for method in METHODS:
                    bounds[method].append(
                        sg.mean_upper_bound(
                            values, low=low, high=high, failure_rate=failure_rate, method=method
                        )
                    )
            # A constant is its own mean: allow its bound the rounding of a sum.
            slack = 1e-12 * max(abs(low), abs(high))
            rows.append(
                {
                    "law": name,
                    "size": size,
                    "mean": mean,
                    "failure_rate": failure_rate,
                    "replicates": replicates,
                    "failures": {
                        m: int(np.sum(np.array(b) < mean - slack)) for m, b in bounds.items()
                    },
                    "median_bound": {m: float(np.median(b)) for m, b in bounds.items()},
                }
            )
    return rows


def bound_per_observation(
    values: np.ndarray, low: float, high: float, failure_rate: float
) -> float:
    """The bound of Waudby-Smith and Ramdas with a bet, and a look, of its own for every value.

    The predictable plug-in for a known number of rows: the bet is sqrt(2 log(1/f) / (n s²)), with
    s² the variance of the earlier values regularised by one pretended value, cut to 1/2 of the most
    that keeps the wealth positive; values rescaled to [0, 1]. The bound is the least candidate at
    which the wealth ever reaches 1/f.
    """
    scaled = (values - low) / (high - low)
    size, level = len(scaled), np.log(1 / failure_rate)
    counts = np.arange(1, size + 1)
    means = (0.5 + np.cumsum(scaled)) / (counts + 1)
    variances = (0.25 + np.cumsum((scaled - means) ** 2)) / (counts + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    bets = np.sqrt(2 * level / (size * earlier))

    def missing(mean: float) -> float:
        gains = np.minimum(bets, 0.5 / (1 - mean)) * (mean - scaled)
        return np.cumsum(np.log1p(gains)).max() - level

    last = 1 - 1e-12
    root = brentq(missing, 0.0, last, xtol=1e-15) if missing(last) > 0 else 1.0
    return low + (high - low) * float(root)  # pyright: ignore[reportArgumentType]


def as_read(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """The values in the order in which `mean_upper_bound` bets on them.

    The least bound over all looks depends on the luck of the order, so the two are compared in one.
    """
    stream = sg.BoundedMean(low, high)
    stream.update(values)
    places = order_of_parts(stream._tally.entries().content())[parts_of(0, len(values))]
    return values[np.argsort(places, kind="stable")]


def ratio_to_peer(cutoff: float, size: int, draws: int) -> np.ndarray:
    """The bound over the one with a bet and a look per observation, for some draws of the task.

    Where one of them fails, which happens once in twenty times at most, it counts as the true mean.
    """
    ends: dict[str, Any] = {"low": -0.25 / cutoff, "high": 1 / cutoff}
    mean, ratios = task_mean(cutoff), []
    for draw in range(draws):
        values = task_products(np.random.default_rng([size, draw]), size, cutoff)
        found = sg.mean_upper_bound(values, **ends, failure_rate=0.05)
        reference = bound_per_observation(as_read(values, **ends), **ends, failure_rate=0.05)
        ratios.append(max(found, mean) / max(reference, mean))
    return np.array(ratios)


def peer(sizes: tuple[int, ...] = (100, 1000, 10**4, 10**5, 10**6)) -> list[dict[str, Any]]:
    """Bounds on S of the one-dimensional task beside the one with a bet per observation."""
    rows = []
    for cutoff in CUTOFFS:
        for size in sizes:
            values = task_products(np.random.default_rng(size), size, cutoff)
            low, high = -0.25 / cutoff, 1 / cutoff
            bounds = {
                m: sg.mean_upper_bound(values, low=low, high=high, failure_rate=0.05, method=m)
                for m in METHODS
            }
            rows.append(
                {
                    "min_variance": cutoff,
                    "size": size,
                    "mean": task_mean(cutoff),
                    "bounds": bounds,
                    "per_observation": bound_per_observation(
                        as_read(values, low, high), low, high, failure_rate=0.05
                    ),
                    "ratios": ratio_to_peer(cutoff, size, draws(size)).tolist(),
                }
            )
    return rows


def draws(size: int) -> int:
    """How many draws the mean ratio rests on."""
    return 20 if size <= 10**4 else 10 if size <= 10**5 else 4


def wrong_predictor(inputs: np.ndarray) -> sg.Prediction:
    """Half blind, and on top of it exaggerating, shifted and four times too sure."""
    prediction = half_blind_predictor(inputs)
    probs = np.clip(0.55 + 1.3 * (prediction.probs - 0.5), 0, 1)
    return sg.Prediction(probs=probs, variance=prediction.variance / 4)


def world(size: int = 100_000, fresh: int = 1_000_000) -> list[dict[str, Any]]:
    """Coverage and width of the intervals of a deliberately wrong predictor on fresh inputs."""
    inputs, responses = sample_pairs(size, np.random.default_rng(1))
    prediction = wrong_predictor(inputs)
    new_inputs = np.random.default_rng(2).standard_normal(fresh)
    true_probs, new = true_probability(new_inputs), wrong_predictor(new_inputs)
    rows = []
    for method in METHODS:
        for cutoff in CUTOFFS:
            inflation = sg.fit_variance_inflation(
                prediction.probs,
                prediction.variance,
                responses,
                min_variance=cutoff,
                failure_rate=0.05,
                method=method,
            )
            row: dict[str, Any] = {
                "method": method,
                "min_variance": cutoff,
                "size": size,
                "fresh": fresh,
                "inflation": inflation.value,
                "miss_rates": {},
            }
            for miss_rate in (0.05, 0.1, 0.2, 0.5):
                interval = inflation.interval(new.probs, new.variance, miss_rate)
                row["miss_rates"][str(miss_rate)] = {
                    "coverage": sg.interval_coverage(interval, true_probs),
                    "width": float(interval.width.mean()),
                }
            rows.append(row)
    # What the predictor claims for itself, without calibration.
    claimed = {}
    for miss_rate in (0.05, 0.1, 0.2, 0.5):
        interval = sg.chebyshev_interval(new.probs, new.variance, miss_rate)
        claimed[str(miss_rate)] = {
            "coverage": sg.interval_coverage(interval, true_probs),
            "width": float(interval.width.mean()),
        }
    rows.append({"method": "claimed", "fresh": fresh, "size": size, "miss_rates": claimed})
    return rows


def extensions() -> dict[str, Any]:
    """What five responses gain over two, and the one-sided bound over the two-sided one."""
    responses_rows, one_sided_rows = [], []
    for size in (10**4, 10**5):
        for cutoff in CUTOFFS:
            inputs, responses = sample_pairs(size, np.random.default_rng(3), num_responses=5)
            prediction = half_blind_predictor(inputs)
            rows = prediction.probs, prediction.variance
            options: dict[str, Any] = {"min_variance": cutoff, "failure_rate": 0.05}
            two = sg.fit_variance_inflation(*rows, responses[:, :2], **options)
            five = sg.fit_variance_inflation(*rows, responses, **options)
            responses_rows.append(
                {
                    "size": size,
                    "min_variance": cutoff,
                    "true": task_mean(cutoff),
                    "two": two.value,
                    "five": five.value,
                }
            )
            lower = sg.fit_calibrated_lower_bound(*rows, responses[:, :2], **options)
            new_inputs = np.random.default_rng(4).standard_normal(200_000)
            new, true_probs = half_blind_predictor(new_inputs), true_probability(new_inputs)
            for miss_rate in (0.05, 0.1, 0.2, 0.5):
                one_sided = lower.lower_bound(new.probs, new.variance, miss_rate).value
                two_sided = two.interval(new.probs, new.variance, miss_rate).lower
                one_sided_rows.append(
                    {
                        "size": size,
                        "min_variance": cutoff,
                        "miss_rate": miss_rate,
                        "coverage": float(np.mean(one_sided <= true_probs)),
                        "distance": float(np.mean(new.probs - one_sided)),
                        "two_sided_distance": float(np.mean(new.probs - two_sided)),
                    }
                )
    return {"responses": responses_rows, "one_sided": one_sided_rows}


def main() -> None:
    """Measure one part and write its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("coverage", "peer", "world", "extensions"))
    parser.add_argument("--replicates", type=int, default=1000)
    arguments = parser.parse_args()
    start = time.perf_counter()
    if arguments.part == "coverage":
        rows: object = coverage(arguments.replicates)
    else:
        rows = {"peer": peer, "world": world, "extensions": extensions}[arguments.part]()
    pages.keep(
        f"guaranteed-intervals-{arguments.part}",
        command=f"python docs/tables/guaranteed_intervals.py {arguments.part}",
        seconds=time.perf_counter() - start,
        rows=rows,
    )


if __name__ == "__main__":
    main()
