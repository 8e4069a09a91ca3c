"""recalibrate, answers judged by their meaning, and rates that marked answers guarantee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from language.models import WORDS, pair_model
from typer.testing import CliRunner, Result

from secondguess._files import manifest_digest
from secondguess.cli.app import app
from secondguess.language.model import PairLanguageModel
from secondguess.language.windows import AnswerSettings


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pair_model("llama", response_length=3).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_recalibration_is_kept_with_the_model(folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"prompt": str(prompt), "responses": [str(word), str(word)]}
        for prompt, word in rng.choice(WORDS, size=(60, 2))
    ]
    result = run("recalibrate", folder, write_rows(tmp_path / "held-out.jsonl", rows))
    assert result.exit_code == 0, result.output
    assert "60 held-out pairs" in result.output
    model = PairLanguageModel.load(folder)
    assert model.recalibration is not None
    assert not model.recalibration.of_meanings
    shown = run("check", folder, tmp_path / "held-out.jsonl").output
    assert "the model is recalibrated" in shown


def test_check_names_the_remedy(folder: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "w1", "responses": ["w2", "w2"]}] * 40
    shown = run("check", folder, write_rows(tmp_path / "held-out.jsonl", rows)).output
    assert "remedy: secondguess recalibrate" in shown


def test_answers_can_be_judged_by_their_meaning(folder: Path, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [{"prompt": word} for word in WORDS[:4]])
    command = ("answer", folder, source, "--max-hallucination-rate", 0.999, "--ignore-check")
    options = ("--meaning", r"(\w)", "--num-candidates", 6, "--out", tmp_path / "out.jsonl")
    result = run(*command, *options)
    assert result.exit_code == 0, result.output
    for row in read_rows(tmp_path / "out.jsonl"):
        assert row["abstained"] == (row["answer"] is None)
        if not row["abstained"]:
            assert row["meaning"] == "w"
            assert row["rests_on"] == "if calibrated on pairs"
    assert run("show", tmp_path / "out.jsonl").exit_code == 0
    refused = run(*command, "--meaning", "no group", "--out", tmp_path / "other.jsonl")
    assert refused.exit_code == 2
    assert "regular expression" in refused.output
    refused = run(*command, *options[:2], "--top-k", 3, "--out", tmp_path / "other.jsonl")
    assert refused.exit_code == 2
    assert "draws from the model itself" in refused.output


def test_marked_answers_choose_the_rate(folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    gaps = rng.random(400)
    settings = AnswerSettings(max_hallucination_rate=0.99, model=manifest_digest(folder))
    how = {"settings": settings.decided_by()}
    marked = [
        {"abstained": False, "gap": float(gap), "right": bool(rng.random() > 0.5 * gap**2), **how}
        for gap in gaps
    ] + [{"abstained": True, "gap": None, **how}] * 20
    marked = [{"line": line, "input": {}, **row} for line, row in enumerate(marked, 1)]
    file = write_rows(tmp_path / "marked.jsonl", marked)
    source = write_rows(tmp_path / "in.jsonl", [{"prompt": word} for word in WORDS[:4]])
    command = ("answer", folder, source, "--labelled", file, "--max-error-rate", 0.15)
    result = run(*command, "--out", tmp_path / "out.jsonl")
    assert result.exit_code == 0, result.output
    assert "guaranteed by a calibration set" in result.output
    for row in read_rows(tmp_path / "out.jsonl"):
        assert row["abstained"] or row["gap"] < 1
    refused = run(*command, "--max-hallucination-rate", 0.1)
    assert refused.exit_code == 2
    assert "either" in refused.output
    write_rows(file, [{**row, "right": False} for row in marked])
    refused = run(*command, "--out", tmp_path / "other.jsonl")
    assert refused.exit_code == 2
    assert "mark more answers" in refused.output
    write_rows(file, [{"abstained": False, "gap": 0.1, **how}] * 30)
    refused = run(*command, "--out", tmp_path / "other.jsonl")
    assert refused.exit_code == 2
    assert "marked.jsonl, line 1" in refused.output


def marked_by(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Somebody finds every answer right that is surer than most."""
    gaps = [row["gap"] for row in rows if row["gap"] is not None]
    limit = float(np.median(gaps))
    return [{**row, "right": row["gap"] is not None and row["gap"] <= limit} for row in rows]


@pytest.mark.parametrize("strategy", ["selective", "rejection", "top1"])
def test_a_guaranteed_answer_is_the_one_that_was_marked_or_none(
    folder: Path, tmp_path: Path, strategy: str
) -> None:
    """A decoder that is told a smaller rate chooses others, which nobody has marked."""
    rng = np.random.default_rng(0)
    prompts = [{"prompt": " ".join(rng.choice(WORDS, size=3))} for _ in range(300)]
    source = write_rows(tmp_path / "in.jsonl", prompts)
    options = ("--strategy", strategy, "--num-candidates", 4)
    whole = tmp_path / "all.jsonl"
    command = ("answer", folder, source, *options)
    result = run(*command, "--max-hallucination-rate", 0.99, "--ignore-check", "--out", whole)
    assert result.exit_code == 0, result.output
    before = read_rows(whole)
    marked = write_rows(tmp_path / "marked.jsonl", marked_by(before))
    result = run(
        *command, "--labelled", marked, "--max-error-rate", 0.3, "--out", tmp_path / "out.jsonl"
    )
    assert result.exit_code == 0, result.output
    after = read_rows(tmp_path / "out.jsonl")
    given = [
        (one["answer"], other["answer"])
        for one, other in zip(before, after, strict=True)
        if not other["abstained"]
    ]
    assert 10 < len(given) < sum(not row["abstained"] for row in before)
    assert all(one == other for one, other in given)


def test_marks_of_answers_that_were_decided_otherwise_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    prompts = [{"prompt": " ".join(rng.choice(WORDS, size=3))} for _ in range(40)]
    source = write_rows(tmp_path / "in.jsonl", prompts)
    whole = tmp_path / "all.jsonl"
    run("answer", folder, source, "--max-hallucination-rate", 0.99, "--out", whole)
    marked = write_rows(tmp_path / "marked.jsonl", marked_by(read_rows(whole)))
    command = ("answer", folder, source, "--labelled", marked, "--out", tmp_path / "out.jsonl")
    for option, named in (
        (("--strategy", "top1"), "strategy"),
        (("--temperature", 0.5), "sampling"),
        (("--gap", "clipped"), "gap"),
        (("--meaning", "words"), "meaning"),
    ):
        refused = run(*command, *option)
        assert refused.exit_code == 2
        assert named in refused.output
    refused = run("serve", folder, "--labelled", marked)  # which has another default
    assert refused.exit_code == 2
    assert "strategy is 'rejection' and was 'selective'" in refused.output
    rows = read_rows(marked)
    write_rows(tmp_path / "mixed.jsonl", [rows[0], {**rows[1], "settings": {"strategy": "top1"}}])
    refused = run("answer", folder, source, "--labelled", tmp_path / "mixed.jsonl")
    assert refused.exit_code == 2
    assert "line 2" in refused.output
    pair_model("gpt2", response_length=3).save(folder)
    refused = run(*command)
    assert refused.exit_code == 2
    assert "model" in refused.output
