"""The table on rankings: made from committed results, whole, and true to what the page says."""

from __future__ import annotations

import numpy as np
import rankings
from pages import DOCS, filled

ROWS = rankings.measured()


def gaps(data: str, loss: str) -> np.ndarray:
    """Ranking by variance less ranking by probability, one number per seed."""
    mine = [row for row in ROWS if row["data"] == data]
    return np.array([row[f"{loss} by variance"] - row[f"{loss} by probability"] for row in mine])


def test_the_page_holds_what_the_results_say() -> None:
    assert filled(rankings.PAGE, rankings.TABLES) == (DOCS / rankings.PAGE).read_text()


def test_nothing_is_left_out() -> None:
    cells = sorted((row["data"], row["seed"]) for row in ROWS)
    assert cells == sorted((data, seed) for data in rankings.DATA for seed in range(5))


def test_what_the_page_says_of_each_loss() -> None:
    def signs(loss: str) -> dict[str, float]:
        found = {data: gaps(data, loss) for data in rankings.DATA}
        return {
            data: gap.mean() / (gap.std(ddof=1) / np.sqrt(len(gap))) for data, gap in found.items()
        }

    for loss in ("majority", "disagreement"):
        better = {data for data, sign in signs(loss).items() if sign > 1.5}
        assert better == {"CEBaB", "CIFAR-10H", "CIFAR-10N", "teacher"}
        assert min(signs(loss).values()) > -1.5
    squared = signs("squared_error")
    assert {data for data, sign in squared.items() if sign < -2} == {"CEBaB", "teacher"}
    assert max(squared.values()) < 2
