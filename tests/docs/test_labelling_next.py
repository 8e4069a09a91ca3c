"""Learning curves: the page is made from committed results, whole, and says what they say."""

from __future__ import annotations

import labelling_next
import numpy as np
from pages import DOCS, filled

ROWS = labelling_next.measured()


def gap(data: str, way: str, key: str) -> tuple[float, float]:
    """Beside random in the end: the mean over seeds, and its standard error."""
    mine, random = (labelling_next.values(ROWS, data, each, 1000, key) for each in (way, "random"))
    return (mine - random).mean(), (mine - random).std(ddof=1) / np.sqrt(len(mine))


def test_the_page_holds_what_the_results_say() -> None:
    tables = labelling_next.TABLES
    assert filled(labelling_next.PAGE, tables) == (DOCS / labelling_next.PAGE).read_text()


def test_nothing_is_left_out() -> None:
    points = sorted((row["data"], row["seed"], row["way"], row["items"]) for row in ROWS)
    assert points == sorted(
        (data, seed, way, items)
        for data in labelling_next.DATA
        for seed in labelling_next.SEEDS
        for way in labelling_next.WAYS
        for items in range(100, 1001, 100)
    )


def test_all_ways_of_a_seed_begin_with_the_same_items() -> None:
    for data in labelling_next.DATA:
        first = [
            labelling_next.values(ROWS, data, way, 100, "log_loss") for way in labelling_next.WAYS
        ]
        np.testing.assert_array_equal(first[0], first[1])
        np.testing.assert_array_equal(first[0], first[2])


def test_what_the_page_says_of_the_end_of_the_curves() -> None:
    for key in ("log_loss", "grouping_error"):
        better, noise = gap("CIFAR-10N", "epistemic variance", key)
        assert better < -2 * noise
        for way in ("epistemic variance", "p(1 - p)"):
            worse, noise = gap("CEBaB", way, key)
            assert worse > 2 * noise
    by_naive, _ = gap("CIFAR-10N", "p(1 - p)", "log_loss")
    assert gap("CIFAR-10N", "epistemic variance", "log_loss")[0] < 0 < by_naive
