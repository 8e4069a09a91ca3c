"""Lines on the logit scale, and the search for the most probable one.

A line keeps the order of probabilities and has two parameters. Few observations make a line that is
mostly noise, so a prior holds it near the identity until they show better: a Cauchy distribution of
the log slope, and of the offset where the observations are. Its tails are heavy, so that what is
clearly wrong moves all the way. Logs of probabilities have any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import log_expit

from secondguess._arrays import FloatArray, as_floats

HIGHEST_LOGIT = 40.0
LOG_SLOPES, OFFSETS = (-4.0, 3.0), (-12.0, 12.0)
"""How far lines may go."""

LossAndSlopes = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""From log slopes and offsets, of one line or several, to a loss and its derivatives."""


@dataclass(frozen=True, slots=True)
class LogitLine:
    """A line on the logit scale: logit p becomes slope * logit p + offset.

    >>> np.exp(LogitLine(0.5, 0.0)(np.log([0.5, 0.99]))).round(3)
    array([0.5  , 0.909])

    Attributes:
        slope: above 0; below 1, probabilities move towards 1/2.
        offset: above 0, probabilities become larger.
    """

    slope: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.slope < np.inf and np.isfinite(self.offset)):
            raise ValueError(
                f"the line has slope {self.slope!r} and offset {self.offset!r}; expected a "
                f"positive slope and finite numbers."
            )

    def __call__(self, log_probs: ArrayLike) -> FloatArray:
        """The logs of the moved probabilities; impossible events stay impossible."""
        logs = as_floats("log_probs", log_probs, allow_infinite=True)
        moved = log_expit(self.slope * log_odds(logs) + self.offset)
        return np.where(np.isneginf(logs), -np.inf, moved)


def log_odds(logs: FloatArray) -> FloatArray:
    """Logits of probabilities given by their logs, none above `HIGHEST_LOGIT`.

    >>> log_odds(np.array([-400.0, np.log(0.5), 0.0]))
    array([-400.,    0.,   40.])
    """
    # Sums of token log-probabilities may end slightly above zero.
    logs = np.minimum(logs, 0.0)
    with np.errstate(divide="ignore"):
        return np.minimum(logs - np.log(-np.expm1(logs)), HIGHEST_LOGIT)


def most_probable_lines(
    mean_loss: LossAndSlopes,
    *,
    centres: Sequence[float],
    num_rows: float,
    dispersion: Callable[[np.ndarray], float],
    typical_error: float,
) -> list[LogitLine]:
    """The most probable lines under the prior, all together.

    A line is searched for by two numbers: its log slope, and its offset at a logit where the rows
    are.

    Args:
        mean_loss: minus the log-likelihood of these numbers per row, with its derivatives.
        centres: the logit of each line at which its offset is measured.
        num_rows: how many rows there are.
        dispersion: from the likeliest numbers to what the rows vary around them, beside what their
            likelihood takes them to: rows count by as much less.
        typical_error: scale of the prior, in log slopes and in offsets.
    """

    def with_prior(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slopes = mean_loss(numbers)
        prior = weight * np.sum(np.log1p(np.square(numbers / typical_error)))
        prior_slopes = weight * 2 * numbers / (typical_error**2 + np.square(numbers))
        return loss + float(prior), slopes + prior_slopes

    likeliest = _lowest(mean_loss, [np.zeros(2 * len(centres))])
    weight = dispersion(likeliest) / num_rows
    # Heavy tails make several minima: each line near the identity, or near the likeliest one.
    masks = product((0.0, 1.0), repeat=len(centres))
    found = _lowest(with_prior, [likeliest * np.repeat(mask, 2) for mask in masks])
    slopes = np.exp(found[::2]).tolist()
    return [
        LogitLine(slope, offset + (1 - slope) * centre)
        for slope, offset, centre in zip(slopes, found[1::2].tolist(), centres, strict=True)
    ]


def moved_from(centre: float, line: np.ndarray, logits: FloatArray) -> FloatArray:
    """Logits moved by a line that is given by its log slope and its offset at the centre."""
    return np.exp(line[0]) * (logits - centre) + centre + line[1]


def _lowest(function: LossAndSlopes, starts: Iterable[np.ndarray]) -> np.ndarray:
    """The lowest of the minima that are found from some starts."""
    found = [
        minimize(
            function,
            x0=start,
            jac=True,
            method="L-BFGS-B",
            bounds=[LOG_SLOPES, OFFSETS] * (len(start) // 2),
            options={"ftol": 1e-14, "gtol": 1e-10},
        )
        for start in starts
    ]
    return min(found, key=lambda each: each.fun).x
