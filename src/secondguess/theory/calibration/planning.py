"""How narrow certified intervals would be, before the calibration set is collected.

A simulation, not a guarantee: it takes the model at its word (truths are drawn from Beta laws with
the predicted means and variances), draws calibration sets from them and certifies intervals as
`fit_intervals` would. Predictions have shape `(n,)`, one event per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import (
    FloatArray,
    IntArray,
    as_floats,
    as_probs,
    check_at_least,
    same_shape,
)
from secondguess.theory.calibration.fit_intervals import fit_intervals
from secondguess.theory.calibration.interval_plan import IntervalMethod
from secondguess.theory.calibration.nested import beta_shapes


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedWidth:
    """The intervals that a calibration set of some size would give.

    Attributes:
        num_rows: inputs of the calibration set.
        num_responses: responses to each.
        width: mean width of the intervals, over inputs and simulated calibration sets.
        spread: standard deviation of that mean width over calibration sets.
        held: share of the simulated truths inside.
        methods: how often each method was chosen.
    """

    num_rows: int
    num_responses: int
    width: float
    spread: float
    held: float
    methods: dict[str, int]


def plan_width(
    probs: ArrayLike,
    variance: ArrayLike,
    *,
    num_rows: Sequence[int],
    num_responses: Sequence[int],
    miss_rate: float = 0.1,
    failure_rate: float = 0.05,
    method: IntervalMethod = "auto",
    num_simulations: int = 5,
    rng: np.random.Generator,
) -> list[PlannedWidth]:
    """Mean widths for every number of rows and of responses, by simulation.

    >>> rng = np.random.default_rng(0)
    >>> probs = rng.beta(1, 2, size=1000)
    >>> plans = plan_width(
    ...     probs, 0.1 * probs * (1 - probs), num_rows=[1000], num_responses=[5, 100], rng=rng,
    ...     num_simulations=1,
    ... )
    >>> [(plan.num_responses, round(plan.width, 1)) for plan in plans]
    [(5, 0.7), (100, 0.5)]

    Args:
        probs: what the model predicts for inputs like those to be collected, shape `(n,)`.
        variance: the variances it states, of the same shape.
        num_rows: sizes of calibration sets to try.
        num_responses: numbers of responses to each input to try.
        miss_rate: the share of inputs whose p(y|x) may lie outside.
        failure_rate: how often the guarantee may not hold.
        method: as for `fit_intervals`.
        num_simulations: calibration sets to draw for each size. With few rows widths differ much
            from set to set, as `spread` says.
        rng: source of the draws.
    """
    p, v = as_probs("probs", probs), as_floats("variance", variance)
    same_shape(probs=p, variance=v)
    if p.ndim != 1:
        raise ValueError(f"probs has shape {p.shape}; expected (n,), one event per row.")
    check_at_least("num_simulations", num_simulations, 1)
    sizes = [check_at_least("num_rows", size, 10) for size in num_rows]
    responses = [check_at_least("num_responses", k, 1) for k in num_responses]
    shapes = beta_shapes(p, v)
    found: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    for _ in range(num_simulations):
        for rows, k, ones in _calibration_sets(shapes, sizes, responses, rng):
            fitted = fit_intervals(
                p[rows],
                v[rows],
                ones,
                k,
                miss_rate=miss_rate,
                failure_rate=failure_rate,
                method=method,
            )
            interval = fitted.interval(p, v)
            held = interval.contains(rng.beta(*shapes)).mean()
            cell = (float(interval.width.mean()), float(held), fitted.methods[0])
            found.setdefault((len(rows), k), []).append(cell)
    return [_planned(size, k, found[size, k]) for size in sizes for k in responses]


def _calibration_sets(
    shapes: tuple[FloatArray, FloatArray],
    sizes: Sequence[int],
    num_responses: Sequence[int],
    rng: np.random.Generator,
) -> Iterator[tuple[IntArray, int, IntArray]]:
    """Rows, responses per row and ones of one simulated set for each size.

    Larger sets hold the smaller ones, in rows and in responses: what differs between two of them is
    what was added, not a fresh draw of everything.
    """
    picked = rng.integers(len(shapes[0]), size=max(sizes, default=0))
    truths = rng.beta(shapes[0][picked], shapes[1][picked])
    ones, last = np.zeros(len(picked), dtype=np.int64), 0
    for k in sorted(set(num_responses)):
        ones = ones + rng.binomial(k - last, truths)
        last = k
        for size in sorted(set(sizes)):
            yield picked[:size], k, ones[:size]


def _planned(size: int, k: int, cells: list[tuple[float, float, str]]) -> PlannedWidth:
    widths, held, methods = zip(*cells, strict=True)
    return PlannedWidth(
        num_rows=size,
        num_responses=k,
        width=float(np.mean(widths)),
        spread=float(np.std(widths)),
        held=float(np.mean(held)),
        methods={name: methods.count(name) for name in sorted(set(methods))},
    )
