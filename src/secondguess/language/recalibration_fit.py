"""Which lines held-out pairs ask for: the fit of a `SequenceRecalibration`.

That y2 repeats y1 is an event, which corrects p(y|y,x). And if p(y|x) were right, nothing could
tell people's responses from those that the model draws: how far p(y|x) and C tell them apart is how
far they are off. Axes: one row per prompt, one column per response to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit

from secondguess._arrays import FloatArray, as_floats, fail_at, same_shape
from secondguess.language.logit_lines import (
    LOG_SLOPES,
    LogitLine,
    log_odds,
    most_probable_lines,
    moved_from,
)
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.theory.records import SelfCheatScores

RULE = "given beside drawn"
"""How lines are found; experiments do not use parts again that rest on another rule."""
_ERROR_OF_REPEATS = 0.03
"""Scale of the prior of p(y|y,x). A network words well what it has just read, and repeats are rare:
with a wider prior their noise enters every confidence (digits of pi)."""
_ERROR_OF_FIRSTS = 0.1
"""Scale of the prior of p(y|x) and of C."""
_LEAST_DISPERSION = 1e-9
"""Shares that are probabilities to the last digit would let rounding decide."""
_LEAST_TOLD = 0.01
"""Rows tell nothing about a combination of lines if they tell a hundred times less of it than of
another."""


def fit_recalibration(
    given: SelfCheatScores,
    repeated: ArrayLike,
    drawn: SelfCheatScores,
    *,
    given_weights: ArrayLike | None = None,
    drawn_weights: ArrayLike | None = None,
    of_meanings: bool = False,
    are_shares: bool = False,
) -> SequenceRecalibration:
    """The lines that held-out responses ask for, beside responses that the model draws.

    >>> people = SelfCheatScores(np.log([[0.9], [0.8]]), np.log([[0.9], [0.9]]))
    >>> fit_recalibration(people, [[1.0], [1.0]], people[:1])
    Traceback (most recent call last):
    ...
    ValueError: there are 2 rows of given responses and 1 of drawn ones; expected as many.

    Args:
        given: `(n, k)`, scores of the responses that people gave to each of n prompts.
        repeated: `(n, k)`, whether another response to the prompt is the same, or the share of
            those that are.
        drawn: `(n, m)`, scores of responses that the model drew.
        given_weights: `(n, k)`, how much of its row each given response is; 1/k each if None.
        drawn_weights: `(n, m)`, the same of those that were drawn.
        of_meanings: whether the responses are meanings.
        are_shares: whether weights are the shares of many people and the probabilities of the
            model, which say more than as many single responses do.
    """
    people = _weights("given_weights", given_weights, given.log_marginal)
    model = _weights("drawn_weights", drawn_weights, drawn.log_marginal)
    if len(people) != len(model):
        raise ValueError(
            f"there are {len(people)} rows of given responses and {len(model)} of drawn ones; "
            f"expected as many."
        )
    single = 0.0 if are_shares else 1 / max(1, people.shape[1] + model.shape[1])
    # k responses of a row are k/2 pairs, each of which repeats or does not.
    pairs = 1.0 if given_weights is not None else max(1.0, people.shape[1] / 2)
    repeat = fit_repeat_line(given.log_self_conditional, repeated, people * pairs)
    first, confidence = fit_first_lines(
        replace(given, log_self_conditional=repeat(given.log_self_conditional)),
        replace(drawn, log_self_conditional=repeat(drawn.log_self_conditional)),
        people,
        model,
        least_dispersion=single,
    )
    return SequenceRecalibration(
        first, repeat, num_pairs=len(people), of_meanings=of_meanings, confidence=confidence
    )


def fit_first_lines(
    given: SelfCheatScores,
    drawn: SelfCheatScores,
    given_weights: FloatArray,
    drawn_weights: FloatArray,
    *,
    least_dispersion: float = 0.0,
) -> tuple[LogitLine, LogitLine]:
    """The lines of p(y|x) and of C that best tell given responses from drawn ones.

    Whoever is asked says one of two words, always the same one; the model is too cautious.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.uniform(0.05, 0.95, (4000, 1))
    >>> said = 1 / (1 + np.sqrt(1 / true - 1))
    >>> def scores(probs):
    ...     log_probs = np.log(np.where(rng.random(probs.shape) < probs, said, 1 - said))
    ...     return SelfCheatScores(log_probs, np.zeros_like(log_probs))
    >>> once = np.ones((4000, 1))
    >>> first, confidence = fit_first_lines(scores(true), scores(said), once, once)
    >>> 1.8 < first.slope * confidence.slope < 2.2
    True

    A corrected p'(y|x) says that people give y p'/p times as often as the model does. So log p'/p
    is the log-odds that y was given and not drawn, one of each at a time, and the lines are fitted
    as a logistic regression is. It needs no response to be the same as another, so it works where
    wordings hardly ever recur.

    Responses to the same prompt are alike, and many of a row make it less noisy: rows count by how
    much they vary (as in a composite likelihood), not by how many responses they hold.

    Args:
        given: `(n, k)`, scores of what people gave to each of n prompts.
        drawn: `(n, m)`, scores of what the model drew.
        given_weights: `(n, k)`, how much of its row each response is.
        drawn_weights: `(n, m)`, as above.
        least_dispersion: what rows vary at least, beside one response given and one drawn. A few
            rows that the likeliest lines explain completely seem not to vary at all.
    """
    sides = [_Side.of(given, given_weights, sign=-1), _Side.of(drawn, drawn_weights, sign=1)]
    counted = np.any([side.weights.any(axis=1) for side in sides], axis=0)
    num_rows = int(counted.sum())
    if not num_rows:
        return LogitLine(), LogitLine()
    for side, who in zip(sides, ("that people gave", "that the model drew"), strict=True):
        if not side.weights.any():
            raise ValueError(
                f"no response {who} has a probability above 0; expected some, to be told from "
                f"the others. Train the model further, or on responses like these."
            )
    centres = [
        _centre([(log_odds(logs), side.weights) for side, logs in zip(sides, each, strict=True)])
        for each in (
            [side.log_marginal for side in sides],
            [-np.abs(side.log_marginal - side.repeat) for side in sides],
        )
    ]

    def summed(numbers: np.ndarray) -> tuple[FloatArray, FloatArray, FloatArray]:
        found = [side.losses(centres, numbers) for side in sides]
        losses, slopes, curves = (np.sum(each, axis=0) for each in zip(*found, strict=True))
        return losses, slopes, curves

    def mean_loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        losses, slopes, _ = summed(numbers)
        return float(losses.sum()) / num_rows, slopes.sum(axis=0) / num_rows

    def dispersion(numbers: np.ndarray) -> float:
        _, slopes, curvature = summed(numbers)
        around = slopes[counted] - slopes[counted].mean(axis=0)
        # Where p(y|y,x) is one number, the two lines do the same: rows tell their sum alone.
        sizes, directions = np.linalg.eigh(curvature)
        told = sizes > _LEAST_TOLD * sizes.max()
        if not told.any():
            return 1.0
        spread = np.sum(np.square(around @ directions[:, told]), axis=0) / sizes[told]
        return max(float(spread.mean()), least_dispersion, _LEAST_DISPERSION)

    first, confidence = most_probable_lines(
        mean_loss,
        centres=centres,
        num_rows=num_rows,
        dispersion=dispersion,
        typical_error=_ERROR_OF_FIRSTS,
    )
    return first, confidence


def _centre(sides: Sequence[tuple[FloatArray, FloatArray]]) -> float:
    """Where a line's offset and slope tell different things, at the identity.

    Args:
        sides: logits and weights of what was given, and of what was drawn.
    """
    tells = [(weights * expit(-logits) ** 2).ravel() for logits, weights in sides]
    logits = np.concatenate([each.ravel() for each, _ in sides])
    return float(np.average(logits, weights=np.concatenate(tells) + 1e-300))


@dataclass(frozen=True, slots=True)
class _Side:
    """Given or drawn responses, in the logistic regression that tells the two apart.

    Attributes:
        weights: `(n, k)`, 0 for responses without a confidence: impossible ones.
        log_marginal: `(n, k)`, log p(y|x).
        repeat: `(n, k)`, log p(y|y,x).
        sign: -1 for what was given, 1 for what was drawn.
    """

    weights: FloatArray
    log_marginal: FloatArray
    repeat: FloatArray
    sign: float

    @classmethod
    def of(cls, scores: SelfCheatScores, weights: FloatArray, *, sign: float) -> _Side:
        possible = np.isfinite(scores.log_ratio)
        return cls(
            np.where(possible, weights, 0.0),
            np.where(possible, np.minimum(scores.log_marginal, 0.0), -1.0),
            np.where(possible, scores.log_self_conditional, -1.0),
            sign,
        )

    def losses(
        self, centres: Sequence[float], numbers: np.ndarray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Losses `(n,)`, their derivatives `(n, 4)` and their curvature `(4, 4)`."""
        first = moved_from(centres[0], numbers[:2], log_odds(self.log_marginal))
        log_confidence = log_expit(first) - self.repeat
        below = -np.sign(log_confidence)
        logit = log_odds(-np.abs(log_confidence))
        confidence = moved_from(centres[1], numbers[2:], logit)
        log_ratio = self.repeat + below * log_expit(confidence) - self.log_marginal
        # d log C' / d log C = slope (1 - C') / (1 - C), on both sides of 1.
        onward = np.exp(numbers[2] + log_expit(-confidence) - log_expit(-logit))
        by_first, by_confidence = onward * expit(-first), below * expit(-confidence)
        by_number = np.stack(
            [
                by_first * (first - centres[0] - numbers[1]),
                by_first,
                by_confidence * (confidence - centres[1] - numbers[3]),
                by_confidence,
            ],
            axis=-1,
        )
        wrong = expit(self.sign * log_ratio)
        losses = -self.weights * log_expit(-self.sign * log_ratio)
        slopes = self.sign * (self.weights * wrong)[..., None] * by_number
        curves = self.weights * wrong * (1 - wrong)
        return (
            losses.sum(axis=1),
            slopes.sum(axis=1),
            np.einsum("ij,ijk,ijl->kl", curves, by_number, by_number),
        )


def fit_repeat_line(
    log_probs: ArrayLike, repeats: ArrayLike, weights: ArrayLike | None = None
) -> LogitLine:
    """The line of p(y|y,x) under which repeats are most probable.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.uniform(0.1, 0.9, 4000)
    >>> too_sure = 1 / (1 + np.exp(-2 * np.log(true / (1 - true))))
    >>> line = fit_repeat_line(np.log(too_sure), rng.random(4000) < true)
    >>> round(line.slope, 1), abs(line.offset) < 0.1
    (0.5, True)

    Where whoever answers always repeats it, the chance of a repeat does not depend on the answer,
    and n repeats in n pairs say (n + 1)/(n + 2). No held-out answer is one that the model all but
    refuses to repeat, so no pair speaks against its numbers there; left alone, such an answer has a
    confidence far above 1.

    >>> line = fit_repeat_line(np.log([0.98, 0.99, 0.999] * 100), np.ones(300))
    >>> np.exp(line(np.log([1e-9, 0.99]))).round(3)
    array([0.995, 0.997])

    Chances other than 0 and 1 are no single observations. The shares of many people vary less
    around a probability than one answer does, and count by as much more: the likelihood is divided
    by their dispersion.

    Args:
        log_probs: log p(y1|y1,x), of any shape. What the model held to be impossible does not
            count: no line changes it.
        repeats: whether y2 repeats y1, or the chance that it does.
        weights: how often each counts; once if None.
    """
    logs = as_floats("log_probs", log_probs, allow_infinite=True)
    happened = as_floats("repeats", repeats)
    same_shape(log_probs=logs, repeats=happened)
    fail_at("repeats", (happened < 0) | (happened > 1), happened, "a chance between 0 and 1")
    counts = np.ones_like(logs) if weights is None else as_floats("weights", weights)
    counted = (counts > 0) & ~np.isneginf(logs)
    if not counted.any():
        return LogitLine()
    if np.all(happened[counts > 0] == 1):
        # As flat as lines may be: they are monotone.
        return LogitLine(float(np.exp(LOG_SLOPES[0])), float(np.log(counts.sum() + 1)))
    logits, happened, counts = log_odds(logs[counted]), happened[counted], counts[counted]
    total = float(counts.sum())
    # Where an event tells most about the offset, it tells nothing about the slope.
    centre = float(np.average(logits, weights=counts * expit(logits) * expit(-logits)))

    def mean_loss(line: np.ndarray) -> tuple[float, np.ndarray]:
        moved = moved_from(centre, line, logits)
        losses = -happened * log_expit(moved) - (1 - happened) * log_expit(-moved)
        errors = counts * (expit(moved) - happened) / total
        slopes = np.array([np.sum(errors * (moved - centre - line[1])), np.sum(errors)])
        return float(np.sum(counts * losses) / total), slopes

    are_single = bool(np.all((happened == 0) | (happened == 1)))
    [line] = most_probable_lines(
        mean_loss,
        centres=[centre],
        num_rows=total,
        dispersion=lambda line: (
            1.0
            if are_single
            else _dispersion(expit(moved_from(centre, line, logits)), happened, counts)
        ),
        typical_error=_ERROR_OF_REPEATS,
    )
    return line


def _dispersion(probs: FloatArray, shares: FloatArray, counts: FloatArray) -> float:
    """Variance of shares around their probabilities, as a part of that of single events."""
    single = np.sum(counts * probs * (1 - probs))
    if single == 0:
        return 1.0
    return max(float(np.sum(counts * np.square(shares - probs)) / single), _LEAST_DISPERSION)


def _weights(name: str, weights: ArrayLike | None, scores: FloatArray) -> FloatArray:
    if scores.ndim != 2:
        raise ValueError(
            f"scores have the shape {scores.shape}; expected a row per prompt and a column per "
            f"response."
        )
    if weights is None:
        return np.full(scores.shape, 1 / max(1, scores.shape[1]))
    found = as_floats(name, weights)
    same_shape(**{name: found, "scores": scores})
    fail_at(name, found < 0, found, "weights of 0 or more")
    return found
