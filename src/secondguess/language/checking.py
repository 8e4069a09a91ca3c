"""Is a model calibrated on pairs? What held-out pairs can say about it.

The bounds of section 4.1 hold if it is, and no finite data can prove that it is; but a model that
is far from it shows. A control is a difference, one entry per pair, between what happened and what
the model itself would have drawn. If the model is calibrated, and the pairs are independent of each
other and of its training, both have one law, so every difference is as likely as its negative. Then
the sum of n differences exceeds z times the root of the sum of their squares with probability at
most exp(-z^2 / 2), whatever n and however heavy the tails: the false-alarm rates below need no
normality.

The model's noise is another matter. A calibrated model is symmetric and has no confidence above 1;
a trained one scatters around that, and its bounds cannot be finer than its scatter: `resolution`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.language.drawing import sample_seconds
from secondguess.language.formatting import AnyRow, EncodedRow
from secondguess.language.generation import sample
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration import wordings_only
from secondguess.language.scoring import (
    DEFAULT_BATCH_SIZE,
    Tokens,
    score_tokens,
)
from secondguess.theory.records import SelfCheatScores

ROOT_SUMS = 4.5
"""The z of a sign: a false alarm in at most exp(-z^2 / 2) < 4.1e-5 of checks, on each side."""

TOLERANCE = 0.01
"""Differences below this (in nats, or as a share) are no sign, however many pairs show them."""

_LOWEST, _WIDEST = -50.0, 20.0
# Impossible responses have a log-probability of -inf. Cutting differences keeps their symmetry.


class Verdict(StrEnum):
    """What a model is, by its controls; false-alarm rates are those of a calibrated model."""

    NO_SIGN = "no sign against calibration on pairs"
    BY_HEART = "learned its pairs by heart"
    """One control, one side: below 4.1e-5."""
    TOO_MUCH = "cheats too much"
    """Three controls, one side: below 1.3e-4."""
    NEVER = "never cheats"
    """Three controls, one side, together with the next: below 1.3e-4."""
    TOO_LITTLE = "cheats too little"
    INCOHERENT = "contradicts itself"
    """Two controls, three sides: below 1.3e-4."""


@dataclass(frozen=True, slots=True)
class Control:
    """The mean of a difference that is 0 if calibrated, and how far from 0 it may be by chance.

    >>> Control.of(np.array([0.2, -0.1, 0.1, -0.2])).side
    0
    >>> Control.of(np.full(100, 0.3)).side
    1

    Attributes:
        mean: over the pairs.
        error: the root of the mean square, over the root of n.
        allowed: means up to this, on either side, are no sign.
    """

    mean: float
    error: float
    allowed: float

    @classmethod
    def of(cls, differences: FloatArray) -> Control:
        """The control of differences whose sign is random if the model is calibrated."""
        cut = differences.clip(-_WIDEST, _WIDEST)
        error = float(np.sqrt(np.sum(cut**2)) / len(cut))
        return cls(float(cut.mean()), error, TOLERANCE + ROOT_SUMS * error)

    @property
    def side(self) -> int:
        """-1 or 1 where the mean is a sign, 0 where it is not."""
        return int(np.sign(self.mean)) if abs(self.mean) > self.allowed else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCheck:
    """What held-out pairs show. Arrays have one entry per pair; log-likelihoods are in nats.

    Attributes:
        log_first: log p(y1|x).
        log_second: log p(y2|y1,x).
        log_second_alone: log p(y2|x).
        log_second_after_other: log p(y2|y,x), where y is the y1 of another row.
        asymmetry: log p(y1, y2|x) - log p(y2, y1|x); zero for a calibrated model.
        scores: of y1.
        repeated: whether y2 equals y1.
        overlap: the share of y2's distinct tokens that y1 has.
        drawn_log_first: log p(y|x) of a y drawn from p(y|x).
        drawn_gain: log p(y|y1,x) - log p(y|x) of a y drawn from p(y|y1,x).
        drawn_overlap: the share of that y's distinct tokens that y1 has.
        drawn_log_second: log p(z|x) of a z drawn from p(z|y,x), where y is drawn from p(y|x).
        guessed: whether the y drawn from p(y|x) is y1.
        log_guess: log p(y|x) of that y, as answers have it: recalibrated, if the model was.
        recalibrated: whether `scores` and `log_guess` are.
    """

    log_first: FloatArray
    log_second: FloatArray
    log_second_alone: FloatArray
    log_second_after_other: FloatArray
    asymmetry: FloatArray
    scores: SelfCheatScores
    repeated: np.ndarray
    overlap: FloatArray
    drawn_log_first: FloatArray
    drawn_gain: FloatArray
    drawn_overlap: FloatArray
    drawn_log_second: FloatArray
    guessed: np.ndarray
    log_guess: FloatArray
    recalibrated: bool

    def __len__(self) -> int:
        return len(self.log_first)

    @property
    def gain(self) -> FloatArray:
        """How much peeking at y1 helped with y2, in nats; 0 on average if it never looks."""
        return _nats(self.log_second) - _nats(self.log_second_alone)

    @property
    def surprise(self) -> Control:
        """How much likelier y1 is than the model's own draws; negative if it is overconfident."""
        return Control.of(_nats(self.log_first) - _nats(self.drawn_log_first))

    @property
    def gain_excess(self) -> Control:
        """The gain of peeking, less the gain that the model's own second guesses imply."""
        return Control.of(self.gain - self.drawn_gain)

    @property
    def overlap_excess(self) -> Control:
        """How much more y2 has in common with y1 than the model's own second guesses have.

        A model that never looks cannot pass where y1 tells of y2, exact repeats or not.
        """
        return Control.of(self.overlap - self.drawn_overlap)

    @property
    def repeat_excess(self) -> Control:
        """[y2 = y1] - p(y1|y1,x): one number that the confidence rests on, against what happened.

        What is allowed is Bernstein's bound, for the same false-alarm rate as other controls.
        """
        return _event_control(self.repeated, self.scores.log_self_conditional)

    @property
    def guess_excess(self) -> Control:
        """[y = y1] - p(y|x) of a y drawn from it: the other number that confidence rests on."""
        return _event_control(self.guessed, self.log_guess)

    @property
    def marginal_difference(self) -> Control:
        """Whether second guesses have the law of first ones, as sum p(y1|x) p(y2|y1,x) must."""
        return Control.of(_nats(self.drawn_log_second) - _nats(self.drawn_log_first))

    @property
    def use_of_first(self) -> Control:
        """How much better y1 helps with y2 than the y1 of another row; 0 if it never looks."""
        return Control.of(_nats(self.log_second) - _nats(self.log_second_after_other))

    @property
    def root_mean_square_asymmetry(self) -> float:
        """The size of the asymmetry; its mean is near 0 for any model if the order is random."""
        return float(np.sqrt(np.mean(self.asymmetry**2)))

    @property
    def gain_of_both_orders(self) -> float:
        """What averaging both orders buys, in nats per pair (`score_pairs(both_orders=True)`)."""
        # log((p12 + p21) / 2) - (log p12 + log p21) / 2 = log cosh(asymmetry / 2)
        half = np.abs(self.asymmetry.clip(-_WIDEST, _WIDEST)) / 2
        return float(np.mean(half + np.log1p(np.exp(-2 * half)) - np.log(2)))

    @property
    def share_above_one(self) -> float:
        """The share of confidences above 1, by however little."""
        return float(np.mean(self.scores.log_ratio > 1e-9))

    @property
    def verdict(self) -> Verdict:
        """The name of what the controls show, the graver fault first.

        Of a recalibrated model only the two numbers that its confidences rest on are judged: the
        others are as they were, and nothing rests on them.
        """
        if self.recalibrated:
            if self.guess_excess.side:
                return Verdict.INCOHERENT
            return {-1: Verdict.TOO_MUCH, 0: Verdict.NO_SIGN, 1: Verdict.TOO_LITTLE}[
                self.repeat_excess.side
            ]
        sides = {self.gain_excess.side, self.repeat_excess.side, self.overlap_excess.side}
        if self.surprise.side < 0:
            return Verdict.BY_HEART
        if -1 in sides:
            return Verdict.TOO_MUCH
        if 1 in sides:
            return Verdict.TOO_LITTLE if self.use_of_first.side > 0 else Verdict.NEVER
        if self.marginal_difference.side or self.surprise.side:
            return Verdict.INCOHERENT
        return Verdict.NO_SIGN

    @property
    def resolution(self) -> float:
        """The smallest bound that the model's own noise allows to mean anything, in [0, 1].

        The noise of a response is what a calibrated model would not show: its confidence above 1,
        or its asymmetry (over the root of 2, because two orders are compared) as a change of the
        confidence, whichever is larger, and 1 at most. The resolution is its root mean square over
        all pairs. All, because responses chosen for a confidence near 1 show little noise by that
        choice. 1 means that no bound of this model says anything.
        """
        above = np.expm1(self.scores.log_ratio.clip(0.0, np.log(2)))
        turned = -np.expm1(-np.abs(self.asymmetry) / np.sqrt(2))
        return float(np.sqrt(np.mean(np.maximum(above, turned) ** 2)))


def check(
    model: PairLanguageModel,
    rows: Sequence[AnyRow],
    *,
    rng: np.random.Generator,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> PairCheck:
    """Look at held-out pairs that the model has not seen: the first two responses of each row.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> rows = [{"prompt": "flip", "responses": ["heads", second]} for second in ("tails", "heads")]
    >>> check(tiny_pair_model(), rows, rng=np.random.default_rng(0)).repeated
    array([False,  True])

    Args:
        model: a pair model.
        rows: two or more independent responses each; rows must be independent of each other.
        rng: of the three responses that are drawn per row, and of the other rows' y1.
        batch_size: how many sequences are in one pass.
    """
    if len(rows) < 2:
        raise ValueError(f"there are {len(rows)} pair(s); expected at least 2.")
    encoded = [model.formatter.encode(row) for row in rows]
    items = [(row.prompt, row.responses[0], row.responses[1]) for row in encoded]
    circle = rng.permutation(len(items))
    other = np.empty_like(circle)
    other[circle] = np.roll(circle, 1)  # nobody gets their own
    first = [each.tokens for each in sample(model, encoded, rng=rng, batch_size=batch_size)]
    begun = [EncodedRow(x, (y,)) for (x, _, _), y in zip(items, first, strict=True)]
    drawn_second = sample_seconds(model, begun, rng=rng, batch_size=batch_size)
    drawn = sample_seconds(model, encoded, rng=rng, batch_size=batch_size)
    queries = [
        query
        for row, (x, y1, y2) in enumerate(items)
        for query in (
            (x, y1, y2),
            (x, y2, y1),
            (x, y1, y1),
            (x, items[other[row]][1], y2),
            (x, first[row], drawn_second[row][0]),
            (x, drawn[row][0], y1),
            (x, drawn_second[row][0], y1),
            (x, first[row], first[row]),
        )
    ]
    scored = score_tokens(model, queries, batch_size=batch_size)
    sums = np.array([[one.sum(), two.sum()] for one, two in scored]).reshape(len(items), -1, 2)
    with np.errstate(invalid="ignore"):
        asymmetry = sums[:, 0].sum(axis=1) - sums[:, 1].sum(axis=1)
    recalibration = wordings_only(model.recalibration)
    own, guesses = (SelfCheatScores(sums[:, row, 0], sums[:, row, 1]) for row in (2, 7))
    if recalibration is not None:
        own, guesses = recalibration(own), recalibration(guesses)
    drawn_log_probs = np.array([log_probs.sum() for _, log_probs in drawn])
    return PairCheck(
        log_first=sums[:, 0, 0],
        log_second=sums[:, 0, 1],
        log_second_alone=sums[:, 1, 0],
        log_second_after_other=sums[:, 3, 1],
        asymmetry=np.nan_to_num(asymmetry, nan=0.0),
        scores=own,
        repeated=np.array([y1 == y2 for _, y1, y2 in items]),
        overlap=np.array([_overlap(y1, y2) for _, y1, y2 in items]),
        drawn_log_first=sums[:, 4, 0],
        drawn_gain=_nats(drawn_log_probs) - _nats(sums[:, 5, 0]),
        drawn_overlap=np.array(
            [_overlap(y1, y) for (_, y1, _), (y, _) in zip(items, drawn, strict=True)]
        ),
        drawn_log_second=sums[:, 6, 0],
        guessed=np.array([y == y1 for y, (_, y1, _) in zip(first, items, strict=True)]),
        log_guess=guesses.log_marginal,
        recalibrated=recalibration is not None,
    )


def _event_control(happened: np.ndarray, log_probs: FloatArray) -> Control:
    """The mean of [event] - p(event), with Bernstein's bound on it."""
    predicted = np.exp(np.minimum(log_probs, 0.0))
    spread, log_rate = float(np.sum(predicted * (1 - predicted))), ROOT_SUMS**2 / 2
    reach = log_rate / 3 + np.sqrt(log_rate**2 / 9 + 2 * spread * log_rate)
    return Control(
        mean=float(np.mean(happened - predicted)),
        error=float(np.sqrt(spread) / len(predicted)),
        allowed=TOLERANCE + float(reach) / len(predicted),
    )


def _overlap(first: Tokens, second: Tokens) -> float:
    words = set(second[:-1])
    return len(words & set(first[:-1])) / max(1, len(words))


def _nats(log_probs: FloatArray) -> FloatArray:
    return np.maximum(log_probs, _LOWEST)
