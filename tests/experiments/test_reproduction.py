"""Experiments in processes of their own: progress, crashes, interruptions, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from secondguess.cli.app import app
from secondguess.experiments import worker
from secondguess.experiments.reproduction import reproduce_all

HERE = Path(__file__).parent
TOY, CRASH = "toy_experiment:run_toy", "toy_experiment:run_crash"


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(worker.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(source)]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("SECONDGUESS_DATA", raising=False)


def use(monkeypatch: pytest.MonkeyPatch, experiments: dict[str, str]) -> None:
    monkeypatch.setattr(worker, "EXPERIMENTS", experiments)
    for module in ("secondguess.experiments.reproduction", "secondguess.cli.reproduce_all"):
        monkeypatch.setattr(f"{module}.EXPERIMENTS", experiments)


def test_progress_grows_and_a_crash_does_not_hide_the_others(monkeypatch, tmp_path):
    use(monkeypatch, {"crash": CRASH, "toy": TOY})
    heard: list[tuple[str, str, float]] = []
    crash, toy = reproduce_all(
        ["crash", "toy"],
        preset="quick",
        out=tmp_path,
        data_dir=None,
        listener=lambda *event: heard.append(event),
    )
    assert crash.error == "RuntimeError: the lake has melted"
    assert "Traceback" in crash.log.read_text()
    assert toy.error is None
    assert [claim["holds"] for claim in toy.claims] == [True, False]
    shares = [share for _, _, share in heard]
    assert shares == sorted(shares)
    assert {part for _, part, _ in heard} == {"before", "training", "after"}
    # The second seed's training begins at a half and a sixth, and tells of every tenth step.
    after_ten_steps = shares[shares.index(2 / 3) + 1]
    assert after_ten_steps == pytest.approx(1 / 2 + 1 / 6 + 1 / 6 * 10 / 60)


def test_the_command_exits_as_it_promises_and_repeats_nothing(monkeypatch, tmp_path):
    arguments = ["reproduce", "--preset", "quick", "--out", str(tmp_path)]
    use(monkeypatch, {"toy": TOY, "cifar10h": CRASH})
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "cifar10h is left out" in result.output
    assert "toy: 1 of 2 claims hold" in result.output
    assert "does not hold: the seed is even: 1 (0)" in result.output
    assert (tmp_path / "report.html").exists()
    computed = (tmp_path / "computed.txt").read_text()
    assert len(computed.splitlines()) == 6

    assert CliRunner().invoke(app, [*arguments, "--strict"]).exit_code == 3
    assert (tmp_path / "computed.txt").read_text() == computed

    use(monkeypatch, {"crash": CRASH, "toy": TOY, "cifar10h": CRASH})
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "crash CRASHED: RuntimeError: the lake has melted" in result.output
    assert "toy: 1 of 2 claims hold" in result.output

    use(monkeypatch, {"crash": CRASH, "cifar10h": CRASH})
    result = CliRunner().invoke(app, [*arguments[:-1], str(tmp_path / "nothing")])
    assert result.exit_code == 1
    assert "The page" not in result.output


COMMAND = """
import signal, sys
# Tests that run in the background of a script inherit that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from secondguess.cli import reproduce_all
from secondguess.experiments import reproduction
experiments = {"toy": "toy_experiment:run_toy", "cifar10h": "none:none"}
reproduction.EXPERIMENTS = reproduce_all.EXPERIMENTS = experiments
import typer
app = typer.Typer()
@app.command()
def main() -> None:
    reproduce_all.reproduce_everything(
        preset="quick", data_dir=None, out=Path(sys.argv[1]), strict=False
    )
app([])
"""


def start(out: Path) -> subprocess.Popen[str]:
    # In a process group of its own, to which Ctrl-C of a terminal would go as a whole.
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(path: Path) -> None:
    for _ in range(1200):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} was not made in a minute")


def test_interrupted_twice_it_goes_on_to_the_same_result(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for out in (whole, parts):
        out.mkdir()
    output, _ = start(whole).communicate()
    assert "toy: 1 of 2 claims hold" in output

    (parts / "slow").touch()
    for seed in (0, 1):
        process = start(parts)
        checkpoints = parts / "toy" / "quick" / f"seed-{seed}" / "parts" / "training/checkpoints"
        wait_for(checkpoints / "step-000000010.safetensors")
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate()
        assert process.returncode == 130, output
        assert f"secondguess reproduce --preset quick --out {parts}" in output
    (parts / "slow").unlink()
    output, _ = start(parts).communicate()
    assert "toy: 1 of 2 claims hold" in output
    for seed in (0, 1):
        results = [
            json.loads((out / "toy" / "quick" / f"seed-{seed}" / "result.json").read_text())
            for out in (whole, parts)
        ]
        assert results[0]["metrics"] == results[1]["metrics"]
    # Parts that were finished stand there once, the interrupted ones twice.
    computed = (parts / "computed.txt").read_text().splitlines()
    assert computed == [
        *(f"seed-0 {part}" for part in ("before", "training", "training", "after")),
        *(f"seed-1 {part}" for part in ("before", "training", "training", "after")),
    ]
