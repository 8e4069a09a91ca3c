"""Appendix B for several failure rates, beside the `confseq` package that the paper used.

    pip download --no-deps --no-binary :all: confseq==0.0.11
    tar xf confseq-0.0.11.tar.gz
    python docs/tables/appendix_b.py --confseq confseq-0.0.11/src

writes docs/results/appendix-b.json (about five minutes on one core); then
`python docs/tables/regression.py` puts the table into the page. The package is unpacked, not
installed: its last release asks for an older NumPy, and nothing that is used here is compiled.

The variable is S of the one-dimensional task, with a predictor in closed form, so that its mean is
known. `confseq` is run as the paper says: S rescaled from [-1/eps, 1/eps] to [0, 1], prior mean
(1 + eps) / 2 (the printed one, with its slip put right), prior variance 0.5^6, and else what
`betting_cs` does by default: both sides hedged, no running intersection. Its own test of a
hypothesis is asked, at hypotheses that a root finder chooses instead of those of a finite list.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pages
from guaranteed_intervals import task_mean, task_products
from scipy.optimize import brentq

import secondguess as sg
from secondguess.theory.calibration.means import MeanMethod

CUTOFFS = (0.01**2, 0.02**2, 0.05**2)
FAILURE_RATES = (0.01, 0.05, 0.2)
DRAWS = {1000: 1000, 10**4: 400, 10**5: 100}
"""Draws of the calibration set, by its size."""

INSTALL = (
    "run `pip download --no-deps --no-binary :all: confseq==0.0.11` and "
    "`tar xf confseq-0.0.11.tar.gz`, then give --confseq confseq-0.0.11/src."
)

Bound = Callable[[np.ndarray, float, float], float]
"""From values, the cut-off and the failure rate to an upper bound on their mean."""


def confseq_bound(betting: Any) -> Bound:
    """The upper end of `betting_cs`, for the module `confseq.betting`."""

    def bound(values: np.ndarray, cutoff: float, failure_rate: float) -> float:
        scaled = (values * cutoff + 1) / 2
        bets = betting.lambda_predmix_eb(
            scaled, alpha=failure_rate / 2, prior_mean=(1 + cutoff) / 2, prior_variance=0.5**6
        )

        def missing(mean: float) -> float:
            # Only the side that bets on a smaller mean decides the upper end; the other bets
            # nothing. Wealths beyond what a float can hold are as good as those at its ends.
            with np.errstate(over="ignore"):
                wealth = betting.betting_mart(
                    scaled,
                    mean,
                    alpha=failure_rate,
                    lambdas_fn_positive=lambda x, m: np.zeros_like(x),
                    lambdas_fn_negative=lambda x, m: bets,
                )
            return float(np.log(np.clip(wealth[-1], 1e-300, 1e300)) + np.log(failure_rate))

        low, high = 1e-9, 1 - 1e-9
        found = cast("float", brentq(missing, low, high, xtol=1e-10)) if missing(high) > 0 else 1.0
        return (2 * found - 1) / cutoff

    return bound


def our_bound(method: MeanMethod, *, lowest: float = -0.25) -> Bound:
    """Ours, on the range from `lowest` / cut-off to 1 / cut-off."""

    def bound(values: np.ndarray, cutoff: float, failure_rate: float) -> float:
        return sg.mean_upper_bound(
            values,
            low=lowest / cutoff,
            high=1 / cutoff,
            failure_rate=failure_rate,
            method=method,
        )

    return bound


def measure(bounds: dict[str, Bound]) -> list[dict[str, Any]]:
    """Mean bounds over draws, and how many of them fail."""
    rows = []
    for cutoff in CUTOFFS:
        mean = task_mean(cutoff)
        for size, draws in DRAWS.items():
            sets = [
                task_products(np.random.default_rng([size, draw]), size, cutoff)
                for draw in range(draws)
            ]
            for rate in FAILURE_RATES:
                found = {
                    name: np.array([bound(values, cutoff, rate) for values in sets])
                    for name, bound in bounds.items()
                }
                rows.append(
                    {
                        "min_variance": cutoff,
                        "size": size,
                        "failure_rate": rate,
                        "mean": mean,
                        "draws": draws,
                        "bounds": {name: float(each.mean()) for name, each in found.items()},
                        "standard_errors": {
                            name: float(each.std(ddof=1)) / draws**0.5
                            for name, each in found.items()
                        },
                        "failures": {
                            name: int((each < mean).sum()) for name, each in found.items()
                        },
                    }
                )
    return rows


def confseq_betting(source: Path) -> Any:
    """The package's own module, with two names that its last release has from older libraries."""
    if not (source / "confseq" / "betting.py").is_file():
        raise SystemExit(f"{source} holds no confseq/betting.py: {INSTALL}")
    sys.modules.setdefault("multiprocess", multiprocessing)
    gone = "float_"  # in NumPy 2
    setattr(np, gone, np.float64)
    sys.path.insert(0, str(source))
    return importlib.import_module("confseq.betting")


def main() -> None:
    """Measure and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--confseq", type=Path, default=Path("confseq-0.0.11/src"), help=INSTALL)
    start = time.perf_counter()
    bounds = {
        "betting": our_bound("betting"),
        "betting, the paper's range": our_bound("betting", lowest=-1),
        "confseq": confseq_bound(confseq_betting(parser.parse_args().confseq)),
        "hoeffding": our_bound("hoeffding"),
        "hoeffding, the paper's range": our_bound("hoeffding", lowest=-1),
    }
    rows = measure(bounds)
    command = "python docs/tables/appendix_b.py --confseq confseq-0.0.11/src"
    pages.keep("appendix-b", command=command, seconds=time.perf_counter() - start, rows=rows)


if __name__ == "__main__":
    main()
