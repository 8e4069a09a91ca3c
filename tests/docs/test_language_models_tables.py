"""The tables on language models: made from committed measurements, and true."""

from __future__ import annotations

import language_models
import numpy as np
from pages import DOCS

FAILURE_RATE = 0.05
"""Which `benchmarks/thresholds.py` promises."""


def test_the_page_holds_what_the_measurements_say() -> None:
    assert language_models.rendered() == (DOCS / language_models.PAGE).read_text()


def test_thresholds_fail_at_most_at_their_rate_beyond_noise() -> None:
    rows = language_models.kept("guaranteed-thresholds")["rows"]
    own = [row for row in rows if row["rule"] == "secondguess"]
    assert len({row["world"] for row in own}) >= 4
    for row in own:
        assert row["num_sets"] >= 1000
        allowed = FAILURE_RATE + 3 * np.sqrt(FAILURE_RATE * (1 - FAILURE_RATE) / row["num_sets"])
        assert row["failures"] / row["num_sets"] <= allowed, row
