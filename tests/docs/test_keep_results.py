"""Kept results are all that a report needs."""

from __future__ import annotations

import runpy
from pathlib import Path

from report.run_folders import write_run

from secondguess.report.page import write_report
from secondguess.report.reading import read_runs

KEEP = Path(__file__).parents[2] / "docs" / "results" / "keep.py"


def test_kept_runs_make_the_same_page_but_for_colours(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "out")
    (directory / "arrays.npz").write_bytes(b"large")
    (directory / "figures" / "unnamed.png").write_bytes(b"not on the page")
    keep = runpy.run_path(str(KEEP))["keep"]
    [copy] = keep(tmp_path / "out", tmp_path / "kept")
    assert sorted(path.name for path in copy.rglob("*") if path.is_file()) == [
        "a.png",
        "page.json",
        "result.json",
    ]
    [run], [kept] = read_runs(tmp_path / "out"), read_runs(tmp_path / "kept")
    assert kept.problems == ()
    assert (kept.section, kept.claims, kept.settings) == (run.section, run.claims, run.settings)
    assert (kept.pictures[0].width, kept.pictures[0].height) == (3, 2)
    assert write_report(tmp_path / "kept").exists()
    # Again, over what is there.
    assert keep(tmp_path / "out", tmp_path / "kept") == [copy]
