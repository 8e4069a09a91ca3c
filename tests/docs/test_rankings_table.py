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


def test_probability_ranks_better_for_labels_and_variance_does_not_for_probabilities() -> None:
    def signs(loss: str) -> list[float]:
        found = [gaps(data, loss) for data in rankings.DATA]
        noise = [gap.std(ddof=1) / np.sqrt(len(gap)) for gap in found]
        return [gap.mean() / error for gap, error in zip(found, noise, strict=True)]

    assert sum(sign > 1 for sign in signs("majority")) == 5
    assert sum(sign > 1 for sign in signs("disagreement")) == 5
    squared = signs("squared_error")
    assert sum(sign > 1.5 for sign in squared) == 3
    assert min(squared) > -2
