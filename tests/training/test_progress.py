import io
import sys
import time

import pytest

from secondguess.training.progress import (
    LINE_EVERY,
    TOLD_EVERY,
    lines_of_parts,
    progress,
    progress_side_by_side,
)


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    opened = Terminal()
    monkeypatch.setattr(sys, "stderr", opened)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return opened


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with progress("a [bold] name") as show:
        show(3, 7, "[red]note")
    assert "a [bold] name" in terminal.getvalue()
    assert "3/7 [red]note" in terminal.getvalue()


def test_work_side_by_side_has_a_bar_each_and_one_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = open_terminal(monkeypatch)
    with progress_side_by_side({"lake [1]": 3.0, "pi": 1.0}) as tell:
        tell("lake [1]", "training", 0.5)
    shown = terminal.getvalue()
    assert "everything" in shown
    assert "lake [1]" in shown
    assert "50% training" in shown


def test_without_a_terminal_work_side_by_side_writes_lines_beside_the_results(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_side_by_side({"lake": 3.0, "pi": 1.0}) as tell:
        tell("lake", "training", 0.5)
    assert capsys.readouterr() == ("", "lake: training (50% done)\n")


def test_lines_come_for_new_parts_and_before_half_a_minute_is_over() -> None:
    written: list[str] = []
    now = [100.0]
    tell = lines_of_parts(written.append, clock=lambda: now[0])
    longest, last = 0.0, now[0]
    tell("toy", "training", 0.0)
    while now[0] < 400:
        now[0] += TOLD_EVERY  # as often as silent work is heard of
        before = len(written)
        tell("toy", "training", 0.5)
        if len(written) > before:
            longest, last = max(longest, now[0] - last), now[0]
    assert 0 < longest <= LINE_EVERY
    tell("toy", "samples", 0.9)
    assert written[-1] == "toy: samples (90% done)"
