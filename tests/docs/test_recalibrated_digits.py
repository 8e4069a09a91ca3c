"""Tables of recalibrated digits of pi, for runs that hold the recalibration."""

from __future__ import annotations

from typing import Any

import digits_of_pi
import pytest


def run(seed: int, made_up: float) -> dict[str, Any]:
    def measured(rate: float) -> dict[str, Any]:
        band = {"weight": 0.1, "confidence": 0.8, "hallucination_rate": rate}
        return {
            "decile_confidence": [0.5] * 10,
            "decile_hallucination_rate": [0.5] * 9 + [0.5 + rate],
            "bands": [band, band, band, {"weight": 0.0}],
        }

    found = {"before": measured(made_up), "after": measured(0.0)}
    return {"preset": "cpu", "seed": seed, "metrics": {"recalibration": {"exact": found}}}


def test_seeds_are_averaged_and_runs_without_a_recalibration_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = {"preset": "quick", "seed": 0, "metrics": {}}
    monkeypatch.setattr(digits_of_pi, "results", lambda: [older, run(0, 0.1), run(1, 0.2)])
    before, after = (
        line.split(" | ")[-1] for line in digits_of_pi.recalibrated_deciles().splitlines()[3::2]
    )
    assert (before, after) == ("0.150 |", "0.000 |")
    _, _, *rows = digits_of_pi.bands().splitlines()
    assert len(rows) == 2
    assert "| cpu | 2 | before | 10.0%; 0.200 ± 0.000; 0.150 ± 0.050 |" in rows[0]
    assert rows[0].endswith("| 0.0% |")
