"""The tables on intervals from counts: made from committed results, and true."""

from __future__ import annotations

import counts_page
import numpy as np
from pages import DOCS, filled


def test_the_page_holds_what_the_results_say():
    assert filled(counts_page.PAGE, counts_page.TABLES) == (DOCS / counts_page.PAGE).read_text()


def test_no_cell_fails_more_often_than_promised_beyond_noise():
    rows = counts_page.result("intervals-from-counts-failures")["rows"]
    assert {row["family"] for row in rows} == {"symmetric", "beta"}
    assert {50, 100_000} <= {row["rows"] for row in rows}
    for row in rows:
        assert row["replicates"] >= 1000
        allowed = 0.05 + 3 * np.sqrt(0.05 * 0.95 / row["replicates"])
        assert row["failures"] / row["replicates"] <= allowed, row


def test_many_responses_halve_the_width_on_cifar10h_and_auto_loses_little():
    for row in counts_page.result("intervals-from-counts-widths")["rows"]:
        for cells in row["miss_rates"].values():
            widths = {method: cell["width"] for method, cell in cells.items()}
            if "CIFAR-10H" in row["data"]:
                assert widths["counts"] <= 0.5 * widths["pairs"]
            assert widths["auto"] <= 1.05 * min(widths["pairs"], widths["counts"]), row


def test_calibration_by_counts_costs_at_most_five_times_algorithm_1():
    rows = counts_page.result("counts-cost")["rows"]
    assert max(row["rows"] for row in rows) >= 10**6
    assert all(row["ratio"] <= 5 for row in rows)
