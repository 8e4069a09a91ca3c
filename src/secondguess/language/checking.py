"""Is a model calibrated on pairs? What held-out pairs can say about it.

The bounds of section 4.1 hold if it is, and no finite data can prove that it is; but a model that
is far from it shows. A `PairCheck` holds the observations; `signs` says in words which of them a
calibrated model would not show. The interval of a property rests on a calibration set instead and
needs no such assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secondguess._arrays import FloatArray, as_floats
from secondguess.language.formatting import AnyRow
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, score_tokens
from secondguess.theory.calibration.inflation import VarianceInflation, fit_variance_inflation
from secondguess.theory.records import Interval, SelfCheatScores

STANDARD_ERRORS = 4.0
"""How many standard errors count as a sign: fewer than one false alarm in 10,000."""

FAR_ABOVE_ONE = 1.1
SHARE_FAR_ABOVE_ONE = 0.05
ASYMMETRY_NATS = 0.5
# A calibrated model has no confidence above 1 and no asymmetry. A trained one scatters around: what
# it knows well has a confidence just above 1 half of the time. Beyond these limits it is a sign.


@dataclass(frozen=True, slots=True)
class PairCheck:
    """What held-out pairs show. Arrays have one entry a pair; log-likelihoods are in nats.

    >>> known_by_heart = PairCheck(
    ...     log_first=np.full(100, -5.0),
    ...     log_second=np.full(100, -5.0),
    ...     asymmetry=np.zeros(100),
    ...     scores=SelfCheatScores(np.full(100, -5.0), np.log(np.full(100, 0.99))),
    ...     repeated=np.arange(100) % 2 == 0,
    ... )
    >>> known_by_heart.signs
    ['responses repeat each other less often than p(y|y,x) says (-0.4900)']

    Attributes:
        log_first: log p(y1|x).
        log_second: log p(y2|y1,x).
        asymmetry: log p(y1, y2|x) - log p(y2, y1|x); zero for a calibrated model.
        scores: of y1.
        repeated: whether y2 equals y1.
    """

    log_first: FloatArray
    log_second: FloatArray
    asymmetry: FloatArray
    scores: SelfCheatScores
    repeated: np.ndarray

    def __len__(self) -> int:
        return len(self.log_first)

    @property
    def gain(self) -> tuple[float, float]:
        """Mean of log p(y2|y1,x) - log p(y1|x), >= 0 if calibrated, and its standard error."""
        return _mean_and_error(self.log_second - self.log_first)

    @property
    def root_mean_square_asymmetry(self) -> float:
        """The size of the asymmetry; its mean is near 0 for any model if the order is random."""
        return float(np.sqrt(np.mean(self.asymmetry**2)))

    @property
    def share_above_one(self) -> float:
        """The share of confidences above 1, by however little."""
        return float(np.mean(self.scores.log_ratio > 1e-9))

    @property
    def share_far_above_one(self) -> float:
        """The share of confidences above 1.1."""
        return float(np.mean(self.scores.log_ratio > np.log(FAR_ABOVE_ONE)))

    @property
    def repeat_excess(self) -> tuple[float, float]:
        """Mean of [y2 = y1] - p(y1|y1,x), and its standard error if calibrated.

        Given x and y1, a calibrated model's p(y1|y1,x) is the chance that y2 repeats y1: this is
        the number the confidence rests on, checked against what happened.
        """
        predicted = np.exp(np.minimum(self.scores.log_self_conditional, 0.0))
        error = np.sqrt(np.sum(predicted * (1 - predicted))) / len(self)
        return float(np.mean(self.repeated - predicted)), float(error)

    @property
    def signs(self) -> list[str]:
        """What a model calibrated on pairs would not show, in words; empty if nothing."""
        found = []
        gain, error = self.gain
        if gain < -STANDARD_ERRORS * error:
            found.append(
                f"a second response is harder to predict after the first one ({gain:+.3f} nats)"
            )
        excess, error = self.repeat_excess
        if abs(excess) > STANDARD_ERRORS * error + 1e-12:
            found.append(
                f"responses repeat each other {'more' if excess > 0 else 'less'} often than "
                f"p(y|y,x) says ({excess:+.4f})"
            )
        if self.share_far_above_one > SHARE_FAR_ABOVE_ONE:
            found.append(
                f"{self.share_far_above_one:.1%} of the confidences are above {FAR_ABOVE_ONE}"
            )
        if self.root_mean_square_asymmetry > ASYMMETRY_NATS:
            found.append(
                f"the order of two responses changes their probability by "
                f"{self.root_mean_square_asymmetry:.2f} nats"
            )
        return found


def check(
    model: PairLanguageModel,
    rows: Sequence[AnyRow],
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> PairCheck:
    """Look at held-out pairs that the model has not seen: the first two responses of each row.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> rows = [{"prompt": "flip", "responses": ["heads", second]} for second in ("tails", "heads")]
    >>> check(tiny_pair_model(), rows).repeated
    array([False,  True])
    """
    encoded = [model.formatter.encode(row) for row in rows]
    items = [(row.prompt, row.responses[0], row.responses[1]) for row in encoded]
    queries = [query for x, y1, y2 in items for query in ((x, y1, y2), (x, y2, y1), (x, y1, y1))]
    scored = score_tokens(model, queries, batch_size=batch_size)
    sums = np.array([[first.sum(), second.sum()] for first, second in scored]).reshape(-1, 3, 2)
    joint = sums.sum(axis=2)
    return PairCheck(
        log_first=sums[:, 0, 0],
        log_second=sums[:, 0, 1],
        asymmetry=joint[:, 0] - joint[:, 1],
        scores=SelfCheatScores(sums[:, 2, 0], sums[:, 2, 1]),
        repeated=np.array([y1 == y2 for _, y1, y2 in items]),
    )


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
        values: `(rows, k)` zeros and ones, k >= 2 responses a row.
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
    interval = inflation.interval([rate], [variance], miss_rate).clipped()
    return PropertyRate(rate, variance, inflation, interval, miss_rate)


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    return float(values.mean()), float(error)
