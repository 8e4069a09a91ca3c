"""The tables on guaranteed intervals: made from committed results, and true."""

from __future__ import annotations

import json

import guaranteed_intervals as measure
import numpy as np
import pytest
import render
from pages import DOCS


def committed(part: str):
    return json.loads((DOCS / "results" / f"{part}.json").read_text())["rows"]


@pytest.mark.parametrize("page", render.PAGES)
def test_the_pages_hold_what_the_results_say(page: str):
    assert render.rendered(page) == (DOCS / page).read_text()


def allowed(row: dict) -> float:
    """The rate asked for and three standard errors."""
    rate = row["failure_rate"]
    return rate + 3 * np.sqrt(rate * (1 - rate) / row["replicates"])


def test_the_committed_bounds_fail_no_more_often_than_promised():
    rows = committed("guaranteed-intervals-coverage")
    assert len({row["law"] for row in rows}) >= 6
    for row in rows:
        assert row["replicates"] >= 1000
        assert max(row["failures"].values()) / row["replicates"] <= allowed(row), row


@pytest.mark.slow
@pytest.mark.statistical
def test_bounds_fail_no_more_often_than_promised():
    """False alarms: 1.4e-3 per cell at most, if a bound failed exactly as often as it may."""
    for row in measure.coverage(1000, seed=1):
        assert max(row["failures"].values()) / row["replicates"] <= allowed(row), row


@pytest.mark.parametrize("cutoff", measure.CUTOFFS)
@pytest.mark.parametrize("size", [10**4, 10**5, pytest.param(10**6, marks=pytest.mark.slow)])
def test_blocks_cost_little_against_one_bet_per_observation(cutoff: float, size: int):
    values = measure.task_products(np.random.default_rng(11), size, cutoff)
    low, high = -0.25 / cutoff, 1 / cutoff
    found = measure.sg.mean_upper_bound(values, low=low, high=high, failure_rate=0.05)
    assert found <= 1.1 * measure.bound_per_observation(values, low, high, 0.05)


def test_the_committed_intervals_of_a_wrong_predictor_cover():
    rows = [row for row in committed("guaranteed-intervals-world") if row["method"] != "claimed"]
    assert len(rows) == 15
    for row in rows:
        for miss_rate, cell in row["miss_rates"].items():
            assert cell["coverage"] >= 1 - float(miss_rate)


@pytest.mark.parametrize("miss_rate", [0.05, 0.1, 0.2, 0.5])
def test_the_wrong_predictor_is_wrong(miss_rate: float):
    """Taken at its word it covers a tenth of the inputs less than it says, or worse."""
    inputs = np.random.default_rng(0).standard_normal(50_000)
    prediction = measure.wrong_predictor(inputs)
    claimed = measure.sg.chebyshev_interval(prediction.probs, prediction.variance, miss_rate)
    assert claimed.contains(measure.true_probability(inputs)).mean() < 0.9 - miss_rate


def test_the_committed_one_sided_bounds_cover():
    for row in committed("guaranteed-intervals-extensions")["one_sided"]:
        assert row["coverage"] >= 1 - row["miss_rate"]
