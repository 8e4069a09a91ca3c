"""The tables on intervals from counts: made from committed results, and true."""

from __future__ import annotations

import counts_page
import numpy as np
from pages import DOCS, filled


def test_the_page_holds_what_the_results_say():
    assert filled(counts_page.PAGE, counts_page.TABLES) == (DOCS / counts_page.PAGE).read_text()


def test_no_cell_fails_more_often_than_promised_beyond_noise():
    rows = counts_page.kept("intervals-from-counts-failures")["rows"]
    assert {row["family"] for row in rows} == {"symmetric", "beta"}
    assert {50, 100_000} <= {row["rows"] for row in rows}
    for row in rows:
        assert row["replicates"] >= 1000
        allowed = 0.05 + 3 * np.sqrt(0.05 * 0.95 / row["replicates"])
        assert row["failures"] / row["replicates"] <= allowed, row


def test_many_responses_halve_the_width_on_cifar10h_and_auto_is_never_much_wider_than_pairs():
    for row in counts_page.kept("intervals-from-counts-widths")["rows"]:
        for cells in row["miss_rates"].values():
            widths = {method: cell["width"] for method, cell in cells.items()}
            if "CIFAR-10H" in row["data"]:
                assert widths["counts"] <= 0.5 * widths["pairs"]
                assert widths["auto"] <= 0.5 * widths["pairs"]
            assert widths["auto"] <= 1.05 * widths["pairs"], row
            assert widths["oracle"] <= min(widths["pairs"], widths["counts"]), row


def test_what_the_page_says_of_the_limits_and_of_higher_moments():
    rows = counts_page.kept("intervals-from-counts-limits")["rows"]
    (fifty,) = (row for row in rows["limits"] if row["num_responses"] == 50)
    assert 0.75 < fifty["counts"] / fifty["pairs"] < 0.85
    assert 0.5 < fifty["oracle"] / fifty["pairs"] < 0.6
    for row in rows["moments"]:
        assert row["moments"]["2"] < row["moments"]["4"] < row["moments"]["6"]


def test_calibration_by_counts_costs_at_most_five_times_algorithm_1():
    rows = counts_page.kept("counts-cost")["rows"]
    assert max(row["rows"] for row in rows) >= 10**6
    assert all(row["ratio"] <= 5 for row in rows)
    # Constant memory: what a quarter of the rows takes, or it is of the size of a chunk.
    assert all(row["megabytes"] <= 1.5 * row["megabytes_for_a_quarter"] for row in rows)
    whole = counts_page.kept("counts-cost")["end_to_end"]
    assert {row["num_responses"] for row in whole} == {2, 5, 50}
    assert all(row["rows"] >= 10**6 and row["ratio"] <= 5 for row in whole)


def test_more_rows_and_more_responses_are_planned_to_give_narrower_intervals():
    record = counts_page.kept("intervals-from-counts-planning")
    widths = {(row["num_rows"], row["num_responses"]): row["width"] for row in record["rows"]}
    for (rows, responses), width in widths.items():
        # The standard deviation of a mean over ten sets is about a hundredth.
        assert all(w <= width + 0.03 for (n, k), w in widths.items() if n > rows and k == responses)
        assert all(w <= width + 0.03 for (n, k), w in widths.items() if n == rows and k > responses)


def test_auto_is_never_much_wider_than_pairs_on_fresh_worlds_and_fails_no_more_than_promised():
    rows = counts_page.kept("intervals-from-counts-auto")["rows"]
    assert {row["num_responses"] for row in rows if row.get("fresh")} == {2, 8, 30}
    for row in rows:
        if "widths" in row:
            assert row["widths"]["auto"] <= 1.05 * row["widths"]["pairs"], row
        else:
            assert row["replicates"] >= 1000
            allowed = 0.05 + 3 * np.sqrt(0.05 * 0.95 / row["replicates"])
            assert row["failures"] / row["replicates"] <= allowed, row


def test_what_the_page_says_of_snapshot_training():
    record = counts_page.kept("snapshots")
    cells = counts_page._cells(record)
    assert {k for name, k, _ in cells if name == "CIFAR-10H"} == {2, 3, 5, 10, 50}
    assert all(len(rows) == 3 for rows in cells.values())

    def mean(name, k, loss, entry="log_likelihood"):
        return np.mean([row["recalibrated"][entry] for row in cells[name, k, loss]])

    likelihoods = [mean("CIFAR-10H", k, "snapshot") for k in (2, 3, 5, 10, 50)]
    assert likelihoods == sorted(likelihoods)
    for name, k, loss in cells:
        if loss == "all_pairs":
            assert mean(name, k, "snapshot") > mean(name, k, loss)
    errors = {
        k: np.mean([r["recalibrated"]["higher_order_ece"]["40"] for r in rows])
        for (name, k, loss), rows in cells.items()
        if (name, loss) == ("CIFAR-10H", "snapshot")
    }
    assert min(errors, key=errors.__getitem__) == 10
