"""What the command says of itself, and to somebody who lacks a package."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from secondguess.cli.app import app
from secondguess.cli.errors import user_errors
from secondguess.training.signals import TrainingStopped

ITEMS = "p,v,y1,y2\n" + "0.5,0.1,1,0\n0.5,0.1,0,1\n0.4,0.1,1,1\n0.3,0.1,0,0\n" * 15


def run(*arguments: object) -> Result:
    # As wide as the longest line, so that no text is broken.
    return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "400"})


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize(
    ("path", "command"), COMMANDS, ids=[" ".join(path) or "secondguess" for path, _ in COMMANDS]
)
def test_help_shows_every_text_as_it_was_written(path: tuple[str, ...], command: Any) -> None:
    """Text in square brackets, taken for markup, would silently vanish."""
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert command.help
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} has no help"
        assert parameter.help in result.output


def test_a_missing_package_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    file = tmp_path / "held-out.jsonl"
    file.write_text("{}\n")
    result = run("check", tmp_path, file)
    assert result.exit_code == 2
    assert "needs accelerate; install it" in result.output
    assert "pip install 'secondguess[classification,cli]'" in result.output


def test_a_missing_module_of_our_own_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError), user_errors():
        raise ModuleNotFoundError(name="secondguess.nowhere")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_training_says_how_to_resume(
    number: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, user_errors():
        raise TrainingStopped(number, 7, Path("out.checkpoints"))
    assert ended.value.exit_code == code
    assert capsys.readouterr().err == (
        f"secondguess: stopped by {signal.Signals(number).name} after step 7, with a checkpoint in "
        f"out.checkpoints; run the same command again to resume.\n"
    )


def test_show_needs_no_torch(tmp_path: Path) -> None:
    token = {"text": "six", "tokens": ["six", "_"], "cheating": [0.5, 0.0]}
    response = {**token, "epistemic_confidence": 0.6}
    lines = [
        {"input": {"prompt": "say"}, "responses": [response]},
        {"line": 2, "skipped": "too long"},
    ]
    file = tmp_path / "scores.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    program = "import sys; sys.modules['torch'] = None; from secondguess.cli import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", program, "show", str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "say → six⏎  confidence 0.600, cheating +0.50 nats" in shown.stdout
    assert "skipped: too long" in shown.stdout


def test_show_names_the_line_it_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_text('{"line": 1, "skipped": "too long"}\nnot json\n')
    result = run("show", file)
    assert result.exit_code == 2
    assert (
        "line 2: broken JSON (Expecting value at character 1). expected what 'secondguess score'"
        in result.output
    )


def test_intervals_say_as_json_what_they_wrote(tmp_path: Path) -> None:
    items, calibration = tmp_path / "items.csv", tmp_path / "cal.json"
    items.write_text(ITEMS)
    columns = ("--probs-col", "p", "--variance-col", "v", "--response-cols", "y1,y2")
    learned = run("calibrate", items, *columns, "--min-variance", 0.1, "--out", calibration)
    assert f"next: secondguess intervals FILE --calibration {calibration}" in learned.output
    result = run("intervals", items, "--calibration", calibration, "--json")
    assert (tmp_path / "items.intervals.csv").read_text().startswith('"p","v","y1","y2","lower",')
    assert json.loads(result.stdout) == {
        "out": str(tmp_path / "items.intervals.csv"),
        "num_rows": 60,
        "miss_rate": 0.1,
        "failure_rate": 0.05,
        "rests_on": "guaranteed by a calibration set",
    }


def test_a_second_writer_of_one_output_is_told(tmp_path: Path) -> None:
    """Another process holds the output, as a command does while it works."""
    items, calibration = tmp_path / "items.csv", tmp_path / "cal.json"
    items.write_text(ITEMS)
    columns = ("--probs-col", "p", "--variance-col", "v", "--response-cols", "y1,y2")
    learn = ("calibrate", items, *columns, "--min-variance", 0.1, "--out")
    assert run(*learn, calibration).exit_code == 0
    out = tmp_path / "out"
    program = (
        "import sys; from pathlib import Path; from secondguess._files import only_writer_of\n"
        "with only_writer_of(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        second = (
            run(*learn, out),
            run("intervals", items, "--calibration", calibration, "--out", out),
        )
    for result in second:
        assert result.exit_code == 2
        assert f"another process is writing {out}" in result.stderr
    assert not out.exists()
    assert run(*learn, out).exit_code == 0


@pytest.mark.parametrize("option", [("--members", "0"), ("--seeds", "9" * 40), ("--seed", "-1")])
def test_sizes_that_no_experiment_has_are_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    out = tmp_path / "out"
    result = run("reproduce", "regression", *option, "--out", out)
    assert result.exit_code == 2
    assert option[0] in result.stderr
    assert not out.exists()


def test_bars_of_libraries_are_not_drawn_into_logs() -> None:
    program = (
        "import sys; sys.argv = ['secondguess', '--help']\n"
        "from secondguess.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "from tqdm.auto import tqdm\n"
        "list(tqdm([1, 2]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    assert "recalibrate" in done.stdout
