"""A few of the accidents of `trials.py`, in a process of their own: forks need a clean parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import secondguess

TRIALS = Path(__file__).with_name("trials.py")


def counted(out: Path, *arguments: object) -> dict[str, dict[str, dict[str, int]]]:
    """The counts of some accidents; each must end well."""
    source = Path(secondguess.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(TRIALS), "--out", str(out), *map(str, arguments)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counts = json.loads(out.read_text())["counts"]
    for each in counts["saves"].values():
        assert each["earlier"] + each["new"] == each["kills"] > 0
        assert each["mixed or torn"] == 0
    for each in counts["kills"].values():
        assert each["same bytes"] == each["ends"] > 0
        assert each["other bytes"] == each["litter"] == each["processes left"] == 0
    for each in counts["pairs"].values():
        assert each["anything else"] == 0
        assert each["whole outputs"] == each["pairs"] > 0
    return counts


def test_a_few_accidents(tmp_path: Path) -> None:
    few = ("--saves", 4, "--kills", 2, "--pairs", 1)
    names = ("PairClassifier.save", "PairLanguageModel.save", "fit", "score", "intervals")
    counts = counted(tmp_path / "counts.json", *few, "--only", *names)
    assert {kind: len(each) for kind, each in counts.items()} == {
        "saves": 2,
        "kills": 2,
        "pairs": 3,
    }


@pytest.mark.slow
def test_accidents_of_every_kind(tmp_path: Path) -> None:
    counts = counted(tmp_path / "counts.json", "--saves", 20, "--kills", 5, "--pairs", 4)
    assert {kind: len(each) for kind, each in counts.items()} == {
        "saves": 2, "kills": 5, "pairs": 10,
    }  # fmt: skip
