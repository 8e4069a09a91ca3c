"""Planned widths: what a calibration set of some size would give, simulated."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess.theory.calibration.fit_intervals import fit_intervals
from secondguess.theory.calibration.nested import beta_shapes
from secondguess.theory.calibration.planning import _calibration_sets, plan_width


def predictions(size):
    probs = np.random.default_rng(0).beta(1, 2, size)
    return probs, 0.1 * probs * (1 - probs)


def test_larger_sets_hold_the_smaller_ones():
    """So that two cells differ by what was added, and not by a fresh draw of everything."""
    shapes = beta_shapes(*predictions(500))
    drawn = list(_calibration_sets(shapes, [40, 20], [7, 2], np.random.default_rng(1)))
    assert [(len(rows), k) for rows, k, _ in drawn] == [(20, 2), (40, 2), (20, 7), (40, 7)]
    few, more, _, most = drawn
    np.testing.assert_array_equal(few[0], more[0][:20])
    np.testing.assert_array_equal(few[2], more[2][:20])
    np.testing.assert_array_equal(more[0], most[0])
    added = most[2] - more[2]
    assert added.min() >= 0
    assert 0 < added.max() <= 5


def test_plans_come_in_the_order_asked_for_and_repeat_with_the_seed():
    def planned():
        return plan_width(
            *predictions(300),
            num_rows=[60, 30],
            num_responses=[9, 2],
            num_simulations=2,
            rng=np.random.default_rng(3),
        )

    plans = planned()
    assert [(p.num_rows, p.num_responses) for p in plans] == [(60, 9), (60, 2), (30, 9), (30, 2)]
    assert all(sum(plan.methods.values()) == 2 and 0 <= plan.width <= 1 for plan in plans)
    assert plans == planned()


@pytest.mark.statistical
def test_the_plan_is_what_a_calibration_set_then_gives():
    """Where the model is right. Four standard errors of both means: false alarms 1e-4, seed 0."""
    probs, variance = predictions(2000)
    rng = np.random.default_rng(0)
    sizes = {"miss_rate": 0.1, "failure_rate": 0.05, "method": "counts"}
    (plan,) = plan_width(
        probs, variance, num_rows=[400], num_responses=[30], num_simulations=8, rng=rng, **sizes
    )
    widths = []
    for _ in range(8):
        rows = rng.integers(2000, size=400)
        true_probs = rng.beta(*beta_shapes(probs[rows], variance[rows]))
        ones = rng.binomial(30, true_probs)
        fitted = fit_intervals(probs[rows], variance[rows], ones, 30, **sizes)
        widths.append(fitted.interval(probs, variance).width.mean())
    standard_error = np.sqrt((np.var(widths) + plan.spread**2) / 7)
    assert abs(np.mean(widths) - plan.width) < 4 * standard_error
    assert plan.held >= 0.9


def test_a_model_that_is_sure_and_one_that_is_lost_can_plan():
    """Predictions of exactly 0 and 1, negative variances and those that no law has."""
    probs = np.tile([0.0, 1.0, 0.5, 0.5], 20)
    variance = np.tile([0.0, 0.1, -0.1, 0.9], 20)
    plans = plan_width(
        probs,
        variance,
        num_rows=[100],
        num_responses=[1, 3],
        num_simulations=1,
        rng=np.random.default_rng(0),
    )
    assert plans[0].methods == {"counts": 1}
    assert all(np.isfinite(plan.width) for plan in plans)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"num_rows": [5]}, "num_rows is 5"),
        ({"num_responses": [0]}, "num_responses is 0"),
        ({"num_simulations": 0}, "num_simulations is 0"),
    ],
)
def test_sizes_that_cannot_be(options, problem):
    sizes = {"num_rows": [50], "num_responses": [2], **options}
    with pytest.raises(ValueError, match=problem):
        plan_width(*predictions(50), rng=np.random.default_rng(0), **sizes)


def test_one_event_at_a_time():
    with pytest.raises(ValueError, match="one event per row"):
        plan_width(
            np.full((9, 2), 0.5),
            np.full((9, 2), 0.1),
            num_rows=[50],
            num_responses=[2],
            rng=np.random.default_rng(0),
        )
