"""Coverage of Algorithm 1 on calibration sets as people have them: the table of conditions.

    python docs/tables/calibration_conditions.py [--replicates 1000]

writes docs/results/calibration-conditions.json; then `python docs/tables/render.py` puts the table
into docs/guaranteed-intervals.md. For every layout of the rows, law and method it counts in how
many calibration sets the bound is below the true E[D], and how many sets are refused. The promise
is over calibration sets and seeds, so every set has its own: these predictors say the same of all
inputs, and a sorted set of a thousand such rows is one of a few dozen possible ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import numpy as np
import pages
from scipy.special import expit

import secondguess as sg
from secondguess.theory.calibration.inflation import DependentResponsesError
from secondguess.theory.calibration.means import MeanMethod
from secondguess.theory.calibration.raters import UnequalRatersError

METHODS: tuple[MeanMethod, ...] = get_args(MeanMethod)
FAILURE_RATE = 0.05
VARIANCE = 0.02
OFFSETS = np.array([-2.0, 0.0, 2.0])


class Set(NamedTuple):
    """One calibration set, and what it is told to be."""

    probs: np.ndarray
    variance: np.ndarray
    responses: np.ndarray
    options: Mapping[str, Any] = MappingProxyType({})


LAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "uniform": lambda rng, n: rng.random(n),
    "one in fifty far off": lambda rng, n: np.where(rng.random(n) < 0.02, 0.95, 0.5),
    "nearly always right": lambda rng, n: 0.5 + 0.05 * rng.standard_normal(n).clip(-3, 3),
}
"""Laws of p(1|x) for a predictor that says 1/2 of everything."""


def drawn(rng: np.random.Generator, true_probs: np.ndarray, num_responses: int = 2) -> Set:
    """Responses to inputs in the order given, and a predictor that says 1/2."""
    responses = rng.random((len(true_probs), num_responses)) < true_probs[:, None]
    full = np.full(len(true_probs), 0.5)
    return Set(full, full * 2 * VARIANCE, responses)


def reordered(rows: Set, keys: np.ndarray) -> Set:
    """Rows sorted by a key."""
    order = np.argsort(keys, kind="stable")
    return Set(rows.probs[order], rows.variance[order], rows.responses[order], rows.options)


def disputed_first(rng: np.random.Generator, law: str) -> Set:
    """Rows whose responses differ, then the others."""
    rows = drawn(rng, LAWS[law](rng, 1000))
    return reordered(rows, rows.responses[:, 0] == rows.responses[:, 1])


def agreed_first(rng: np.random.Generator, law: str) -> Set:
    """Rows whose responses agree, then the others."""
    rows = drawn(rng, LAWS[law](rng, 1000))
    return reordered(rows, rows.responses[:, 0] != rows.responses[:, 1])


def joined(rng: np.random.Generator, law: str) -> Set:
    """Sorted by distance from 1/2: the hard source first, then the easy one."""
    true_probs = LAWS[law](rng, 1000)
    return drawn(rng, true_probs[np.argsort(-np.abs(true_probs - 0.5))])


def grouped(rng: np.random.Generator, law: str) -> Set:
    """100 groups of 20 copies, each with responses of its own."""
    rows = drawn(rng, np.repeat(LAWS[law](rng, 100), 20))
    return rows._replace(options={"groups": np.repeat(np.arange(100), 20)})


def fixed_raters(rng: np.random.Generator, law: str) -> Set:
    """Three people, one column each, who lean differently."""
    logits = 4 * (LAWS[law](rng, 1000) - 0.5)
    rows = drawn(rng, logits, 3)
    return rows._replace(responses=rng.random((1000, 3)) < expit(logits[:, None] + OFFSETS))


def named_raters(rng: np.random.Generator, law: str) -> Set:
    """The same, and the code is told."""
    return fixed_raters(rng, law)._replace(options={"annotators": "columns"})


LAYOUTS = {
    "as drawn": lambda rng, law: drawn(rng, LAWS[law](rng, 1000)),
    "disputed items first": disputed_first,
    "agreed items first": agreed_first,
    "two sources joined": joined,
    "groups of 20, named": grouped,
    "one column per person": fixed_raters,
    "the same, named": named_raters,
}


def true_mean(layout: str, law: str) -> float:
    """E[D] of the law, by a million draws."""
    true_probs = LAWS[law](np.random.default_rng(99), 1_000_000)
    if layout in ("one column per person", "the same, named"):
        true_probs = expit(4 * (true_probs - 0.5)[:, None] + OFFSETS).mean(axis=1)
    return float(np.mean((true_probs - 0.5) ** 2) / VARIANCE)


def measure(layout: str, law: str, replicates: int, seed: int = 0) -> dict[str, Any]:
    """One row of the table."""
    mean = true_mean(layout, law)
    failures, refusals = (dict.fromkeys(METHODS, 0) for _ in range(2))
    for replicate in range(replicates):
        rows = LAYOUTS[layout](np.random.default_rng([seed, replicate]), law)
        for method in METHODS:
            try:
                fitted = sg.fit_variance_inflation(
                    rows.probs,
                    rows.variance,
                    rows.responses,
                    min_variance=VARIANCE,
                    failure_rate=FAILURE_RATE,
                    method=method,
                    seed=replicate,
                    **rows.options,
                )
                # A million draws know the mean to a thousandth.
                failures[method] += fitted.value < 0.997 * mean
            except (UnequalRatersError, DependentResponsesError):
                refusals[method] += 1
    return {
        "layout": layout,
        "law": law,
        "mean": mean,
        "failure_rate": FAILURE_RATE,
        "replicates": replicates,
        "failures": failures,
        "refusals": refusals,
    }


def main() -> None:
    """Measure all rows and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=1000)
    arguments = parser.parse_args()
    start = time.perf_counter()
    rows = [measure(layout, law, arguments.replicates) for layout in LAYOUTS for law in LAWS]
    pages.keep(
        "calibration-conditions",
        command="python docs/tables/calibration_conditions.py",
        seconds=time.perf_counter() - start,
        rows=rows,
    )


if __name__ == "__main__":
    main()
