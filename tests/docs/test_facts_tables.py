"""Tables of facts over several seeds, families and models."""

from __future__ import annotations

import json
import runpy
from copy import deepcopy
from pathlib import Path
from typing import Any

import facts
import numpy as np
import pages
import pytest

KEEP = pages.DOCS / "results" / "keep.py"


def cells(text: str) -> list[list[str]]:
    """The rows of a table, without its heads."""
    return [[cell.strip() for cell in line.split(" | ")] for line in text.splitlines()[2:]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Three seeds, whose first is kept and whose errors cancel out, and a family."""
    first = json.loads((pages.DOCS / "results" / "facts-cpu-seed-0.json").read_text())
    found = [first, *(deepcopy(first) for _ in range(3))]
    for seed, move in enumerate((0.06, -0.06, 0.0)):
        run = found[seed]
        run["seed"], run["metrics"]["recalibration"]["first"]["slope"] = seed, 1.0
        run["metrics"]["recalibration"]["first"]["offset"] = 0.0 if seed else 0.5
        ours = run["metrics"]["scores"][facts.OURS]
        ours["deciles"] = [(0.5, 0.5)] * 9 + [(0.8, 0.8 + move)]
        ours["answered"]["0.1"] = (0.0, 0.1, 0.3)[seed]
        ours["wrong_among_answered"]["0.1"] = (None, 0.08, 0.04)[seed]
    for run in found[1:]:
        run["config"]["num_for_rivals"] = 0
        del run["metrics"]["rivals"]
    found[3]["experiment"] = "facts-word-kinds"
    monkeypatch.setattr(pages, "results", lambda _: found)
    return found


def test_seeds_stand_by_themselves_and_pooled(runs: list[dict[str, Any]]) -> None:
    *seeds, pooled = cells(facts.noise())
    assert [row[2] for row in seeds] == ["0.060", "0.060", "0.000"]
    assert pooled[:3] == ["| 3 seeds pooled", f"{3 * facts.per_decile(runs[0]):,}", "0.000"]
    # Pooled, chance makes less of a difference, by the root of three.
    assert float(seeds[0][3]) / float(pooled[3]) == pytest.approx(3**0.5, rel=0.02)
    tenth = [row[-1].removesuffix(" |") for row in cells(facts.deciles())]
    assert tenth[:6] == ["0.800", "0.860", "0.800", "0.740", "0.800", "0.800"]
    assert tenth[6:8] == ["0.800", "0.800"]
    assert "not reached" not in facts.finding()
    assert "of 3 seeds" in facts.finding()
    found = [row[2] for row in cells(facts.lines())]
    assert found == [f"1.00 times its logit {offset}" for offset in ("+0.50", "+0.00", "+0.00")]


def test_what_is_wrong_is_a_share_of_all_that_is_answered(runs: list[dict[str, Any]]) -> None:
    mean, *each = cells(facts.rivals())[:4]
    assert [row[4] for row in each] == ["0.0%", "10.0% (8.0%)", "30.0% (4.0%)"]
    assert mean[4] == "13.3% (5.0%)"


def test_every_run_has_a_row_and_what_is_missing_is_said(runs: list[dict[str, Any]]) -> None:
    rows = cells(facts.families())
    assert [row[0] for row in rows] == ["| cities"] * 3 + ["| word-kinds"]
    said = facts.missing()
    assert "german-articles" in said
    assert "word-kinds" not in said
    assert "more seeds" not in said
    assert len(facts.results()) == 3  # the family is on no other table
    for make in (facts.few, facts.costs, facts.claims, facts.rendered):
        assert make()


@pytest.mark.statistical
def test_chance_is_that_of_calibrated_answers() -> None:
    """Of calibrated runs, a twentieth is as large as chance makes a twentieth of its own.

    The seed is fixed; 2,000 runs have a standard error of 0.005, and the bounds are at four.
    """
    rng = np.random.default_rng(0)
    means = np.array([[0.01, 0.05, 0.1, 0.2, 0.4, 0.5, 0.6, 0.8, 0.9, 0.97]] * 2)
    parts = np.stack([means, means], axis=-1)
    limit = np.quantile(facts.by_chance(parts, 200), 0.95)
    shares = rng.binomial(200, means, size=(2000, *means.shape)) / 200
    found = [facts.largest_difference(np.stack([means, each], axis=-1)) for each in shares]
    assert np.mean(np.array(found) > limit) == pytest.approx(0.05, abs=0.02)


def test_numbers_are_kept_without_the_folders_of_models(tmp_path: Path) -> None:
    keep = runpy.run_path(str(KEEP))["keep_numbers"]
    run = {"experiment": "facts", "preset": "cpu", "seed": 4, "config": {"model": "/home/a/b.gguf"}}
    (tmp_path / "result.json").write_text(json.dumps(run))
    copy = keep(tmp_path, tmp_path)
    assert copy.name == "facts-cpu-seed-4.json"
    assert json.loads(copy.read_text()) == {**run, "config": {"model": "b.gguf"}}
    # Where the model is a setting of the training.
    nested = {**run, "config": {"seed": 4, "training": {"model": "/home/a/b.gguf"}}}
    (tmp_path / "result.json").write_text(json.dumps(nested))
    assert json.loads(keep(tmp_path, tmp_path).read_text())["config"]["training"] == {
        "model": "b.gguf"
    }
