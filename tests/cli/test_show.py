"""`show` reads anything: it shows what is as it should be, and names what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from secondguess.cli.app import app

RESPONSE: dict[str, Any] = {
    "text": "six",
    "tokens": ["six", "_"],
    "cheating": [0.5, 0.0],
    "epistemic_confidence": 0.6,
}
ROW: dict[str, Any] = {"line": 1, "input": {"prompt": "say"}, "responses": [RESPONSE]}
ANSWER: dict[str, Any] = {
    "line": 1,
    "input": {"prompt": "say"},
    "abstained": False,
    "bound": 0.1,
    "rests_on": "if calibrated on pairs",
    "response": RESPONSE,
}


def show(path: Path, content: str | bytes) -> Result:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return CliRunner().invoke(app, ["show", str(path)], env={"COLUMNS": "300"})


def test_rows_answers_and_abstentions(tmp_path: Path):
    rows = [ROW, ANSWER, {**ANSWER, "abstained": True}, {"line": 4, "skipped": "too long"}]
    result = show(tmp_path / "out.jsonl", "\n\n".join(map(json.dumps, rows)))
    assert result.exit_code == 0, result.output
    assert "say → six⏎  confidence 0.600, cheating +0.50 nats" in result.stdout
    assert "bound 0.100 if calibrated on pairs" in result.stdout
    assert "(abstains)" in result.stdout
    assert "skipped: too long" in result.stdout


ODD: list[Any] = [None, True, 1, -1.5, "text", [], [1], [[]], {}, {"a": 1}, [None], 10**400]
SHAPES = [
    *ODD,
    *({**ROW, "responses": odd} for odd in ODD if odd != []),
    *({**ROW, "input": odd} for odd in ODD if not isinstance(odd, dict)),
    *({**ROW, "responses": [{**RESPONSE, "tokens": odd}]} for odd in ODD),
    *({**ROW, "responses": [{**RESPONSE, "cheating": odd}]} for odd in ODD),
    *({**ROW, "responses": [{**RESPONSE, "cheating": [odd, 0.0]}]} for odd in ODD[4:]),
    *({**ROW, "responses": [{**RESPONSE, "text": odd}]} for odd in ODD if odd != "text"),
    *(
        {**ROW, "responses": [{**RESPONSE, "epistemic_confidence": odd}]}
        for odd in ODD
        if odd not in (None, 1, -1.5)
    ),
    *({**ANSWER, "bound": odd} for odd in ODD if odd not in (None, 1, -1.5)),
    *({**ANSWER, "rests_on": odd} for odd in ODD if odd != "text"),
    *({"line": 1, "skipped": odd} for odd in ODD if odd != "text"),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape)[:60])
def test_valid_json_of_any_shape_is_refused_by_line(tmp_path: Path, shape: Any):
    result = show(tmp_path / "out.jsonl", json.dumps(ROW) + "\n" + json.dumps(shape))
    assert result.exit_code == 2, result.output
    assert "out.jsonl, line 2: " in result.stderr
    assert result.stderr.endswith("expected what 'secondguess score' or 'answer' wrote.\n")
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("prompt", ODD)
def test_any_prompt_is_shown(tmp_path: Path, prompt: Any):
    if prompt != 10**400:
        assert show(tmp_path / "o", json.dumps({**ROW, "input": {"prompt": prompt}})).exit_code == 0


def test_control_characters_are_shown_not_obeyed(tmp_path: Path):
    hostile = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;ZXZpbA==\x07\u202e\ud800"
    response = {**RESPONSE, "tokens": [hostile, "_"], "text": hostile}
    rows = [
        {**ROW, "input": {"prompt": hostile}, "responses": [response]},
        {**ANSWER, "rests_on": hostile, "abstained": False},
        {**ANSWER, "input": {"prompt": [{"role": hostile}]}, "abstained": True},
        {"line": 4, "skipped": hostile},
    ]
    result = show(tmp_path / "out.jsonl", "\n".join(map(json.dumps, rows)))
    assert result.exit_code == 0, result.output
    assert not set("\x1b\x07\u202e\ud800") & set(result.stdout)
    assert result.stdout.count("\\x1b]0;owned") == 4
