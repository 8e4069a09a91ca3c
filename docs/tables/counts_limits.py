"""What limits intervals from counts, and whether higher moments would do better.

    python docs/tables/counts_limits.py

writes docs/results/intervals-from-counts-limits.json; `python docs/tables/counts_page.py` puts the
tables into docs/intervals-from-counts.md. The world is the simulated one of
`intervals_from_counts.py`: a predictor whose stated variances are right. Arrays have one entry per
row.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pages
from intervals_from_counts import FAILURE_RATE, MISS_RATE, oracle_width, simulated
from scipy import special

from secondguess._arrays import FloatArray, IntArray
from secondguess.theory.calibration.counts import count_scores, uniform_slots
from secondguess.theory.calibration.fit_intervals import divided, fit_intervals
from secondguess.theory.calibration.interval_plan import DETECTION_RATES, FAMILIES, PAIR_CUTOFFS
from secondguess.theory.calibration.means import BoundedMean
from secondguess.theory.calibration.nested import NestedFamily

NUM_ROWS, NUM_WIDTHS = 8000, 2000
ORDERS = (2, 4, 6)
_MAX_REPEATED_ROWS = 10_000


def limits(k: int) -> dict[str, Any]:
    """Mean widths if the share of calls, or the mean squared error, were known exactly."""
    world = simulated(1, k, 0)
    at = world["evaluating"][:NUM_ROWS]
    probs, variance, ones, totals, truths = (
        world[name][at] for name in ("probs", "variance", "counts", "totals", "truths")
    )
    slots = uniform_slots(0, NUM_ROWS, 3)
    best = (1.0, FAMILIES[0], 0.0)
    for rate in DETECTION_RATES:
        for family in FAMILIES:
            scores = np.sort(count_scores(family, probs, variance, ones, totals, slots, rate))
            radius = float(scores[int(np.ceil((1 - rate * MISS_RATE) * NUM_ROWS)) - 1])
            best = min(best, (width(family, probs, variance, radius), family, rate), key=first)
    by_pairs = []
    for cutoff in PAIR_CUTOFFS:
        inflation = np.mean((truths - probs) ** 2 / np.maximum(variance, cutoff))
        radius = float(np.sqrt(inflation / MISS_RATE))
        by_pairs.append(width(NestedFamily("symmetric", cutoff), probs, variance, radius))
    return {
        "num_responses": k,
        "pairs": min(by_pairs),
        "counts": best[0],
        "family": best[1].kind,
        "detection_rate": best[2],
        "oracle": oracle_width({**world, "evaluating": at}, None, MISS_RATE),
    }


def first(choice: tuple[float, NestedFamily, float]) -> float:
    """The width of a choice."""
    return choice[0]


def width(family: NestedFamily, probs: FloatArray, variance: FloatArray, radius: float) -> float:
    """Mean width on some of the rows: quantiles of Beta laws are slow."""
    lower, upper = family.ends(probs[:NUM_WIDTHS], variance[:NUM_WIDTHS], radius)
    return float(np.mean(upper - lower))


def moment_products(probs: FloatArray, ones: IntArray, k: int, order: int) -> FloatArray:
    """The mean over subsets of `order` responses of the product of residuals."""
    rest = k - ones
    total = np.zeros(np.broadcast_shapes(probs.shape, ones.shape))
    for j in range(order + 1):
        ways = special.binom(ones, j) * special.binom(rest, order - j)
        ways = np.where((ones >= j) & (rest >= order - j), ways, 0.0)
        total += ways * (1 - probs) ** j * (-probs) ** (order - j)
    return total / special.binom(k, order)


def moment_width(rows: tuple[np.ndarray, ...], new: list[np.ndarray], k: int, order: int) -> float:
    """Width certified by E[(p - p_hat)^order / max(variance, cutoff)^(order/2)] and Markov."""
    probs, variance, ones = rows
    products = moment_products(probs, ones, k, order)
    grid = moment_products(np.linspace(0, 1, 401)[:, None], np.arange(k + 1), k, order)
    low, (chooses, certifies) = float(grid.min()), divided(len(probs))

    def radius(cutoff: float, used: np.ndarray, repeats: int) -> float:
        scale = np.maximum(variance[used], cutoff) ** (order // 2)
        least, most = (end / cutoff ** (order // 2) for end in (low, 1.0))
        mean = BoundedMean(least, most, "betting", 0)
        mean.update(np.resize(np.clip(products[used], low, 1) / scale, repeats))
        return float((max(mean.upper(FAILURE_RATE), 0.0) / MISS_RATE) ** (1 / order))

    size = int(np.count_nonzero(certifies))
    promised = [
        (width(family, probs[chooses], variance[chooses], reach), family)
        for cutoff in PAIR_CUTOFFS
        for family in [NestedFamily("symmetric", cutoff)]
        for reach in [radius(cutoff, chooses, min(size, _MAX_REPEATED_ROWS))]
    ]
    family = min(promised, key=lambda choice: choice[0])[1]
    return width(family, new[0], new[1], radius(family.min_variance, certifies, size))


def moments(k: int, size: int) -> dict[str, Any]:
    """Moments of order 2, 4 and 6 against counts."""
    world = simulated(size, k, 0)
    at, new = world["calibrating"], world["evaluating"]
    probs, variance, ones = (world[name][at] for name in ("probs", "variance", "counts"))
    fresh = [world[name][new] for name in ("probs", "variance")]
    fitted = fit_intervals(probs, variance, ones, k, method="counts")
    of_counts = fitted.interval(*(array[:NUM_WIDTHS] for array in fresh)).width.mean()
    widths = {
        str(order): moment_width((probs, variance, ones), fresh, k, order)
        for order in ORDERS
        if order <= k
    }
    return {"num_responses": k, "rows": size, "moments": widths, "counts": float(of_counts)}


def main() -> None:
    """Measure both and write the result."""
    start = time.perf_counter()
    rows = {
        "limits": [limits(k) for k in (2, 5, 10, 50, 100, 1000)],
        "moments": [moments(k, size) for k in (10, 50) for size in (2000, 20_000)],
    }
    pages.keep(
        "intervals-from-counts-limits",
        command="python docs/tables/counts_limits.py",
        seconds=time.perf_counter() - start,
        rows=rows,
    )


if __name__ == "__main__":
    main()
