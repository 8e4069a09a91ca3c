"""Metrics against exact enumeration, plain re-computation and worlds whose truth is known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import worlds
from hypothesis import given
from hypothesis import strategies as st

import secondguess as sg


def enumerate_annotations(true_probs: np.ndarray, num_annotations: int):
    """Every sequence of annotations of one row, as (its probability, its counts)."""
    num_classes = len(true_probs)
    for labels in product(range(num_classes), repeat=num_annotations):
        counts = np.bincount(labels, minlength=num_classes)
        yield np.prod(true_probs[list(labels)]), counts


@pytest.mark.parametrize("num_annotations", [2, 3, 5])
@pytest.mark.parametrize("true_probs", [[0.3, 0.7], [0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
def test_squared_error_estimate_is_unbiased_by_enumeration(true_probs, num_annotations):
    truth = np.array(true_probs)
    probs = np.random.default_rng(0).dirichlet(np.ones(len(truth)))
    expected = sum(
        chance * sg.squared_error_estimate(probs[None], counts[None])[0]
        for chance, counts in enumerate_annotations(truth, num_annotations)
    )
    np.testing.assert_allclose(expected, (probs - truth) ** 2, atol=1e-12)


def test_one_event_equals_its_column_of_the_two_class_form():
    rng = np.random.default_rng(2)
    probs = rng.random(50)
    counts = rng.multinomial(5, [0.4, 0.6], size=50)
    both = np.stack([1 - probs, probs], axis=1)
    np.testing.assert_allclose(
        sg.squared_error_estimate(probs, counts),
        sg.squared_error_estimate(both, counts)[:, 1],
        atol=1e-15,
    )


@given(worlds.worlds())
def test_errors_of_a_calibrated_world_match_its_variance(world):
    """Drawn in proportion to p(X), grouping error equals mean variance (Theorem 4.2)."""
    joint = world.calibrated_joint()
    weights = world.input_probs[:, None]
    variance = sg.joint_scores(joint).epistemic_variance
    errors = (sg.joint_marginal(joint) - world.true_probs) ** 2
    assert np.sum(weights * variance) == pytest.approx(np.sum(weights * errors), abs=1e-12)


def test_mean_variance_and_grouping_error_sum_over_classes():
    probs = np.array([[0.5, 0.5], [1.0, 0.0]])
    truth = np.array([[0.25, 0.75], [1.0, 0.0]])
    assert sg.mean_variance(np.full((2, 2), 0.1)) == pytest.approx(0.2)
    assert sg.grouping_error(probs, sg.Annotations.known(truth)) == pytest.approx(0.0625)
    counts = np.array([[1, 3], [4, 0]])
    by_hand = sg.squared_error_estimate(probs, counts).sum() / 2
    assert sg.grouping_error(probs, counts) == pytest.approx(by_hand)


def test_annotator_kl_has_the_corrected_sign_and_sum():
    probs = np.array([[0.5, 0.5], [0.9, 0.1]])
    counts = np.array([[2, 2], [3, 1]])
    share = counts / 4
    by_hand = np.mean(np.sum(share * np.log(share / probs), axis=1))
    assert sg.annotator_kl(probs, counts) == pytest.approx(by_hand)
    assert sg.annotator_kl(probs[:, 1], counts) == pytest.approx(by_hand)
    assert sg.annotator_kl(share, counts) == 0
    assert sg.annotator_kl([[1.0, 0.0]], [[1, 1]]) == np.inf


def test_metrics_take_a_prediction_or_its_arrays():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), size=20)
    prediction = sg.Prediction(probs, rng.random((20, 3)))
    counts = rng.multinomial(4, [0.2, 0.3, 0.5], size=20)
    truth = sg.Annotations.from_counts(counts)
    for metric in (sg.grouping_error, sg.annotator_kl, sg.first_order_ece):
        values = {metric(each, given) for each in (prediction, probs) for given in (counts, truth)}
        assert len(values) == 1
    assert sg.mean_variance(prediction) == sg.mean_variance(prediction.variance)
    assert sg.accuracy(prediction, counts.argmax(axis=1)) == sg.accuracy(
        probs, counts.argmax(axis=1)
    )


def test_known_probabilities_are_exact():
    truth = sg.Annotations.known([[0.25, 0.75]])
    np.testing.assert_array_equal(
        sg.squared_error_estimate([[0.5, 0.5]], truth), [[0.0625, 0.0625]]
    )
    np.testing.assert_array_equal(sg.squared_error_estimate([0.5], truth), [0.0625])


def test_accuracy():
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    assert sg.accuracy(probs, [0, 1, 1]) == pytest.approx(2 / 3)
    assert sg.accuracy(probs[:, 1], [0, 1, 1]) == pytest.approx(2 / 3)


def test_interval_coverage_counts_the_closed_ends():
    interval = sg.chebyshev_interval([0.5, 0.5], [0.0, 0.01], 0.25)
    assert sg.interval_coverage(interval, [0.5, 0.7]) == 1.0
    assert sg.interval_coverage(interval, [0.5000001, 0.71]) == 0.0


def test_hallucination_curve_against_a_plain_loop():
    rng = np.random.default_rng(0)
    gap = rng.random(500)
    wrong = rng.random(500) < gap
    curve = sg.hallucination_curve(gap, wrong, rng=rng)
    for kept in (1, 10, 250, 500):
        trusted = np.sort(gap)[kept - 1]
        assert curve.hallucination_rate[kept - 1] == pytest.approx(wrong[gap <= trusted].mean())
        assert curve.response_rate[kept - 1] == pytest.approx(kept / 500)


def test_risk_coverage_curve_against_a_plain_loop():
    rng = np.random.default_rng(0)
    gap, losses = rng.random(50), rng.normal(size=50)
    curve = sg.risk_coverage_curve(gap, losses, rng=rng)
    for seen, (coverage, risk) in enumerate(zip(*curve, strict=True), start=1):
        kept = np.argsort(gap)[:seen]
        assert coverage == seen / 50
        assert risk == pytest.approx(losses[kept].mean())


def test_hallucination_curve_breaks_ties_by_its_generator():
    """One tied score: in file order the curve would be a step; at random it is flat."""
    gap = np.zeros(1000)
    wrong = np.arange(1000) >= 500
    first = sg.hallucination_curve(gap, wrong, rng=np.random.default_rng(0))
    again = sg.hallucination_curve(gap, wrong, rng=np.random.default_rng(0))
    other = sg.hallucination_curve(gap, wrong, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(first.hallucination_rate, again.hallucination_rate)
    assert not np.array_equal(first.hallucination_rate, other.hallucination_rate)
    # 500 draws without replacement from 1000: a standard deviation of 0.016; 6 of them, 2e-9.
    assert abs(first.hallucination_rate[499] - 0.5) < 0.095


@given(st.integers(0, 2**32 - 1))
def test_metrics_do_not_depend_on_row_order(seed):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(3), size=40)
    counts = rng.multinomial(4, [0.2, 0.3, 0.5], size=40)
    order = rng.permutation(40)
    for metric in (sg.grouping_error, sg.annotator_kl):
        assert metric(probs[order], counts[order]) == pytest.approx(metric(probs, counts))


P, C = [[0.5, 0.5]], [[1, 1]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sg.squared_error_estimate(P, [[1, 0]]), r"counts row 0 has 1 annotation"),
        (lambda: sg.squared_error_estimate(P, [[3, -1]]), r"counts\[0, 1\] is -1"),
        (lambda: sg.squared_error_estimate(P, [[1.5, 1]]), r"counts\[0, 0\] is 1.5"),
        (lambda: sg.squared_error_estimate(P, [1, 1]), r"counts has shape \(2,\)"),
        (lambda: sg.squared_error_estimate(P, [[1, 1, 1]]), r"probs has shape \(1, 2\)"),
        (lambda: sg.squared_error_estimate([0.5], [[1, 1, 1]]), "absent and present"),
        (lambda: sg.squared_error_estimate([[0.5, np.nan]], C), r"probs\[0, 1\] is nan"),
        (lambda: sg.squared_error_estimate([[0.5, 0.4]], C), r"probs row 0 sums to 0.9"),
        (lambda: sg.squared_error_estimate([[0.5], [0.5, 0.5]], C), "equal-length rows"),
        (lambda: sg.grouping_error(P, sg.Annotations.known([[1.0]])), r"have \(1, 1\)"),
        (lambda: sg.Annotations.known([[0.7, 0.7]]), "true_probs row 0 sums to 1.4"),
        (lambda: sg.Annotations(np.ones((1, 2)), np.ones((2, 1))), r"squares has shape \(2, 1\)"),
        (lambda: sg.mean_variance([]), r"variance has shape \(0,\)"),
        (lambda: sg.mean_variance([np.inf]), r"variance\[0\] is inf"),
        (lambda: sg.accuracy(P, [2]), r"labels\[0\] is 2.0; expected a class index from 0 to 1"),
        (lambda: sg.accuracy(P, [0, 1]), r"labels has shape \(2,\)"),
        (lambda: sg.annotator_kl([], C), r"probs has shape \(0,\)"),
        (
            lambda: sg.hallucination_curve([0.1], [2], rng=np.random.default_rng()),
            r"is_hallucination\[0\] is 2.0",
        ),
        (
            lambda: sg.hallucination_curve([], [], rng=np.random.default_rng()),
            r"gap has shape \(0,\)",
        ),
        (lambda: sg.chebyshev_interval([0.5], [-0.1], 0.1), r"variance\[0\] is -0.1"),
        (lambda: sg.chebyshev_interval([0.5], [0.1], 0.0), "miss_rate is 0.0"),
        (lambda: sg.chebyshev_interval([0.5], [0.1], 1.0), "miss_rate is 1.0"),
        (lambda: sg.chebyshev_interval([0.5], [0.1], np.nan), "miss_rate is nan"),
        (lambda: sg.chebyshev_interval([1.5], [0.1], 0.1), r"probs\[0\] is 1.5"),
        (lambda: sg.cantelli_lower_bound([0.5], [[0.1]], 0.1), r"variance has shape \(1, 1\)"),
        (lambda: sg.joint_scores([[0.5, 0.5]]), r"joint has shape \(1, 2\)"),
        (lambda: sg.joint_scores([[0.5, 0.5], [0.5, 0.5]]), "joint sum is 2.0"),
        (lambda: sg.joint_scores([[1.1, -0.1], [0, 0]]), r"joint\[0, 1\] is -0.1"),
        (lambda: sg.joint_from_moments([0.5, 0.5], [[0.1, 0], [0, 0.1]]), "sum.* is 0.1"),
        (lambda: sg.joint_from_moments([1, 0], [[0.5, -0.5], [-0.5, 0.5]]), r"\[0, 1\] is -0.5"),
        (lambda: sg.joint_from_moments([0.5], [[0.0], [0.0]]), r"expected \(..., K\)"),
        (lambda: sg.binary_joint(1.5, 0.0), "mean is 1.5"),
        (lambda: sg.binary_moments(np.eye(3) / 3), r"expected \(..., 2, 2\)"),
        (lambda: sg.binary_moments([[0.5, 0.3], [0.1, 0.1]]), "asymmetry"),
    ],
)
def test_bad_input_is_refused_with_its_place(call, message):
    with pytest.raises(ValueError, match=message):
        call()
