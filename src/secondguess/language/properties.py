"""How often responses have a yes/no property, as an interval that a calibration set guarantees.

Nothing here asks the model, so nothing here rests on its calibration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secondguess._arrays import as_floats
from secondguess.theory.calibration.fit_inflation import fit_variance_inflation
from secondguess.theory.calibration.inflation import VarianceInflation
from secondguess.theory.records import Interval


@dataclass(frozen=True, slots=True)
class PropertyRate:
    """The share of responses with a property, prompt by prompt, as an interval (Algorithm 1).

    Attributes:
        rate: the share in the first half of the rows.
        variance: how much it varies between prompts, from the same half.
        inflation: Algorithm 1 on the second half.
        interval: of p(property|x), shape `(1,)`, cut to [0, 1].
        miss_rate: the share of prompts whose rate may lie outside.
    """

    rate: float
    variance: float
    inflation: VarianceInflation
    interval: Interval
    miss_rate: float


def property_rate(
    values: np.ndarray,
    *,
    min_variance: float = 0.01,
    failure_rate: float = 0.05,
    miss_rate: float = 0.1,
) -> PropertyRate:
    """A guaranteed interval for the rate of a yes/no property, of a random new prompt.

    The rate and its variance over prompts are estimated on one half of the rows, and Algorithm 1
    makes them valid on the other, so the guarantee needs nothing but independent rows.

    >>> rng = np.random.default_rng(0)
    >>> found = property_rate(rng.random((2000, 2)) < 0.3)
    >>> str(found.interval.rests_on), bool(found.interval.contains([0.3])[0])
    ('guaranteed by a calibration set', True)

    Args:
        values: `(rows, k)` zeros and ones, k >= 2 responses per row.
        min_variance: see `fit_variance_inflation`.
        failure_rate: how often, over calibration sets, the guarantee may not hold.
        miss_rate: the share of prompts whose rate may lie outside.
    """
    table = as_floats("values", values)
    if table.ndim != 2 or table.shape[0] < 4:
        raise ValueError(
            f"values has shape {table.shape}; expected at least 4 rows of two or more responses."
        )
    fitting, calibration = table[::2], table[1::2]
    rate = float(fitting.mean())
    spread = fitting - rate
    # The mean product of two different responses of a row is the variance of p(property|x).
    k = table.shape[1]
    products = (spread.sum(axis=1) ** 2 - (spread**2).sum(axis=1)) / (k * (k - 1))
    variance = float(products.mean())
    constant = np.ones(len(calibration))
    inflation = fit_variance_inflation(
        rate * constant,
        variance * constant,
        calibration.astype(np.int64),
        min_variance=min_variance,
        failure_rate=failure_rate,
    )
    interval = inflation.interval([rate], [variance], miss_rate)
    return PropertyRate(rate, variance, inflation, interval, miss_rate)
