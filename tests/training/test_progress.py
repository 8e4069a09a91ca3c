import io
import sys
import time

import pytest

from secondguess.training.progress import progress


def test_without_a_terminal_lines_come_though_a_step_takes_long(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress("fit", line_every=0.02) as show:
        show(10, 2000, "loss 0.5")
        deadline = time.monotonic() + 20
        lines = ""
        while lines.count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
            lines += capsys.readouterr().err
        show(2000, 2000, "loss 0.1")
    assert lines.splitlines()[0] == "fit: 10/2,000 loss 0.5, 0:00"
    assert capsys.readouterr().err.splitlines()[-1].startswith("fit: 2,000/2,000 loss 0.1, 0:")


def test_what_is_over_within_seconds_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("fit") as show:
        show(1, 2)
    with progress(None) as show:
        show(1, 2)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("a [bold] name") as show:
        show(3, 7, "[red]note")
    assert "a [bold] name" in terminal.getvalue()
    assert "3/7 [red]note" in terminal.getvalue()
