"""The tables on classifiers: made from committed results, whole, and true to what the page says."""

from __future__ import annotations

import classifiers
import numpy as np
from classifier_sets import draw, load
from pages import DOCS, filled

ROWS = classifiers.measured()


def test_the_page_holds_what_the_results_say():
    assert filled(classifiers.PAGE, classifiers.TABLES) == (DOCS / classifiers.PAGE).read_text()


def test_nothing_is_left_out():
    cells = [(row["data"], row["size"], row["method"], row["seed"]) for row in ROWS]
    assert len(set(cells)) == len(cells)
    too_few = {("blurred digits", 5000)}
    asked = {cell for cell in classifiers.cells() if cell[:2] not in too_few}
    assert set(cells) == asked


DEFAULT = [row for row in ROWS if row["method"] == "PairClassifier"]


def test_the_default_is_calibrated_wherever_that_can_be_asked():
    assert sum(classifiers.is_asked(row) for row in DEFAULT) > 20
    assert not [row for row in DEFAULT if classifiers.misses_calibration(row)]


def test_the_default_is_never_worse_than_a_soft_logistic_regression_beyond_noise():
    cells = [gap for gap in classifiers.gaps() if gap["method"] == "PairClassifier"]
    assert {(gap["data"], gap["rows"]) for gap in cells} == {
        (r["data"], r["rows"]) for r in DEFAULT
    }
    assert not [gap for gap in cells if classifiers.misses_log_loss(gap)]


def test_single_runs_that_were_worse_by_their_test_rows_are_on_the_page():
    named = classifiers.table_of_misses(ROWS)
    for row in filter(classifiers.misses_log_loss, DEFAULT):
        assert f"| {row['data']} | {row['rows']:,} | {row['seed']} |" in named
    # By fractions of a per cent, or by chance of a draw, but never by much.
    assert max(row["log_loss_gap"] / row["log_loss"] for row in DEFAULT) < 0.02


def test_the_error_of_a_mean_gap_has_both_parts():
    rng = np.random.default_rng(0)
    test_rows, draws = rng.normal(size=2000), rng.normal(size=(5, 1))
    found = classifiers.mean_gap(test_rows + draws)
    exact = np.sqrt(test_rows.var() / 2000 + draws.var(ddof=1) / 5)
    assert abs(found["log_loss_gap_standard_error"] - exact) < 1e-12
    assert classifiers.mean_gap(test_rows[None])["draws"] == 1


def test_made_sets_are_the_same_every_time_and_split_without_overlap(tmp_path):
    first, second = (load("moons", tmp_path, seed=0) for _ in range(2))
    np.testing.assert_array_equal(first[0].features, second[0].features)
    np.testing.assert_array_equal(first[1].counts, second[1].counts)
    points = {row.tobytes() for row in first[0].features}
    assert not any(row.tobytes() in points for row in first[1].features)
    assert (draw(np.full((5, 2), 0.5), 3, np.random.default_rng(0)).sum(axis=1) == 3).all()
