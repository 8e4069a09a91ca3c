"""The tables on guaranteed intervals: made from committed results, and true."""

from __future__ import annotations

import json

import calibration_conditions as conditions
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


def test_a_bound_that_depends_on_the_workers_is_not_written_down(monkeypatch: pytest.MonkeyPatch):
    record = {**render.kept("calibrate-command"), "relative_difference_of_two_workers": 4e-16}
    monkeypatch.setattr(render, "kept", lambda name: record)
    with pytest.raises(ValueError, match="another inflation"):
        render.command()


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
def test_parts_cost_little_against_one_bet_and_look_per_observation(cutoff: float):
    """The mean ratio over 20 draws of 10,000 rows, in one order of the rows."""
    ratios = measure.ratio_to_peer(cutoff, 10**4, 20)
    assert np.exp(np.mean(np.log(ratios))) <= 1.03


def test_the_committed_ratios_to_one_bet_per_observation_are_within_three_percent():
    for row in committed("guaranteed-intervals-peer"):
        if row["size"] >= 10**4:
            assert np.exp(np.mean(np.log(row["ratios"]))) <= 1.03, row


def test_the_committed_layouts_are_covered_or_refused():
    """Three standard errors over 0.05; those of one column per person are all refused."""
    rows = committed("calibration-conditions")
    assert {row["layout"] for row in rows} == set(conditions.LAYOUTS)
    for row in rows:
        assert row["replicates"] >= 1000
        assert max(row["failures"].values()) / row["replicates"] <= allowed(row), row
        refused = min(row["refusals"].values()) / row["replicates"]
        assert (refused == 1) == (row["layout"] == "one column per person"), row


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
