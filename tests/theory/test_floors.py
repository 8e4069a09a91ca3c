"""The floor of ECE-2 against what calibrated predictors measure in fresh worlds."""

from __future__ import annotations

import numpy as np
import pytest
from theory.dirichlet_world import dirichlet_world

import secondguess as sg
from secondguess.theory.floors import DirichletTruths


def even(num_rows: int, variance: float) -> sg.Prediction:
    return sg.Prediction(np.full((num_rows, 2), 0.5), np.full((num_rows, 2), variance))


@pytest.mark.statistical
def test_floor_is_what_calibrated_predictors_measure():
    """60 worlds against their floors; false-alarm rate below 1e-4 (4 standard errors)."""
    rng = np.random.default_rng(0)
    measured, floors = [], []
    for _ in range(60):
        probs, variance, counts = dirichlet_world(rng)
        prediction = sg.Prediction(probs, variance)
        measured.append(sg.second_order_ece(prediction, counts))
        floors.append(sg.second_order_ece_floor(prediction, 20, rng=rng, num_simulations=5).mean)
    differences = np.subtract(measured, floors)
    standard_error = differences.std(ddof=1) / np.sqrt(len(differences))
    assert abs(differences.mean()) < 4 * standard_error
    assert standard_error < 0.03 * np.mean(floors)  # so that the test has power


@pytest.mark.statistical
def test_spread_is_that_of_calibrated_predictors():
    """The spread over 200 fresh worlds and over 200 simulated ones, each known to 5 %.

    Their ratio has a standard error of 7 %, so 35 % is five of them: false alarms below 1e-6.
    """
    rng = np.random.default_rng(1)
    truths = DirichletTruths.around(even(500, 0.02))
    prediction = sg.Prediction(truths.mean, truths.variance)
    measured = [
        sg.second_order_ece(prediction, rng.multinomial(10, truths.draw(rng))) for _ in range(200)
    ]
    floor = sg.second_order_ece_floor(prediction, 10, rng=rng, num_simulations=200)
    assert floor.standard_deviation == pytest.approx(np.std(measured, ddof=1), rel=0.35)
    assert floor.truths == "Dirichlet"


def test_floor_shrinks_with_more_rows_and_is_zero_without_variance_of_anything():
    rng = np.random.default_rng(0)
    small, large = (
        sg.second_order_ece_floor(
            sg.Prediction(np.full(num_rows, 0.5), np.full(num_rows, 0.02)),
            10,
            rng=rng,
            num_simulations=20,
        )
        for num_rows in (500, 50_000)
    )
    assert large.mean < small.mean / 5
    assert large.standard_deviation < small.standard_deviation / 5
    nothing = sg.Prediction(np.ones((100, 1)), np.zeros((100, 1)))
    assert sg.second_order_ece_floor(nothing, 10, rng=rng)[:2] == (0, 0)


def test_floor_takes_impossible_variances_at_their_limit():
    negative, zero, large = (
        sg.second_order_ece_floor(even(100, variance), 10, rng=np.random.default_rng(0))
        for variance in (-1.0, 0.0, 1.0)
    )
    assert negative == zero
    assert np.isfinite(large.mean)


def test_bad_input_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"num_annotations is 1.0; expected 2 or more"):
        sg.second_order_ece_floor(even(2, 0.1), 1, rng=rng)
    with pytest.raises(ValueError, match="num_simulations is 1; expected a whole number, 2 or"):
        sg.second_order_ece_floor(even(2, 0.1), 2, rng=rng, num_simulations=1)
