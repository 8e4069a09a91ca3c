"""Recalibration of the two numbers that a confidence rests on, against what can be observed.

A trained model's p(y|x) and p(y|y,x) are off by what it has not learned. Both are probabilities of
events that held-out pairs show: that y1 is the y that the model drew, and that y2 repeats y1. Each
is corrected by a line on the logit scale, two parameters, fitted by likelihood: monotone, so that
within each of the two no order changes. Few pairs make a line that is mostly noise, so a prior
holds it near the identity until they show better. Logs of probabilities have any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from secondguess._arrays import FloatArray, as_floats, fail_at, same_shape
from secondguess._files import read_document, read_record, write_document
from secondguess.theory.records import SelfCheatScores

_FILE_NAME = "recalibration.json"
_KIND, _FORMAT = "secondguess recalibration", 1
_FARTHEST_LOGIT = 40.0
_LOG_SLOPE, _OFFSET = (-4.0, 3.0), (-12.0, 12.0)
_TYPICAL_ERROR = 0.1
"""How far a trained model is off before recalibration, in log slope and in offset: the scale of the
prior. Wider ones let more of the noise of rare repeats into confidences (digits of pi)."""


@dataclass(frozen=True, slots=True)
class LogitLine:
    """A line on the logit scale: logit p becomes slope * logit p + offset.

    >>> np.exp(LogitLine(0.5, 0.0)(np.log([0.5, 0.99]))).round(3)
    array([0.5  , 0.909])

    Attributes:
        slope: above 0; below 1, probabilities move towards 1/2.
        offset: above 0, events are more frequent than predicted.
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
        """The logs of the recalibrated probabilities; impossible events stay impossible."""
        logs = as_floats("log_probs", log_probs, allow_infinite=True)
        moved = log_expit(self.slope * _logit(logs) + self.offset)
        return np.where(np.isneginf(logs), -np.inf, moved)


def fit_line(
    log_probs: ArrayLike, events: ArrayLike, weights: ArrayLike | None = None
) -> LogitLine:
    """The most probable line, if lines are near the identity until the events show otherwise.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.uniform(0.1, 0.9, 4000)
    >>> too_sure = 1 / (1 + np.exp(-2 * np.log(true / (1 - true))))
    >>> line = fit_line(np.log(too_sure), rng.random(4000) < true)
    >>> round(line.slope, 1), abs(line.offset) < 0.1
    (0.5, True)

    The prior of the log slope, and of the offset where the events are, is a Cauchy distribution
    around 0 with the scale 0.1. What is a tenth or two off and not clearly so, as noise is, moves
    little; what is clearly wrong moves all the way, because the tails are heavy.

    >>> line = fit_line(np.log(true[:400]), rng.random(400) < true[:400])
    >>> abs(line.slope - 1) < 0.05, abs(line.offset) < 0.05
    (True, True)

    Chances other than 0 and 1 are no single observations. The shares of many people vary less
    around a probability than one answer does, and count by as much more: the likelihood is divided
    by their dispersion.

    Args:
        log_probs: `(n,)`, what the model said. Rows that it held to be impossible do not count: no
            line changes them.
        events: `(n,)`, whether it happened, or the chance that it did.
        weights: `(n,)`, how often each row counts; once if None.
    """
    logs = as_floats("log_probs", log_probs, allow_infinite=True)
    happened = as_floats("events", events)
    same_shape(log_probs=logs, events=happened)
    fail_at("events", (happened < 0) | (happened > 1), happened, "a chance between 0 and 1")
    counts = np.ones_like(logs) if weights is None else as_floats("weights", weights)
    possible = ~np.isneginf(logs)
    logits, happened, counts = _logit(logs[possible]), happened[possible], counts[possible]
    total = counts.sum()
    if total == 0:
        return LogitLine()
    # Where an event tells most about the offset, it tells nothing about the slope.
    centre = np.average(logits, weights=counts * expit(logits) * expit(-logits))

    def moved(line: np.ndarray) -> FloatArray:
        return np.exp(line[0]) * (logits - centre) + centre + line[1]

    def loss_and_slope(line: np.ndarray, prior_weight: float) -> tuple[float, np.ndarray]:
        logits_then = moved(line)
        losses = -happened * log_expit(logits_then) - (1 - happened) * log_expit(-logits_then)
        errors = counts * (expit(logits_then) - happened) / total
        slopes = np.array([np.sum(errors * (logits_then - centre - line[1])), np.sum(errors)])
        prior = prior_weight * np.sum(np.log1p(np.square(line / _TYPICAL_ERROR)))
        prior_slopes = prior_weight * 2 * line / (_TYPICAL_ERROR**2 + np.square(line))
        return float(np.sum(counts * losses) / total + prior), slopes + prior_slopes

    likeliest = _lowest(partial(loss_and_slope, prior_weight=0.0), [(0.0, 0.0)])
    are_single = np.all((happened == 0) | (happened == 1))
    dispersion = 1.0 if are_single else _dispersion(expit(moved(likeliest)), happened, counts)
    # Heavy tails make several minima: near the identity, near the likeliest line, and between them.
    log_slope, offset = _lowest(
        partial(loss_and_slope, prior_weight=dispersion / total),
        product((0.0, likeliest[0]), (0.0, likeliest[1])),
    )
    slope = float(np.exp(log_slope))
    return LogitLine(slope, float(offset + (1 - slope) * centre))


def _lowest(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    starts: Iterable[tuple[float, float]],
) -> np.ndarray:
    """The lowest of the minima that are found from some starts."""
    found = [
        minimize(
            function,
            x0=np.array(start),
            jac=True,
            method="L-BFGS-B",
            bounds=[_LOG_SLOPE, _OFFSET],
            options={"ftol": 1e-14, "gtol": 1e-10},
        )
        for start in starts
    ]
    return min(found, key=lambda each: each.fun).x


def _dispersion(probs: FloatArray, shares: FloatArray, counts: FloatArray) -> float:
    """Variance of shares around their probabilities, as a part of that of single events."""
    single = np.sum(counts * probs * (1 - probs))
    if single == 0:
        return 1.0
    # Shares that are probabilities to the last digit would let rounding decide.
    return max(float(np.sum(counts * np.square(shares - probs)) / single), 1e-9)


def fit_repeat_line(
    log_probs: ArrayLike, repeats: ArrayLike, weights: ArrayLike | None = None
) -> LogitLine:
    """The line of p(y|y,x): `fit_line`, but the same number for all where every pair repeats.

    >>> line = fit_repeat_line(np.log([0.98, 0.99, 0.999] * 100), np.ones(300))
    >>> np.exp(line(np.log([1e-9, 0.99]))).round(3)
    array([0.995, 0.997])

    Where whoever answers always repeats it, the chance of a repeat does not depend on the answer,
    and n repeats in n pairs say (n + 1)/(n + 2). No held-out answer is one that the model all but
    refuses to repeat, so no pair speaks against its numbers there; left alone, such an answer has a
    confidence far above 1.

    Args:
        log_probs: `(n,)`, log p(y1|y1,x).
        repeats: `(n,)`, whether y2 repeats y1, or the chance that it does.
        weights: `(n,)`, how often each row counts; once if None.
    """
    repeated = as_floats("repeats", repeats)
    if not len(repeated) or not np.all(repeated == 1):
        return fit_line(log_probs, repeated, weights)
    total = len(repeated) if weights is None else np.sum(as_floats("weights", weights))
    # As flat as lines may be: they are monotone.
    return LogitLine(float(np.exp(_LOG_SLOPE[0])), float(np.log(total + 1)))


@dataclass(frozen=True, slots=True)
class SequenceRecalibration:
    """A line for p(y|x), and one for p(y|y,x).

    >>> sure = SelfCheatScores(np.log([0.4]), np.log([0.4]))
    >>> correct = SequenceRecalibration(LogitLine(), LogitLine(1.0, 1.0), num_pairs=500)
    >>> correct(sure).epistemic_confidence.round(3)
    array([0.621])

    Attributes:
        first: for p(y|x).
        repeat: for p(y|y,x).
        num_pairs: how many held-out pairs they rest on.
        of_meanings: whether the events were about meanings, and so are the scores to correct.
    """

    first: LogitLine
    repeat: LogitLine
    num_pairs: int
    of_meanings: bool = False

    def __call__(self, scores: SelfCheatScores) -> SelfCheatScores:
        """The scores as the held-out pairs have them."""
        return SelfCheatScores(
            self.first(scores.log_marginal), self.repeat(scores.log_self_conditional)
        )

    def save(self, directory: Path | str) -> None:
        """Write it beside the weights of a model."""
        write_document(Path(directory, _FILE_NAME), _KIND, _FORMAT, asdict(self))

    @classmethod
    def load(cls, directory: Path | str) -> SequenceRecalibration | None:
        """Read what `save` wrote; None where there is nothing."""
        path = Path(directory, _FILE_NAME)
        if not path.is_file():
            return None
        content = read_document(path, _KIND, _FORMAT, what="a recalibration")
        return read_record(cls, content, str(path))


def wordings_only(found: SequenceRecalibration | None) -> SequenceRecalibration | None:
    """A recalibration that corrects the scores of wordings: not one about meanings."""
    return None if found is None or found.of_meanings else found


def _logit(logs: FloatArray) -> FloatArray:
    # Sums of token log-probabilities may end slightly above zero.
    logs = np.minimum(logs, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logits = logs - np.log(-np.expm1(logs))
    return np.clip(np.nan_to_num(logits, nan=0.0), -_FARTHEST_LOGIT, _FARTHEST_LOGIT)
