"""The records: exact in log space, strict about what they hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import secondguess as sg

probabilities = st.fractions(min_value=Fraction(1, 10**6), max_value=1)


@given(probabilities, probabilities)
def test_scores_agree_with_exact_arithmetic(marginal: Fraction, conditional: Fraction):
    scores = sg.SelfCheatScores(
        np.array([np.log(float(marginal))]), np.array([np.log(float(conditional))])
    )
    variance = float(marginal * (conditional - marginal))
    confidence = float(marginal / conditional)
    assert scores.epistemic_variance[0] == pytest.approx(variance, rel=1e-9, abs=1e-15)
    assert scores.epistemic_confidence[0] == pytest.approx(confidence, rel=1e-12)
    assert scores.confidence_gap("one_minus")[0] == pytest.approx(
        1 - confidence, rel=1e-12, abs=1e-12
    )


def test_long_sequences_keep_their_ratio():
    """Thousands of tokens: both probabilities underflow, the confidence does not."""
    log_marginal = np.array([-50_000.0, -800.0, -1e6])
    scores = sg.SelfCheatScores(log_marginal, log_marginal + np.log(2))
    np.testing.assert_allclose(scores.epistemic_confidence, 0.5, rtol=1e-9)
    np.testing.assert_array_equal(scores.epistemic_variance, 0)


def test_probabilities_below_the_range_of_float64():
    scores = sg.SelfCheatScores(np.log([1e-300]), np.log([1e-300]) - 5.0)
    assert scores.epistemic_confidence[0] == pytest.approx(np.exp(5.0))


def test_small_differences_are_not_lost():
    """1 - C = 1e-13 is far below the rounding of 1 - exp(...)."""
    scores = sg.SelfCheatScores(np.array([-1e-13]), np.array([0.0]))
    assert scores.confidence_gap("one_minus")[0] == pytest.approx(1e-13, rel=1e-12)
    assert scores.epistemic_variance[0] == pytest.approx(1e-13, rel=1e-9)


def test_impossible_responses_have_confidence_zero():
    scores = sg.SelfCheatScores(np.array([-np.inf, -np.inf]), np.array([-1.0, -np.inf]))
    np.testing.assert_array_equal(scores.epistemic_confidence, 0)
    np.testing.assert_array_equal(scores.epistemic_variance, 0)
    for kind in ("absolute", "one_minus", "clipped", "reciprocal"):
        np.testing.assert_array_equal(scores.confidence_gap(kind), 1)


def test_confidence_beyond_float64_is_infinite_not_an_error():
    scores = sg.SelfCheatScores(np.array([-1.0, -1.0]), np.array([-2000.0, -np.inf]))
    np.testing.assert_array_equal(scores.epistemic_confidence, np.inf)
    np.testing.assert_array_equal(scores.confidence_gap("absolute"), np.inf)
    np.testing.assert_array_equal(scores.confidence_gap("one_minus"), -np.inf)
    np.testing.assert_array_equal(scores.confidence_gap("clipped"), 0)
    np.testing.assert_array_equal(scores.confidence_gap("reciprocal"), 1)
    assert (scores.epistemic_variance < 0).all()


@given(
    st.lists(
        st.tuples(st.floats(-1e4, 0), st.floats(-1e4, 0)),
        min_size=1,
        max_size=20,
    )
)
def test_the_four_gaps_agree_up_to_one_and_only_there(pairs):
    marginal, conditional = np.array(pairs).T
    scores = sg.SelfCheatScores(marginal, conditional)
    calibrated = scores.epistemic_confidence <= 1
    gaps = {
        kind: scores.confidence_gap(kind)
        for kind in ("absolute", "one_minus", "clipped", "reciprocal")
    }
    for gap in gaps.values():
        np.testing.assert_allclose(gap[calibrated], gaps["one_minus"][calibrated], atol=1e-15)
    above = ~calibrated
    assert (gaps["one_minus"][above] <= 0).all()
    assert (gaps["clipped"][above] == 0).all()
    assert (gaps["absolute"][above] >= gaps["reciprocal"][above]).all()


def test_scores_can_be_indexed_like_arrays():
    scores = sg.SelfCheatScores(np.log([0.5, 0.25, 0.125]), np.log([0.5, 0.5, 0.5]))
    assert len(scores) == 3
    np.testing.assert_allclose(scores[[True, False, True]].epistemic_confidence, [1, 0.25])
    assert scores[1].epistemic_confidence == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("record", "fields", "message"),
    [
        (sg.SelfCheatScores, ([np.nan], [0.0]), r"log_marginal\[0\] is nan"),
        (sg.SelfCheatScores, ([0.0], [0.5]), r"log_self_conditional\[0\] is 0.5.*0 or less"),
        (sg.SelfCheatScores, ([0.0, 0.0], [0.0]), r"shape \(1,\) but .* shape \(2,\)"),
        (sg.SelfCheatScores, (["a"], [0.0]), "log_marginal is not an array of numbers"),
        (sg.Prediction, ([[0.5, 0.6]], [[0, 0]]), r"probs row 0 sums to 1.1"),
        (sg.Prediction, ([0.5], [[0.0]]), r"variance has shape \(1, 1\)"),
        (sg.Prediction, ([], []), r"probs has shape \(0,\)"),
        (sg.Prediction, ([1.5], [0.0]), r"probs\[0\] is 1.5"),
        (sg.Interval, ([0.5], [0.4], sg.RestsOn.CALIBRATION_SET), "no more than upper"),
    ],
)
def test_bad_input_is_refused_with_its_place(record, fields, message):
    with pytest.raises(ValueError, match=message):
        record(*fields)


def test_an_unknown_gap_is_refused():
    scores = sg.SelfCheatScores(np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="kind is 'none'; expected one of absolute"):
        scores.confidence_gap("none")  # pyright: ignore[reportArgumentType]


def test_negative_variance_is_data():
    prediction = sg.Prediction(np.array([0.5]), np.array([-0.1]))
    assert prediction.variance[0] == -0.1


def test_a_confidence_above_one_has_a_gap_but_no_bound():
    scores = sg.SelfCheatScores(np.log([0.4, 0.5, 0.0001]), np.log([0.5, 0.4, 0.0001 / 1.02]))
    bound = sg.hallucination_bound(scores)
    assert bound.rests_on is sg.RestsOn.CALIBRATED_PAIRS
    np.testing.assert_array_equal(bound.outside_theorem, [False, True, True])
    assert bound.value[0] == pytest.approx(0.2)
    assert not (bound.value[1:] <= 1).any(), "no rate, however large, is met without a bound"
    assert str(bound).endswith("if calibrated on pairs; 2 of 3 outside the theorem")
    assert str(sg.hallucination_bound(scores[1])) == "no bound: outside the theorem"


def test_a_confidence_of_one_with_rounding_has_the_bound_zero():
    scores = sg.SelfCheatScores(np.array([-700.0, -700.0]), np.array([-700.0, -700.0 - 1e-12]))
    np.testing.assert_array_equal(sg.hallucination_bound(scores).value, 0.0)
