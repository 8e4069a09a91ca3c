"""Methods that were run later than the others of their table."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cifar10h_add import added
from pages import DOCS


def test_a_method_is_added_and_judged_and_another_preset_is_refused() -> None:
    kept = json.loads((DOCS / "results" / "cifar10h-cpu.json").read_text())
    better = {
        key: [value / 10 for value in values]
        for key, values in kept["metrics"]["original"]["cheat-sngp"].items()
    }
    newer = kept | {
        "metrics": {"original": {"cheat-sngp": better}},
        "recipes": {},
        "seconds": {"original/cheat-sngp": 1.0},
        "learning_curves": {},
    }
    result = added(kept, newer)
    assert result["metrics"]["original"]["cheat-sngp"] == better
    others = {"cheat-sngp", "cheat-sngp-recalibrated"}
    for variant, rows in kept["metrics"].items():
        for row in rows.keys() - others:
            assert result["metrics"][variant][row] == rows[row]
    assert result["added"].keys() == kept.get("added", {}).keys() | {"cheat-sngp"}
    assert result["added"]["cheat-sngp"]["config"] == newer["config"]
    before = result["added"]["cheat-sngp"]["replaced"]["original"]["cheat-sngp"]
    assert before["kl"] == pytest.approx(10 * np.mean(better["kl"]), abs=1e-6)
    verdicts = {claim["name"]: claim["holds"] for claim in result["claims"]}
    assert verdicts["CIFAR-10H: Cheat SNGP has a lower ECE-2 than Cheat NN"]
    assert not verdicts["Scrambled: Cheat SNGP has a lower ECE-2 than Cheat NN"]
    with pytest.raises(ValueError, match="the new run has preset 'quick'; expected 'cpu'"):
        added(kept, newer | {"preset": "quick"})
