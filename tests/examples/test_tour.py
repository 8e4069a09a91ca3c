"""The tour of `make run` prints numbers that agree with the truth, and draws its picture."""

from __future__ import annotations

import runpy
from pathlib import Path

TOUR = Path(__file__).parents[2] / "examples" / "tour.py"


def test_the_tour_keeps_its_promise(tmp_path, capsys):
    runpy.run_path(str(TOUR))["main"](["--out", str(tmp_path)])
    text = capsys.readouterr().out
    made_up = {
        line.split(":")[0].strip(): float(line.split(", ")[1].split("%")[0])
        for line in text.splitlines()
        if "of them made up" in line
    }
    assert made_up.pop("plain sampling") > 15
    assert len(made_up) == 3
    assert max(made_up.values()) <= 15
    assert (tmp_path / "tour.png").stat().st_size > 10_000
