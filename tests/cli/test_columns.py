"""Files of columns: what is refused, by name, and what is never overwritten."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

from secondguess.cli.app import app

ROWS = 60
RNG = np.random.default_rng(0)
TABLE: dict[str, np.ndarray] = {
    "p": np.tile([0.5, 0.5, 0.4, 0.3], 15),
    "v": np.full(ROWS, 0.1),
    "y1": np.tile([1, 0, 1, 0], 15),
    "y2": np.tile([0, 1, 1, 0], 15),
}
COLUMNS = ("--probs-col", "p", "--variance-col", "v", "--response-cols", "y1,y2")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write_csv(path: Path, table: dict[str, Any] = TABLE) -> Path:
    lines = zip(*(np.asarray(values).tolist() for values in table.values()), strict=True)
    rows = [",".join(table), *(",".join(map(str, line)) for line in lines)]
    path.write_text("\n".join(rows) + "\n")
    return path


def write_npy(folder: Path, **changed: np.ndarray) -> Path:
    folder.mkdir()
    for name, values in {**TABLE, **changed}.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def calibrate(file: Path, *more: object, out: Path | None = None) -> Result:
    out = out or file.parent / "cal.json"
    return run("calibrate", file, *COLUMNS, "--min-variance", 0.1, "--out", out, *more)


def refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)


@pytest.fixture
def calibrated(tmp_path: Path) -> tuple[Path, Path]:
    """A file of rows and its calibration."""
    file = write_csv(tmp_path / "rows.csv")
    assert calibrate(file).exit_code == 0
    return file, tmp_path / "cal.json"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (TABLE["p"].astype(complex), "complex128"),
        (TABLE["p"].astype(str), "<U32"),
        (TABLE["p"].astype("S8"), "|S8"),
        (np.full(ROWS, "2020-01-01", dtype="datetime64[D]"), "datetime64[D]"),
        (np.ones(ROWS, dtype="timedelta64[s]"), "timedelta64[s]"),
    ],
)
def test_only_real_numbers_are_taken_from_npy(tmp_path: Path, values: np.ndarray, what: str):
    result = calibrate(write_npy(tmp_path / "rows", p=values), out=tmp_path / "cal.json")
    refused(result, f"column 'p' holds {what}; expected numbers.")


def test_the_same_columns_twice(tmp_path: Path, calibrated: tuple[Path, Path]):
    file, calibration = calibrated
    twice = tmp_path / "twice.csv"
    twice.write_text("p,v,y1,y2,p\n" + "0.5,0.1,1,0,0.9\n" * 4)
    refused(calibrate(twice, "--overwrite"), "has two columns 'p'")
    both = pa.table([pa.array(TABLE["p"])] * 2, names=["p", "p"])
    parquet.write_table(both, tmp_path / "twice.parquet")
    refused(calibrate(tmp_path / "twice.parquet", "--overwrite"), "has two columns 'p'")
    same = ("--lower-col", "x", "--upper-col", "x")
    refused(run("intervals", file, "--calibration", calibration, *same), "are named 'x'")
    npy = write_npy(tmp_path / "rows")
    out = ("--out", tmp_path / "out")
    refused(run("intervals", npy, "--calibration", calibration, *same, *out), "are named 'x'")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../stolen", "/tmp/stolen", "a/b", "", "..", "a\\b"])
def test_npy_columns_stay_in_their_folder(tmp_path: Path, calibrated: tuple[Path, Path], name: str):
    out = tmp_path / "deep" / "out"
    out.parent.mkdir()
    npy = write_npy(tmp_path / "rows")
    result = run(
        *("intervals", npy, "--calibration", calibrated[1], "--lower-col", name, "--out", out)
    )
    refused(result, "expected the name of a file")
    assert list(out.parent.iterdir()) == []


def test_pipes_are_not_waited_for(tmp_path: Path, calibrated: tuple[Path, Path]):
    for name in ("pipe.csv", "pipe.parquet", "pipe.npy", "pipe.json"):
        os.mkfifo(tmp_path / name)
    for name in ("pipe.csv", "pipe.parquet", "pipe.npy"):
        refused(calibrate(tmp_path / name, "--overwrite"), "is not a file")
    npy = write_npy(tmp_path / "rows")
    os.mkfifo(npy / "z.npy")
    refused(calibrate(npy, out=tmp_path / "new.json"), "is not a file")
    refused(run("intervals", calibrated[0], "--calibration", tmp_path / "pipe.json"), "not a file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as a CSV"),
        (b"\x00\x00\x00", "cannot be read as a CSV"),
        ("p,v,y1,y2\n".encode("utf-16"), "rows.csv"),
        ("p\u00e9,v,y1,y2\n0.5,0.1,1,0\n".encode("latin-1"), "cannot be read as a CSV"),
        (b"p,v,y1,y2\n1_0,0.1,1,0\n", "column 'p', row 0 is '1_0'; expected a number"),
        (b"p,v,y1,y2\n0.5,0.1,1,0\n0.5,0.1\n", "cannot be read as a CSV"),
        (b"p,v,y1,y2\n0.5,0.1,1,NaN\n", "row 0 is empty"),
        (b"p,v,y1,y2\n0.5,0.1,1,4611686018427387904\n", "row 0 is 4.6"),
    ],
)
def test_broken_csv(tmp_path: Path, content: bytes, message: str):
    file = tmp_path / "rows.csv"
    file.write_bytes(content)
    refused(calibrate(file), message)


def test_a_mark_and_line_breaks_in_quotes_are_read(tmp_path: Path):
    file = tmp_path / "rows.csv"
    rows = '0.5,0.1,1,1,"two\nlines"\n0.5,0.1,0,1,"a, b"\n0.5,0.1,1,0,c\n0.5,0.1,0,0,\n' * 15_000
    file.write_bytes(b"\xef\xbb\xbfp,v,y1,y2,note\n" + rows.encode())
    result = calibrate(file, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["inflation"]["num_rows"] == 60_000


def test_an_output_is_never_an_input(tmp_path: Path, calibrated: tuple[Path, Path]):
    file, calibration = calibrated
    link, hard = tmp_path / "link.csv", tmp_path / "hard.csv"
    link.symlink_to(file)
    os.link(file, hard)
    before = file.read_bytes(), calibration.read_bytes()
    for out in (file, link, hard):
        refused(calibrate(file, "--overwrite", out=out), "is the input")
        command = ("intervals", file, "--calibration", calibration, "--overwrite", "--out")
        refused(run(*command, out), "is the input")
    refused(run(*command, calibration), "is the input")
    npy = write_npy(tmp_path / "rows")
    refused(calibrate(npy, "--overwrite", out=npy / "p.npy"), "is the input")
    assert (file.read_bytes(), calibration.read_bytes()) == before


def test_what_exists_is_replaced_only_if_asked(tmp_path: Path, calibrated: tuple[Path, Path]):
    file, calibration = calibrated
    (tmp_path / "out.csv").write_text("mine")
    refused(calibrate(file), "cal.json exists")
    command = ("intervals", file, "--calibration", calibration, "--out", tmp_path / "out.csv")
    refused(run(*command), "out.csv exists")
    assert (tmp_path / "out.csv").read_text() == "mine"
    assert run(*command, "--overwrite").exit_code == 0
    assert calibrate(file, "--overwrite").exit_code == 0
    os.mkfifo(tmp_path / "pipe")
    refused(calibrate(file, "--overwrite", out=tmp_path / "pipe"), "not a regular file")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    npy = write_npy(tmp_path / "rows")
    to_folder = ("intervals", npy, "--calibration", calibration, "--out", folder)
    refused(run(*to_folder), "folder exists")
    refused(run(*to_folder, "--overwrite"), "thesis.tex")


WRONG_ENTRIES: list[tuple[str, Any]] = [
    *[("value", each) for each in (-1, float("nan"), float("inf"), "1", None, [1], True)],
    *[("failure_rate", each) for each in (5, 0, 1, -0.1, None)],
    *[("min_variance", each) for each in (0, -1, 2)],
    *[("num_rows", each) for each in (0, -5, 1.5, "60")],
    *[("num_responses", 1), ("num_negative_variances", -1), ("num_negative_variances", 10**9)],
    *[("method", "guess"), ("num_groups", 0), ("unknown", 1)],
]


@pytest.mark.parametrize(("entry", "value"), WRONG_ENTRIES)
def test_calibrations_are_checked_when_they_are_read(
    calibrated: tuple[Path, Path], entry: str, value: Any
):
    file, calibration = calibrated
    content = json.loads(calibration.read_text())
    content["inflation"][entry] = value
    calibration.write_text(json.dumps(content))
    result = run("intervals", file, "--calibration", calibration)
    refused(result, "cal.json is damaged; expected a calibration that")


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "1", "null", "[" * 100_000, '"text"', "\x00", "{}"),
        *('{"kind": 3}', '{"kind": "secondguess variance inflation"}'),
        '{"kind": "secondguess variance inflation", "format": 2}',
        '{"kind": "secondguess variance inflation", "format": 1, "probs": "p"}',
    ],
)
def test_what_is_no_calibration_is_refused(calibrated: tuple[Path, Path], content: str):
    file, calibration = calibrated
    calibration.write_text(content)
    refused(run("intervals", file, "--calibration", calibration), "cal.json")


def test_a_calibration_is_tied_to_its_predictor(tmp_path: Path):
    file, model, other = write_csv(tmp_path / "rows.csv"), tmp_path / "model", tmp_path / "other"
    for folder in (model, other):
        folder.mkdir()
        (folder / "weights").write_text(folder.name)
    assert calibrate(file, "--predictor", model).exit_code == 0
    command = ("intervals", file, "--calibration", tmp_path / "cal.json")
    refused(run(*command), "name it by --predictor")
    refused(run(*command, "--predictor", other), "it was another model")
    refused(run(*command, "--predictor", tmp_path / "none"), "none does not exist")
    assert run(*command, "--predictor", model).exit_code == 0
    assert calibrate(file, "--overwrite").exit_code == 0
    refused(run(*command, "--overwrite", "--predictor", model), "no model was named")


def test_control_characters_are_shown(tmp_path: Path):
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e"
    file = write_csv(tmp_path / "rows.csv", {f"{hostile}p": TABLE["p"], "v": TABLE["v"]})
    named = write_csv(tmp_path / f"{hostile}.csv", {**TABLE, "p": TABLE["p"] + 1})
    for result in (calibrate(file), calibrate(named), run("intervals", "--" + hostile)):
        assert result.exit_code == 2
        assert "\\x1b]0;owned\\x07\\x1b[2J\\u202e" in result.stderr
        assert not set("\x1b\x07\u202e") & set(result.output)


def children_of(process: int) -> set[int]:
    """All processes below one, from /proc."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if after_name[0] != "Z":
            parents[int(entry.name)] = int(after_name[1])
    found = {process}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_workers_die_with_their_parent(tmp_path: Path, number: signal.Signals):
    file = tmp_path / "rows"
    file.mkdir()
    for name, values in TABLE.items():
        np.save(file / f"{name}.npy", np.tile(values, 400_000))
    arguments = ("calibrate", file, *COLUMNS, "--min-variance", "0.1", "--workers", "2")
    command = [sys.executable, "-m", "secondguess.cli", *map(str, arguments)]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "cal.json")], stderr=-1)
    while len(children := children_of(process.pid)) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    _, told = process.communicate()
    deadline = time.monotonic() + 5
    while children and time.monotonic() < deadline:
        children = {each for each in children if Path(f"/proc/{each}").exists()}
        time.sleep(0.01)
    assert process.returncode in (-number, 128 + number)
    assert not children
    if number != signal.SIGKILL:  # after which nobody is left to silence a worker that just starts
        assert b"Traceback" not in told
    assert not (tmp_path / "cal.json").exists()


def test_a_column_is_one_thing(tmp_path: Path, calibrated: tuple[Path, Path]):
    file, _ = calibrated
    command = ("calibrate", file, "--probs-col", "p", "--variance-col", "v")
    result = run(*command, "--response-cols", "p,v", "--out", tmp_path / "two.json")
    refused(result, "name column 'p' twice")
