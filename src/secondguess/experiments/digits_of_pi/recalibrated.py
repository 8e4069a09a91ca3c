"""Confidences recalibrated on held-out pairs, and what that changes.

The lines are those of `secondguess.language.recalibration_fit`: of held-out pairs about each digit,
beside as many sentences that the model draws. No digit is corrected by pairs about itself: those
about even places correct the odd ones, and the other way round. What the model says stays as it is;
only its scores change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from secondguess._arrays import IntArray
from secondguess.experiments.digits_of_pi.evaluation import (
    Statements,
    calibration_metrics,
    overall_bound,
)
from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.questions import digits_at
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.language.recalibration_fit import fit_recalibration
from secondguess.theory.records import SelfCheatScores

BANDS = ((0.5, 0.7), (0.7, 0.9), (0.9, 0.95), (0.95, np.inf))
"""Confidences that are looked at by themselves: half-learned digits, and where decoders answer."""


def held_out_pairs(offsets: IntArray, num_pairs: int, rng: np.random.Generator) -> IntArray:
    """Fresh pairs of statements about each digit, as columns of the grammar: `(n, num_pairs, 2)`.

    >>> held_out_pairs(np.array([1, 2]), 3, np.random.default_rng(0)).shape
    (2, 3, 2)
    """
    shape = (len(offsets), num_pairs, 2)
    digits = np.broadcast_to(digits_at(offsets)[:, None, None], shape)
    return grammar().sample(digits, rng.random(shape))


def drawn_sentences(exact: Statements, num_pairs: int, rng: np.random.Generator) -> IntArray:
    """Sentences that the model draws about each digit: `(n, num_pairs)`."""
    upto = np.exp(exact.scores.log_marginal).cumsum(axis=1)
    uniform = rng.random((len(upto), num_pairs)) * upto[:, -1:]
    return np.array([np.searchsorted(*each) for each in zip(upto, uniform, strict=True)])


def recalibration_of(exact: Statements, pairs: IntArray, drawn: IntArray) -> SequenceRecalibration:
    """The lines that some pairs ask for, each pair beside one sentence of the model.

    Args:
        exact: the scores of all sentences about each digit.
        pairs: `(n, num_pairs, 2)`, held-out pairs about the same digits.
        drawn: `(n, num_pairs)`, drawn from the model.
    """

    def scores_of(columns: IntArray) -> SelfCheatScores:
        scores = exact.scores.log_marginal, exact.scores.log_self_conditional
        return SelfCheatScores(*(np.take_along_axis(each, columns, axis=1) for each in scores))

    repeated = np.repeat(pairs[..., 0] == pairs[..., 1], 2, axis=1)
    given = scores_of(pairs.reshape(len(pairs), -1))
    found = fit_recalibration(given, repeated, scores_of(drawn))
    return replace(found, num_pairs=pairs[..., 0].size)


def recalibrated(
    statements: Statements, by_parity: Mapping[int, SequenceRecalibration]
) -> Statements:
    """The statements with corrected scores, by the parity of the place they are about."""
    log_marginal = statements.scores.log_marginal.copy()
    log_self_conditional = statements.scores.log_self_conditional.copy()
    for parity, correct in by_parity.items():
        rows = statements.offsets % 2 == parity
        scores = correct(SelfCheatScores(log_marginal[rows], log_self_conditional[rows]))
        log_marginal[rows] = scores.log_marginal
        log_self_conditional[rows] = scores.log_self_conditional
    return replace(statements, scores=SelfCheatScores(log_marginal, log_self_conditional))


def recalibration_metrics(
    exact: Statements, sampled: Statements, *, num_pairs: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Calibration of samples and of all sentences before and after.

    Args:
        exact: all sentences about each digit.
        sampled: samples about the same digits.
        num_pairs: held-out pairs about each digit.
        rng: draws them.
    """
    pairs = held_out_pairs(exact.offsets, num_pairs, rng)
    drawn = drawn_sentences(exact, num_pairs, rng)
    by_parity = {}
    for parity in (0, 1):
        others = exact.offsets % 2 != parity
        by_parity[parity] = recalibration_of(_rows(exact, others), pairs[others], drawn[others])
    return {
        "lines": {str(parity): asdict(found) for parity, found in by_parity.items()},
        **{
            name: {
                "before": _measured(statements),
                "after": _measured(recalibrated(statements, by_parity)),
            }
            for name, statements in (("samples", sampled), ("exact", exact))
        },
    }


def _measured(statements: Statements) -> dict[str, Any]:
    found = calibration_metrics(statements)
    return {
        "overall": asdict(overall_bound(statements)),
        "bands": bands(statements),
        **{name: found[name] for name in ("decile_confidence", "decile_hallucination_rate")},
    }


def bands(statements: Statements) -> list[dict[str, float]]:
    """Weight, mean confidence (at most 1 each) and share made up between some confidences.

    A band without statements has nothing but its weight of 0.
    """
    confidence, wrong = statements.scores.epistemic_confidence, ~statements.is_true
    found = []
    for least, below in BANDS:
        weights = np.where((confidence >= least) & (confidence < below), statements.weights, 0.0)
        total = float(weights.sum())
        band = {"from": least, "weight": total / float(statements.weights.sum())}
        if total > 0:
            band["confidence"] = float((weights * np.minimum(confidence, 1)).sum() / total)
            band["hallucination_rate"] = float((weights * wrong).sum() / total)
        found.append(band)
    return found


def _rows(statements: Statements, rows: np.ndarray) -> Statements:
    scores = SelfCheatScores(
        statements.scores.log_marginal[rows], statements.scores.log_self_conditional[rows]
    )
    return Statements(
        offsets=statements.offsets[rows],
        columns=statements.columns[rows],
        num_tokens=statements.num_tokens[rows],
        scores=scores,
        weights=statements.weights[rows],
    )
