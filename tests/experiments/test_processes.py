"""Experiments side by side in processes of their own: progress, crashes, interrupts, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from experiments.bits_experiment import BITS, run_bits
from experiments.toy_experiment import CRASH, THREADS, TOO_SMALL, TOY, UNMEASURED, WAITING, WRONG
from typer.testing import CliRunner

from secondguess.cli.app import app
from secondguess.experiments import processes
from secondguess.experiments.jobs import Job, jobs_of
from secondguess.experiments.needs import NEEDS
from secondguess.experiments.processes import run_side_by_side
from secondguess.experiments.registry import EXPERIMENTS, Experiment

TESTS = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(processes.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(source)]))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("SECONDGUESS_DATA", raising=False)


def use(monkeypatch: pytest.MonkeyPatch, experiments: dict[str, Experiment]) -> None:
    for name in list(EXPERIMENTS):
        monkeypatch.delitem(EXPERIMENTS, name)
    for name, experiment in experiments.items():
        monkeypatch.setitem(EXPERIMENTS, name, experiment)


def test_progress_grows_and_a_crash_does_not_hide_the_others(tmp_path):
    heard: list[tuple[str, str, float]] = []
    jobs = [
        job
        for name, experiment in {"crash": CRASH, "toy": TOY}.items()
        for job in jobs_of(name, experiment, preset="quick", out=tmp_path)
    ]
    crash, toy = run_side_by_side(jobs, lambda *event: heard.append(event))
    assert crash.error == "RuntimeError: the lake has melted"
    assert "Traceback" in crash.job.log.read_text()
    assert toy.error is None
    assert [claim.holds for claim in toy.claims] == [True, False]
    of_toy = [(part, share) for title, part, share in heard if title == "toy"]
    shares = [share for _, share in of_toy]
    assert shares == sorted(shares)
    assert {part for part, _ in of_toy} == {"starting", "before", "training", "after"}
    # The second seed's training begins at a half and a sixth, and tells of every tenth step.
    after_ten_steps = shares[shares.index(2 / 3) + 1]
    assert after_ten_steps == pytest.approx(1 / 2 + 1 / 6 + 1 / 6 * 10 / 60)


def test_every_process_has_one_thread_whatever_the_environment_says(tmp_path):
    jobs = jobs_of("threads", THREADS, preset="quick", out=tmp_path)
    assert [job.title for job in jobs] == ["threads seed 0", "threads seed 1"]
    outcomes = run_side_by_side(jobs, lambda *event: None)
    assert [outcome.error for outcome in outcomes] == [None, None]
    for seed in (0, 1):
        found = json.loads((tmp_path / f"threads-{seed}.json").read_text())
        assert found == {"torch": 1, "variable": "1"}


def test_a_seed_gives_the_same_bits_whatever_the_threads_and_whatever_else_runs(
    monkeypatch, tmp_path
):
    """Alone with one thread, beside another with two, and in a process that uses two."""

    def metrics_of(directory: Path) -> object:
        return json.loads((directory / "result.json").read_text())["metrics"]

    jobs = jobs_of("bits", BITS, preset="quick", out=tmp_path / "beside")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    beside, other = run_side_by_side(jobs, lambda *event: None, num_processes=2)
    assert (beside.error, other.error) == (None, None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    [alone] = run_side_by_side(
        jobs_of("bits", BITS, preset="quick", out=tmp_path / "alone", num_seeds=1),
        lambda *event: None,
    )
    num_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        here = run_bits(preset="quick", out=tmp_path / "here", seed=0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(num_threads)
    found = [metrics_of(each) for each in (*beside.directories, *alone.directories, here)]
    assert found[0] == found[1] == found[2]
    assert metrics_of(other.directories[0]) != found[0]


def test_processes_overlap_up_to_the_number_asked_for(monkeypatch, tmp_path):
    """Each may end only once the next has been counted, so that no pause can change the counts."""
    alive: list[int] = []
    started: list[processes._Running] = []
    start = processes._Running.__init__

    def counted(running: processes._Running, index: int, job: Job) -> None:
        start(running, index, job)
        started.append(running)
        alive.append(sum(each._process.poll() is None for each in started))
        for seed in {0: [], 1: [0], 2: [1, 2]}[index]:
            (tmp_path / f"may-end-{seed}").touch()

    monkeypatch.setattr(processes._Running, "__init__", counted)
    jobs = jobs_of("waiting", WAITING, preset="quick", out=tmp_path)
    outcomes = run_side_by_side(jobs, lambda *event: None, num_processes=2)
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert alive == [1, 2, 2]


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


def test_a_part_beside_the_others_is_computed_once_and_judged_with_them(monkeypatch, tmp_path):
    use(monkeypatch, {"toy": replace(TOY, beside={"before": 0.5}), "cifar10h": CRASH})
    result = CliRunner().invoke(app, ["reproduce", "--preset", "quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "toy before: before (0% done)" in result.output
    assert result.output.count("claims hold") == 1
    computed = (tmp_path / "computed.txt").read_text().splitlines()
    assert sorted(computed) == [
        f"seed-{seed} {part}" for seed in (0, 1) for part in ("after", "before", "training")
    ]
    assert (tmp_path / "toy" / "quick" / "seed-1" / "result.json").exists()


def test_one_experiment_runs_the_seeds_that_were_asked_for(monkeypatch, tmp_path):
    use(monkeypatch, {"digits-of-pi": TOY})
    arguments = ["reproduce", "digits-of-pi", "--preset", "cpu", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*arguments, "--seed", "3", "--seeds", "2"])
    assert result.exit_code == 0, result.output
    assert "FAILS  the seed is even: 3 (0)" in result.output
    assert "holds  the seed is even: 4 (0)" in result.output
    assert str(tmp_path / "toy" / "cpu" / "seed-4" / "result.json") in result.output


def test_no_number_and_too_small_a_preset_are_told_for_what_they_are(monkeypatch, tmp_path):
    use(monkeypatch, {"frozen-lake": UNMEASURED, "cifar10h": CRASH})
    monkeypatch.setitem(NEEDS, ("frozen-lake", "quick"), TOO_SMALL)
    arguments = ["--preset", "quick", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 0, result.output
    before, after = result.output.split("frozen-lake: 0 of 1 claims hold; 1 needs cpu")
    announced = "claims 'large: ...' need --preset cpu and are not judged: it is small."
    assert announced in " ".join(before.split())
    assert "does not hold: error of no answer: no number (0.1)" in after
    assert "large" not in after
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<strong>0</strong> of 1 checks hold; 1 more need a larger preset" in page
    assert "needs cpu" in page

    result = CliRunner().invoke(app, ["reproduce", "frozen-lake", *arguments])
    assert result.exit_code == 0, result.output
    assert "FAILS  error of no answer: no number (0.1)" in result.output
    assert "       large: size: 1 (2, needs cpu)" in result.output


def test_a_mistake_in_the_options_is_told_without_a_traceback(monkeypatch, tmp_path):
    use(monkeypatch, {"frozen-lake": WRONG})
    result = CliRunner().invoke(app, ["reproduce", "frozen-lake", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "secondguess: methods has 'magic'; expected some of none." in result.output
    assert "Traceback" not in result.output


COMMAND = """
import signal
# Tests that run in the background of a script inherit that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from experiments.bits_experiment import BITS, run_bits
from experiments.toy_experiment import TOY
from secondguess.cli.app import app
from secondguess.experiments.registry import EXPERIMENTS
EXPERIMENTS.clear()
EXPERIMENTS.update({"toy": TOY, "cifar10h": TOY})
app()
"""


def start(out: Path) -> subprocess.Popen[str]:
    # In a process group of its own, to which Ctrl-C of a terminal would go as a whole.
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "reproduce", "--preset", "quick", "--out", str(out)],
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


def test_interrupted_twice_it_resumes_to_the_same_result(tmp_path):
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


def test_an_impatient_second_interrupt_leaves_what_can_be_resumed(tmp_path):
    (tmp_path / "slow").touch()
    process = start(tmp_path)
    checkpoints = tmp_path / "toy" / "quick" / "seed-0" / "parts" / "training/checkpoints"
    wait_for(checkpoints / "step-000000010.safetensors")
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.02)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    (tmp_path / "slow").unlink()
    output, _ = start(tmp_path).communicate()
    assert "toy: 1 of 2 claims hold" in output
