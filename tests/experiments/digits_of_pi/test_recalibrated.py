"""Recalibration on held-out pairs, on predictors of digits of pi whose errors are known."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.pi_worlds import balanced_offsets, knowing

from secondguess.experiments.digits_of_pi.evaluation import Statements, reliability_bins
from secondguess.experiments.digits_of_pi.recalibrated import (
    bands,
    drawn_sentences,
    held_out_pairs,
    recalibrated,
    recalibration_metrics,
    recalibration_of,
)
from secondguess.language.logit_lines import LogitLine
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.theory.records import SelfCheatScores

NUM_KNOWN = 100


def world() -> Statements:
    return knowing(balanced_offsets(40), NUM_KNOWN)


def suspicious(statements: Statements) -> Statements:
    """It believes to repeat itself more than it should: by 1 on the logit scale."""
    repeated = LogitLine(1.0, 1.0)(statements.scores.log_self_conditional)
    return replace(statements, scores=SelfCheatScores(statements.scores.log_marginal, repeated))


def test_pairs_undo_a_shift_and_leave_a_calibrated_predictor_alone():
    exact, rng = world(), np.random.default_rng(0)
    pairs = held_out_pairs(exact.offsets, 50, rng)
    drawn = drawn_sentences(exact, 50, rng)
    calibrated, shifted = (
        recalibration_of(statements, pairs, drawn) for statements in (exact, suspicious(exact))
    )
    assert calibrated.num_pairs == 50 * len(exact.offsets)
    assert calibrated.confidence.slope == pytest.approx(1, abs=0.05)
    assert calibrated.confidence.offset == pytest.approx(0, abs=0.1)
    middle = np.log(0.05)  # where most statements are
    assert calibrated.repeat(middle) == pytest.approx(middle, abs=0.05)
    undone = shifted.repeat(LogitLine(1.0, 1.0)(middle))
    assert undone == pytest.approx(middle, abs=0.15)


def test_sentences_are_drawn_as_the_model_says_them():
    exact = world()
    drawn = drawn_sentences(exact, 2000, np.random.default_rng(0))
    probs = np.exp(exact.scores.log_marginal[0])
    found = np.bincount(drawn[0], minlength=len(probs)) / 2000
    assert (np.abs(found - probs) <= 5 * np.sqrt(probs * (1 - probs) / 2000)).all()


def test_no_digit_is_corrected_by_pairs_about_itself():
    statements = world()
    lines = {
        parity: SequenceRecalibration(LogitLine(), LogitLine(1.0, parity), num_pairs=50)
        for parity in (0, 1)
    }
    before, after = statements.scores, recalibrated(statements, lines).scores
    odd = statements.offsets % 2 == 1
    said = np.isfinite(before.log_self_conditional)
    change = np.where(said, after.log_self_conditional, 0) - np.where(
        said, before.log_self_conditional, 0
    )
    np.testing.assert_allclose(change[~odd], 0, atol=1e-9)
    assert (change[odd][said[odd]] > 0.1).all()


def test_deciles_fit_after_the_recalibration_and_not_before():
    exact = suspicious(world())
    found = recalibration_metrics(exact, exact, num_pairs=50, rng=np.random.default_rng(1))
    assert set(found) == {"lines", "samples", "exact"}
    assert found["exact"] == found["samples"]

    def farthest(which: str) -> float:
        metrics = found["exact"][which]
        confidence = np.array(metrics["decile_confidence"])
        return float(
            np.abs(np.array(metrics["decile_hallucination_rate"]) - (1 - confidence)).max()
        )

    assert farthest("before") > 0.3
    assert farthest("after") < 0.5 * farthest("before")


def test_bands_weigh_what_they_hold():
    statements = world()
    found = bands(statements)
    assert found[-1]["from"] == 0.95
    assert found[-1]["hallucination_rate"] == 0
    assert found[-1]["confidence"] == pytest.approx(1)
    assert sum(band["weight"] for band in found) < 1
    assert reliability_bins(statements).weight.sum() == pytest.approx(1)
    nothing = replace(statements, weights=np.where(statements.is_true, 0.0, statements.weights))
    assert bands(nothing)[-1] == {"from": 0.95, "weight": 0.0}
