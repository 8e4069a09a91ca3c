"""Marked answers: what they guarantee, and which files of marks guarantee nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secondguess.language.marked import MarkedAnswers, read_marked
from secondguess.language.windows import AnswerSettings

SETTINGS = AnswerSettings(max_hallucination_rate=0.99, model="digest")


def marked_rows(num_rows: int, *, num_abstained: int = 0, seed: int = 0) -> list[dict[str, Any]]:
    """Answers that are all right if their gap is below a half, and abstentions among them."""
    gaps = np.random.default_rng(seed).random(num_rows)
    rows: list[dict[str, Any]] = [
        {"abstained": False, "gap": float(gap), "right": bool(gap < 0.5)} for gap in gaps
    ]
    rows += [{"abstained": True, "gap": None}] * num_abstained
    how = SETTINGS.decided_by()
    return [
        {"line": line, "input": {"prompt": f"{line % 50}"}, "settings": how, **row}
        for line, row in enumerate(rows, 1)
    ]


def read(path: Path, rows: list[dict[str, Any]], max_error_rate: float = 0.1) -> MarkedAnswers:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_marked(path, SETTINGS, max_error_rate=max_error_rate, failure_rate=0.05)


def test_the_order_of_the_marks_is_not_what_is_certified(tmp_path: Path) -> None:
    """Sorted by their gaps, the first fifth has no wrong answer, and is not what chooses."""
    rows = marked_rows(400)
    as_drawn = read(tmp_path / "marked.jsonl", rows)
    in_order = read(tmp_path / "marked.jsonl", sorted(rows, key=lambda row: row["gap"]))
    for found in (as_drawn, in_order):
        assert 0.45 < found.max_gap < 0.56
        assert found.threshold.num_wrong <= 0.1 * found.threshold.num_answered


def test_abstentions_are_no_threshold(tmp_path: Path) -> None:
    """So few that everything could be answered: which an abstention never is."""
    rows = [{**row, "right": True} for row in marked_rows(400, num_abstained=12)]
    assert 0.9 < read(tmp_path / "marked.jsonl", rows).max_gap < 1


def test_a_prompt_is_marked_once(tmp_path: Path) -> None:
    """Joined to itself, a file would be worth twice as many independent answers as it has."""
    rows = marked_rows(30)
    path = tmp_path / "marked.jsonl"
    with pytest.raises(ValueError, match=r"line 31: .* line 1 .*once"):
        read(path, rows + rows)
    again = [{**row, "gap": row["gap"] / 2} for row in rows]  # answered with another seed
    with pytest.raises(ValueError, match="line 31: "):
        read(path, rows + again)


def test_marks_of_two_sets_of_prompts_can_be_joined(tmp_path: Path) -> None:
    others = [
        {**row, "input": {"prompt": f"other {row['line']}"}} for row in marked_rows(200, seed=1)
    ]
    found = read(tmp_path / "marked.jsonl", marked_rows(200) + others)
    assert found.threshold.num_rows == 320


def test_marks_of_another_model_are_refused(tmp_path: Path) -> None:
    rows = marked_rows(40)
    rows[35]["settings"] = rows[35]["settings"] | {"model": "other"}
    with pytest.raises(ValueError, match=r"line 36: .*model is 'digest' and was 'other'"):
        read(tmp_path / "marked.jsonl", rows)


def test_an_answer_that_nobody_marked_is_refused(tmp_path: Path) -> None:
    rows = marked_rows(40)
    del rows[7]["right"]
    with pytest.raises(ValueError, match=r"line 8: no mark.*leave out at random"):
        read(tmp_path / "marked.jsonl", rows)


def test_lines_that_were_skipped_say_nothing(tmp_path: Path) -> None:
    rows = marked_rows(200)
    with_skipped = [{"line": 201, "skipped": "no prompt"}, *rows]
    path = tmp_path / "marked.jsonl"
    assert read(path, with_skipped) == read(path, rows)


def test_too_few_marks_are_counted_in_words_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"marked\.jsonl has 7 answers.* at least 20"):
        read(tmp_path / "marked.jsonl", marked_rows(7))
