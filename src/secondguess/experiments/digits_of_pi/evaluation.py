"""What a trained model says about digits of pi, and whether it is true (appendix F.3.3).

Two ways to look, with the same metrics: *samples*, as in the paper, and *exact* scores of all 441
sentences, which have no sampling noise. Axes: a row per offset, a column per sample or sentence;
`weights` say how much each entry counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.pairs import PiPairs
from secondguess.experiments.digits_of_pi.questions import digits_at
from secondguess.language.generation import Sampling, sample
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import ScoredResponse
from secondguess.theory.records import SelfCheatScores

MALFORMED = -1
OUTLIER_CONFIDENCE = 1.5
"""Confidences above this are counted apart: no calibrated model has them."""

SAMPLING = Sampling(min_probability=0.005)
"""How the paper samples: at temperature 1, tokens below 0.005 cut."""


@dataclass(frozen=True, slots=True, eq=False)
class Statements:
    """Statements about digits, their scores, and whether each is true.

    Attributes:
        offsets: `(n,)`, the digits asked about.
        columns: `(n, m)`, each statement's column in the grammar, or MALFORMED.
        num_tokens: `(n, m)`, tokens of each statement, its end included.
        scores: `(n, m)`, log p(y|x) and log p(y|y,x).
        weights: `(n, m)`, rows summing to at most one: 1 / m for samples, p(y|x) for exact scores.
    """

    offsets: IntArray
    columns: IntArray
    num_tokens: IntArray
    scores: SelfCheatScores
    weights: FloatArray

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Statements:
        """What `arrays` had given."""
        return cls(
            offsets=arrays["offsets"],
            columns=arrays["columns"].astype(np.int64),
            num_tokens=arrays["num_tokens"].astype(np.int64),
            scores=SelfCheatScores(
                arrays["log_marginal"].astype(np.float64),
                arrays["log_self_conditional"].astype(np.float64),
            ),
            weights=arrays["weights"].astype(np.float64),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it in small types, to be kept in a file."""
        return {
            "offsets": self.offsets,
            "columns": self.columns.astype(np.int16),
            "num_tokens": self.num_tokens.astype(np.int8),
            "log_marginal": self.scores.log_marginal.astype(np.float32),
            "log_self_conditional": self.scores.log_self_conditional.astype(np.float32),
            "weights": self.weights.astype(np.float32),
        }

    @property
    def is_true(self) -> np.ndarray:
        """`(n, m)`: whether the grammar can say it about that digit."""
        table = grammar().probs > 0
        well_formed = self.columns != MALFORMED
        return well_formed & table[digits_at(self.offsets)[:, None], self.columns]

    @property
    def meanings(self) -> IntArray:
        """`(n, m)`: what each statement says, MALFORMED if nothing."""
        return np.where(self.columns == MALFORMED, MALFORMED, grammar().meanings[self.columns])

    @property
    def share_correct(self) -> FloatArray:
        """`(n,)`: how much of the weight of each digit is on true statements."""
        return (self.weights * self.is_true).sum(axis=1)


def exact_statements(model: PairLanguageModel, pairs: PiPairs, offsets: IntArray) -> Statements:
    """All 441 sentences about each digit, weighted by the model's own p(y|x)."""
    shape = (len(offsets), len(grammar().sentences))
    columns = np.broadcast_to(np.arange(shape[1]), shape)
    tokens = pairs.sentence_tokens[columns.ravel()]
    log_marginal, log_self_conditional = pairs.layout.log_probs(
        model.network,
        np.repeat(pairs.prompt_tokens[offsets], shape[1], axis=0),
        tokens,
        tokens,
    )
    scores = SelfCheatScores(log_marginal.reshape(shape), log_self_conditional.reshape(shape))
    return Statements(
        offsets=offsets,
        columns=columns,
        num_tokens=_num_tokens(pairs)[columns],
        scores=scores,
        weights=np.exp(scores.log_marginal),
    )


def draw_statements(
    model: PairLanguageModel,
    pairs: PiPairs,
    offsets: IntArray,
    *,
    num_samples: int,
    rng: np.random.Generator,
    batch_size: int = 2400,
) -> list[ScoredResponse]:
    """Independent samples of p(y1|x), `num_samples` about each digit, one digit after the other."""
    prompts = [tuple(pairs.prompt_tokens[offset].tolist()) for offset in offsets]
    separator = len(pairs.layout.formatter.separator)
    # `sample` adds the separator itself.
    asked = [prompt[: len(prompt) - separator] for prompt in prompts for _ in range(num_samples)]
    return sample(model, asked, rng=rng, sampling=SAMPLING, batch_size=batch_size)


def sampled_statements(offsets: IntArray, drawn: Sequence[ScoredResponse]) -> Statements:
    """What was drawn by `draw_statements`, all with equal weight."""
    shape = (len(offsets), len(drawn) // len(offsets))
    return Statements(
        offsets=offsets,
        columns=columns_of([each.text for each in drawn]).reshape(shape),
        num_tokens=np.array([len(each.tokens) for each in drawn]).reshape(shape),
        scores=SelfCheatScores(
            np.array([each.log_marginal.sum() for each in drawn]).reshape(shape),
            np.array([each.log_self_conditional.sum() for each in drawn]).reshape(shape),
        ),
        weights=np.full(shape, 1 / shape[1]),
    )


def log_probs_after(
    model: PairLanguageModel, pairs: PiPairs, offset: int, first: Sequence[int]
) -> FloatArray:
    """`(441,)`: log p(y2|y1,x) of every sentence about a digit, after the tokens of one y1."""
    sentences, prompt = pairs.sentence_tokens, pairs.prompt_tokens[offset]
    y1 = np.full(sentences.shape[1], pairs.layout.formatter.end)
    y1[: len(first)] = first
    _, log_conditional = pairs.layout.log_probs(
        model.network,
        np.broadcast_to(prompt, (len(sentences), len(prompt))),
        np.broadcast_to(y1, sentences.shape),
        sentences,
    )
    return log_conditional


def columns_of(texts: Sequence[str]) -> IntArray:
    """The column of each text in the grammar, MALFORMED for what nobody would say.

    >>> columns_of(["It's zero", "It's spelled with 9 letters"])
    array([ 0, -1])
    """
    return np.array([grammar().index.get(text, MALFORMED) for text in texts], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityBins:
    """Statements sorted by confidence and cut into bins of equal weight; all arrays `(bins,)`.

    Where single statements weigh more than a bin, some bins are empty, and their means NaN.
    """

    confidence: FloatArray
    hallucination_rate: FloatArray
    weight: FloatArray


def reliability_bins(statements: Statements, *, num_bins: int = 10) -> ReliabilityBins:
    """Mean confidence and hallucination rate by confidence, outliers left out."""
    confidence, wrong, weights = _flat(statements, confidence_up_to=OUTLIER_CONFIDENCE)
    order = np.argsort(confidence, kind="stable")
    # Bin by the middle of each entry's stretch of the cumulative weight.
    middle = np.cumsum(weights[order]) - weights[order] / 2
    index = np.minimum((middle / weights.sum() * num_bins).astype(int), num_bins - 1)
    total = np.bincount(index, weights[order], minlength=num_bins)

    def mean(values: FloatArray) -> FloatArray:
        summed = np.bincount(index, (values * weights)[order], minlength=num_bins)
        return np.divide(summed, total, out=np.full(num_bins, np.nan), where=total > 0)

    return ReliabilityBins(mean(confidence), mean(wrong), total / weights.sum())


@dataclass(frozen=True, slots=True)
class OverallBound:
    """The hallucination rate beside what the confidences promised, outliers apart.

    Attributes:
        hallucination_rate: of statements with confidence up to 1.5.
        promised_rate: 1 minus the mean confidence of those, confidences clipped at 1.
        standard_error: of the difference, digits being the independent unit.
        outlier_share: the weight of statements with confidence above 1.5.
        outlier_hallucination_rate: how many of those are false.
        outlier_malformed_share: how many of those are no sentences at all.
    """

    hallucination_rate: float
    promised_rate: float
    standard_error: float
    outlier_share: float
    outlier_hallucination_rate: float
    outlier_malformed_share: float


def overall_bound(statements: Statements) -> OverallBound:
    """Theorem 4.5 on average over everything that the model said."""
    confidence = statements.scores.epistemic_confidence
    wrong = ~statements.is_true
    is_outlier = confidence > OUTLIER_CONFIDENCE
    weights = np.where(is_outlier, 0.0, statements.weights)
    promised = 1 - np.minimum(confidence, 1.0)
    excess = (weights * (wrong - promised)).sum(axis=1)
    outlier_weights = np.where(is_outlier, statements.weights, 0.0)
    outlier_total = outlier_weights.sum()

    def among_outliers(flag: np.ndarray) -> float:
        return float((outlier_weights * flag).sum() / outlier_total) if outlier_total else 0.0

    return OverallBound(
        hallucination_rate=float((weights * wrong).sum() / weights.sum()),
        promised_rate=float((weights * promised).sum() / weights.sum()),
        standard_error=float(excess.std(ddof=1) / np.sqrt(len(excess)) / weights.sum(1).mean()),
        outlier_share=float(outlier_total / statements.weights.sum()),
        outlier_hallucination_rate=among_outliers(wrong),
        outlier_malformed_share=among_outliers(statements.columns == MALFORMED),
    )


def known_digits(statements: Statements, *, share: float = 0.95) -> int:
    """The largest N such that a share of at least `share` of all about the first N digits is true.

    The rows must be the offsets 1, 2, 3 and so on.
    """
    running = np.cumsum(statements.share_correct) / np.arange(1, len(statements.offsets) + 1)
    return int(np.flatnonzero(running >= share)[-1]) + 1 if (running >= share).any() else 0


def calibration_metrics(statements: Statements) -> dict[str, Any]:
    """What is known, and how well confidences fit: over everything and by decile."""
    bins = reliability_bins(statements)
    return {
        "known_digits": known_digits(statements),
        "correct_among_first_250": float(statements.share_correct[:250].mean()),
        "correct": float(statements.share_correct.mean()),
        "overall": asdict(overall_bound(statements)),
        "decile_confidence": bins.confidence.tolist(),
        "decile_hallucination_rate": bins.hallucination_rate.tolist(),
    }


def _flat(
    statements: Statements, *, confidence_up_to: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    confidence = statements.scores.epistemic_confidence.ravel()
    kept = (confidence <= confidence_up_to) & (statements.weights.ravel() > 0)
    wrong = (~statements.is_true).ravel().astype(np.float64)
    return confidence[kept], wrong[kept], statements.weights.ravel()[kept]


def _num_tokens(pairs: PiPairs) -> IntArray:
    return 1 + (pairs.sentence_tokens != pairs.layout.formatter.end).sum(axis=1)
