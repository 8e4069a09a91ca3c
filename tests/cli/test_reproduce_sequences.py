"""The commands of the sequence experiments: they pass their options on and print the claims."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from secondguess.cli.app import app


def pretend(monkeypatch: pytest.MonkeyPatch, target: str) -> list[tuple[str, int]]:
    """Replace a run by one that only writes a claim; returns the calls it gets."""
    calls: list[tuple[str, int]] = []

    def run(*, preset: str, out: Path, seed: int) -> Path:
        calls.append((preset, seed))
        directory = out / f"seed-{seed}"
        directory.mkdir(parents=True)
        claim = {"name": "it works", "holds": seed == 3, "value": 0.25, "bound": 0.5}
        (directory / "result.json").write_text(json.dumps({"claims": [claim]}))
        return directory

    monkeypatch.setattr(target, run)
    return calls


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("digits-of-pi", "secondguess.experiments.digits_of_pi.run.run_digits_of_pi"),
        ("frozen-lake", "secondguess.experiments.frozen_lake.run.run_frozen_lake"),
    ],
)
def test_one_command_runs_several_seeds(monkeypatch, tmp_path, command, target):
    calls = pretend(monkeypatch, target)
    arguments = ["reproduce", command, "--preset", "cpu", "--seed", "3", "--seeds", "2"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert calls == [("cpu", 3), ("cpu", 4)]
    assert "holds  it works: 0.25 (0.5)" in result.output
    assert "FAILS  it works: 0.25 (0.5)" in result.output
