"""Every theorem of sections 2 to 4.1 and appendices D and E, on worlds whose truth is known.

Equalities hold to 1e-12. Each theorem is also shown to break on a predictor that is not calibrated
on pairs, so the tests can fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import worlds
from hypothesis import given
from hypothesis import strategies as st
from worlds import World

import secondguess as sg

TOLERANCE = 1e-12
NAMED_WORLDS = [worlds.coins(), worlds.two_point()]
any_world = st.one_of(st.sampled_from(NAMED_WORLDS), worlds.worlds())
rates = st.sampled_from([0.01, 0.05, 0.2, 0.5, 0.9])


def events(world: World, joint: np.ndarray):
    """Every event that is a function of one model output, and the sure event."""
    outputs = world.outputs(joint)
    yield np.ones(len(outputs), dtype=bool)
    for output in np.unique(outputs):
        yield outputs == output


@given(any_world)
def test_proposition_2_2_level_sets_are_a_grouping(world: World):
    """A predictor calibrated for some grouping is calibrated on its own level sets."""
    joint = world.calibrated_joint()
    marginal = sg.joint_marginal(joint)
    outputs = world.outputs(marginal)
    for output in np.unique(outputs):
        event = outputs == output
        for y in range(world.num_classes):
            truth = world.expectation(world.true_probs[:, y], event)
            assert truth == pytest.approx(marginal[event][0, y], abs=TOLERANCE)


@given(any_world)
def test_theorem_3_2_pairs_to_moments(world: World):
    joint = world.calibrated_joint()
    mean, covariance = world.group_moments()
    np.testing.assert_allclose(sg.joint_marginal(joint), mean, atol=TOLERANCE)
    np.testing.assert_allclose(sg.pair_covariance(joint), covariance, atol=TOLERANCE)


@given(any_world)
def test_theorem_3_2_moments_to_pairs(world: World):
    joint = world.calibrated_joint()
    mean, covariance = world.group_moments()
    np.testing.assert_allclose(sg.joint_from_moments(mean, covariance), joint, atol=TOLERANCE)


@given(any_world)
def test_variance_is_the_diagonal_of_the_pair_covariance(world: World):
    joint = world.calibrated_joint()
    diagonal = np.diagonal(sg.pair_covariance(joint), axis1=-2, axis2=-1)
    variance = sg.joint_scores(joint).epistemic_variance
    np.testing.assert_allclose(variance, diagonal, atol=TOLERANCE)


@given(any_world, st.integers(0, 2**32 - 1))
def test_theorem_4_2_equality(world: World, seed: int):
    """E[(p_hat - p)^2 | A] = E[V | A], for each event and each response chosen from the output."""
    joint = world.calibrated_joint()
    outputs = world.outputs(joint)
    choice = np.random.default_rng(seed).integers(world.num_classes, size=len(outputs))[outputs]
    rows = np.arange(len(outputs))
    marginal = sg.joint_marginal(joint)[rows, choice]
    variance = sg.joint_scores(joint).epistemic_variance[rows, choice]
    squared_error = (marginal - world.true_probs[rows, choice]) ** 2
    for event in events(world, joint):
        expected = world.expectation(variance, event)
        assert world.expectation(squared_error, event) == pytest.approx(expected, abs=TOLERANCE)


@given(any_world, rates)
def test_theorem_4_2_interval(world: World, miss_rate: float):
    joint = world.calibrated_joint()
    variance = sg.joint_scores(joint).epistemic_variance
    interval = sg.chebyshev_interval(sg.joint_marginal(joint), variance, miss_rate)
    below = world.true_probs < interval.lower - TOLERANCE
    above = world.true_probs > interval.upper + TOLERANCE
    for event in events(world, joint):
        for y in range(world.num_classes):
            assert world.expectation((below | above)[:, y], event) <= miss_rate + TOLERANCE


@given(any_world)
def test_proposition_4_4_corrected(world: World):
    """0 <= C <= 1, and C = 1 exactly where p(y|.) is constant and positive on the group."""
    joint = world.calibrated_joint()
    confidence = sg.joint_scores(joint).epistemic_confidence
    assert (confidence >= 0).all()
    assert (confidence <= 1 + TOLERANCE).all()
    mean = world.group_mean(world.true_probs)
    variance = world.group_mean((world.true_probs - mean) ** 2)
    constant = (variance < 1e-20) & (mean > 0)
    np.testing.assert_allclose(confidence[constant], 1, atol=TOLERANCE)
    assert (confidence[~constant & (variance > 1e-6)] < 1 - 1e-7).all()
    assert (confidence[mean == 0] == 0).all()


def test_proposition_4_4_the_printed_form_is_false():
    """The middle coin has p_hat = p, and yet the confidence is not 1."""
    scores = sg.joint_scores(worlds.coins().calibrated_joint())
    assert scores.epistemic_confidence[2, 1] == pytest.approx(0.25 / 0.31, abs=TOLERANCE)


def made_up_and_bound(world: World) -> Iterator[tuple[float, float]]:
    """For every event and class, how often the class is made up and the mean bound on that."""
    joint = world.calibrated_joint()
    bound = sg.hallucination_bound(sg.joint_scores(joint))
    assert not bound.outside_theorem.any()
    for event in events(world, joint):
        for y in range(world.num_classes):
            made_up = world.expectation(world.true_probs[:, y] == 0, event)
            yield made_up, world.expectation(bound.value[:, y], event)


@given(any_world)
def test_theorem_4_5_hallucination_bound(world: World):
    for made_up, bound in made_up_and_bound(world):
        assert made_up <= bound + TOLERANCE


def test_theorem_4_5_is_tight_in_the_two_point_world():
    for made_up, bound in made_up_and_bound(worlds.two_point()):
        assert made_up == pytest.approx(bound, abs=TOLERANCE)


def test_the_marginal_of_a_joint_is_a_probability():
    above_one = 1 + np.finfo(float).eps
    assert (sg.joint_marginal([[above_one, 0], [0, 0]]) == [1, 0]).all()


@given(any_world, rates)
def test_proposition_d_1_lower_bound(world: World, miss_rate: float):
    joint = world.calibrated_joint()
    variance = sg.joint_scores(joint).epistemic_variance
    marginal = sg.joint_marginal(joint)
    bound = sg.cantelli_lower_bound(marginal, variance, miss_rate)
    assert bound.rests_on is sg.RestsOn.CALIBRATED_PAIRS
    lower = bound.value
    two_sided = sg.chebyshev_interval(marginal, variance, miss_rate)
    assert (lower >= two_sided.lower).all()
    for event in events(world, joint):
        for y in range(world.num_classes):
            missed = world.true_probs[:, y] < lower[:, y] - TOLERANCE
            assert world.expectation(missed, event) <= miss_rate + TOLERANCE


@given(any_world)
def test_proposition_e_1_calibrated_joints_have_the_three_properties(world: World):
    assert sg.check_joint(world.calibrated_joint(), tolerance=TOLERANCE).problems == []


@given(
    st.floats(0, 1, allow_subnormal=False),
    st.floats(0, 1, allow_subnormal=False),
)
def test_proposition_e_2_both_ways(mean: float, correlation: float):
    joint = sg.binary_joint(mean, correlation)
    assert sg.check_joint(joint, tolerance=TOLERANCE).holds
    variance = sg.pair_covariance(joint)[1, 1]
    assert variance == pytest.approx(correlation * mean * (1 - mean), abs=TOLERANCE)
    mean_again, correlation_again = sg.binary_moments(joint)
    assert mean_again == pytest.approx(mean, abs=TOLERANCE)
    joint_again = sg.binary_joint(mean_again, np.clip(correlation_again, 0, 1))
    np.testing.assert_allclose(joint_again, joint, atol=TOLERANCE)


@given(worlds.worlds().filter(lambda world: world.num_classes == 2))
def test_proposition_e_2_covers_every_calibrated_binary_predictor(world: World):
    joint = world.calibrated_joint()
    mean, correlation = sg.binary_moments(joint)
    assert (correlation >= -TOLERANCE).all()
    assert (correlation <= 1 + TOLERANCE).all()
    again = sg.binary_joint(mean, correlation.clip(0, 1))
    np.testing.assert_allclose(again, joint, atol=1e-11)


class TestMiscalibratedPredictorsBreakTheTheorems:
    """The predictor with the right marginals that never cheats, on the coins and the questions."""

    def test_theorem_3_2(self):
        world = worlds.coins()
        joint = world.overconfident_joint()
        mean = world.group_mean(world.true_probs)
        variance = world.group_mean((world.true_probs - mean) ** 2)
        reported = np.diagonal(sg.pair_covariance(joint), axis1=-2, axis2=-1)
        np.testing.assert_allclose(sg.joint_marginal(joint), mean, atol=TOLERANCE)
        assert np.abs(reported - variance).max() > 0.05

    def test_theorem_4_2(self):
        world = worlds.coins()
        joint = world.overconfident_joint()
        scores = sg.joint_scores(joint)
        squared_error = (sg.joint_marginal(joint) - world.true_probs)[:, 1] ** 2
        reported = world.expectation(scores.epistemic_variance[:, 1])
        assert world.expectation(squared_error) > reported + 0.02
        interval = sg.chebyshev_interval(
            sg.joint_marginal(joint)[:, 1], scores.epistemic_variance[:, 1], 0.05
        )
        misses = ~interval.contains(world.true_probs[:, 1])
        assert world.expectation(misses) > 0.3

    def test_theorem_4_5_and_proposition_d_1(self):
        world = worlds.two_point()
        scores = sg.joint_scores(world.overconfident_joint())
        unknown = world.groups == 0
        bound = sg.hallucination_bound(scores)
        made_up = world.expectation(world.true_probs[:, 0] == 0, unknown)
        assert made_up > world.expectation(bound.value[:, 0], unknown) + 0.3
        lower = sg.cantelli_lower_bound(
            np.exp(scores.log_marginal), scores.epistemic_variance, 0.05
        ).value
        assert world.expectation(world.true_probs[:, 0] < lower[:, 0] - TOLERANCE, unknown) > 0.05

    def test_proposition_4_4(self):
        """A model that likes a response less after seeing it has confidence above 1."""
        scores = sg.joint_scores([[0.1, 0.4], [0.4, 0.1]])
        assert (scores.epistemic_confidence > 1).all()
        assert (scores.epistemic_variance < 0).all()
        assert (scores.confidence_gap("one_minus") < 0).all()
        assert sg.hallucination_bound(scores).outside_theorem.all()

    def test_proposition_e_1(self):
        asymmetric = sg.check_joint([[0.5, 0.2], [0.1, 0.2]])
        assert asymmetric.asymmetry == pytest.approx(0.1)
        assert [problem[:4] for problem in asymmetric.problems] == ["(ii)"]
        indefinite = sg.check_joint([[0.1, 0.4], [0.4, 0.1]])
        assert indefinite.negative_eigenvalue == pytest.approx(0.3)
        assert [problem[:5] for problem in indefinite.problems] == ["(iii)"]
        improper = sg.check_joint([[1.2, -0.1], [-0.1, 0.1]])
        assert improper.negative_mass == pytest.approx(0.2)
        assert improper.sum_error == pytest.approx(0.1)
        assert not improper.holds
