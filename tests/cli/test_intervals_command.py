"""The commands on real files: every format, every kind of bad input, nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import secondguess as sg
from secondguess.cli.app import app
from secondguess.cli.columns import open_columns

ROWS = 3000


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    true_probs = rng.random(ROWS)
    probs = np.clip(true_probs + rng.normal(0, 0.1, ROWS), 0, 1)
    variance = np.where(rng.random(ROWS) < 0.1, -0.001, 0.01)
    responses = (rng.random((3, ROWS)) < true_probs).astype(np.int8)
    return {"p": probs, "v": variance, "y1": responses[0], "y2": responses[1], "y3": responses[2]}


def write(table: dict, path: Path, kind: str) -> Path:
    if kind == "parquet":
        file = path / "rows.parquet"
        parquet.write_table(pa.table(table), file, row_group_size=700)
    elif kind == "csv":
        file = path / "rows.csv"
        csv.write_csv(pa.table(table), file)
    elif kind == "npy folder":
        file = path / "rows"
        file.mkdir()
        for name, values in table.items():
            np.save(file / f"{name}.npy", values)
    else:
        file = path / "rows.npy"
        fields = np.empty(
            len(table["p"]), dtype=[(name, values.dtype) for name, values in table.items()]
        )
        for name, values in table.items():
            fields[name] = values
        np.save(file, fields)
    return file


KINDS = ("parquet", "csv", "npy folder", "npy fields")


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def calibrate(file: Path, *more: object, responses: str = "y1,y2", out: Path | None = None):
    out = out or file.parent / "cal.json"
    columns = ("--probs-col", "p", "--variance-col", "v", "--response-cols", responses)
    return run("calibrate", file, *columns, "--out", out, "--overwrite", *more)


def expected(table, num_responses=2, first=0, **options):
    responses = np.stack([table[f"y{i + 1}"] for i in range(num_responses)], axis=1)
    return sg.fit_variance_inflation(
        table["p"][first:], table["v"][first:], responses[first:], **options
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_responses", [2, 3])
def test_calibrate_gives_what_the_library_gives(table, tmp_path, kind, num_responses):
    file = write(table, tmp_path, kind)
    names = ",".join(f"y{i + 1}" for i in range(num_responses))
    result = calibrate(file, "--min-variance", 0.01, responses=names)
    assert result.exit_code == 0, result.stderr
    record = json.loads((tmp_path / "cal.json").read_text())
    right = expected(table, num_responses, min_variance=0.01, failure_rate=0.05)
    assert record["inflation"]["value"] == right.value
    assert record["inflation"]["num_negative_variances"] == right.num_negative_variances > 0
    assert "negative variances" in result.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([file.name, "cal.json"])


@pytest.mark.parametrize("kind", ["parquet", "npy folder", "csv"])
def test_workers_give_the_bound_of_one_process(table, tmp_path, kind):
    file = write(table, tmp_path, kind)
    bounds = []
    for workers in (1, 2, 5):
        result = calibrate(file, "--min-variance", 1e-4, "--workers", workers, "--json")
        assert result.exit_code == 0, result.stderr
        bounds.append(json.loads(result.stdout)["inflation"])
    assert bounds[0] == bounds[1] == bounds[2]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_chosen_min_variance_is_not_calibrated_on_the_rows_that_chose_it(table, tmp_path, kind):
    file = write(table, tmp_path, kind)
    result = calibrate(file, "--json")
    assert result.exit_code == 0, result.stderr
    responses = np.stack([table["y1"], table["y2"]], axis=1)
    right = sg.calibrate(table["p"], table["v"], responses)
    assert isinstance(right, sg.VarianceInflation)
    assert json.loads(result.stdout)["inflation"] == asdict(right)
    assert 0.75 * ROWS < right.num_rows < 0.85 * ROWS


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_groups_and_annotators_are_those_of_the_library(table, tmp_path, kind):
    rng = np.random.default_rng(1)
    groups = np.array([f"g{i}" for i in rng.integers(0, 400, ROWS)])
    people = np.array([rng.permutation(["ann", "bob", "cid"])[:2] for _ in range(ROWS)])
    more = {"g": groups, "a1": people[:, 0], "a2": people[:, 1]}
    file = write({**table, **more}, tmp_path, kind)
    responses = np.stack([table["y1"], table["y2"]], axis=1)
    options = ("--group-col", "g", "--annotator-cols", "a1,a2", "--json")
    right = sg.calibrate(table["p"], table["v"], responses, groups=groups, annotators=people)
    for workers in (1, 2):
        result = calibrate(file, *options, "--workers", workers)
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["inflation"] == asdict(right)


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_adds_the_columns(table, tmp_path, kind):
    file = write(table, tmp_path, kind)
    assert calibrate(file, "--min-variance", 0.01).exit_code == 0
    suffix = {"parquet": ".parquet", "csv": ".csv"}.get(kind, "")
    out = tmp_path / f"added{suffix}"
    result = run("intervals", file, "--calibration", tmp_path / "cal.json", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "guaranteed by a calibration set" in result.stdout
    right = expected(table, min_variance=0.01, failure_rate=0.05)
    interval = right.interval(table["p"], table["v"], 0.1)
    added = open_columns(out)
    chunks = list(added.chunks(["lower", "upper"]))
    for name, values in (("lower", interval.lower), ("upper", interval.upper)):
        found = np.concatenate([chunk[name] for chunk in chunks])
        assert found == pytest.approx(values, rel=1e-12, abs=1e-15)
    if suffix:
        assert added.names == [*table, "lower", "upper"]


def test_intervals_keeps_csv_text_as_it_stands(table, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text('id,p,v,note\n007,0.50,1e-2,"a, b"\n8,1,0,\n')
    good = write(table, tmp_path, "parquet")
    assert calibrate(good, "--min-variance", 0.01).exit_code == 0
    out = tmp_path / "added.csv"
    options = ("--calibration", tmp_path / "cal.json", "--out", out)
    assert run("intervals", file, *options, "--lower-col", "lo").exit_code == 0
    header, first, second = out.read_text().splitlines()
    assert header.replace('"', "") == "id,p,v,note,lo,upper"
    assert first.replace('"', "").startswith("007,0.50,1e-2,a, b,")
    assert second.replace('"', "").startswith("8,1,0,,")
    assert float(second.split(",")[-1]) == 1


@pytest.mark.parametrize("kind", ["parquet", "csv", "npy folder"])
@pytest.mark.parametrize(
    ("column", "bad", "message"),
    [
        ("p", 1.5, "column 'p', row 2501 is 1.5; expected a probability in [0, 1]"),
        ("v", np.inf, "column 'v', row 2501 is inf; expected a finite number"),
        ("y2", 2, "column 'y2', row 2501 is 2"),
    ],
)
def test_bad_values_name_row_and_column(table, tmp_path, kind, column, bad, message):
    changed = {name: values.copy() for name, values in table.items()}
    changed[column][2501] = bad
    file = write(changed, tmp_path, kind)
    result = calibrate(file, "--min-variance", 0.01)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


def test_a_bad_row_is_named_by_workers_and_after_selection_too(table, tmp_path):
    changed = {name: values.copy() for name, values in table.items()}
    changed["p"][2501] = -1
    file = write(changed, tmp_path, "parquet")
    for more in (("--workers", 2, "--min-variance", 0.01), ()):
        result = calibrate(file, *more)
        assert result.exit_code == 2
        assert "column 'p', row 2501 is -1.0" in result.stderr


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_missing_values_are_named(table, tmp_path, kind):
    holes = pa.array(table["p"], mask=np.arange(ROWS) == 1234)
    file = write({**table, "p": holes}, tmp_path, kind)
    result = calibrate(file, "--min-variance", 0.01)
    assert result.exit_code == 2
    assert "column 'p', row 1234 is empty; expected a number" in result.stderr


def test_text_in_a_csv_column_is_named(table, tmp_path):
    file = write(table, tmp_path, "csv")
    lines = file.read_text().splitlines()
    lines[1 + 2000] = "oops" + lines[1 + 2000][lines[1 + 2000].index(",") :]
    file.write_text("\n".join(lines))
    result = calibrate(file, "--min-variance", 0.01)
    assert result.exit_code == 2
    assert "column 'p', row 2000 is 'oops'; expected a number" in result.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_files(table, tmp_path, kind):
    file = write(table, tmp_path, kind)
    target = file / "v.npy" if kind == "npy folder" else file
    half = target.stat().st_size // 2
    if kind == "csv":  # cut inside a row: at the end of one nothing is amiss
        half = target.read_bytes().index(b"\n", half) + 5
    target.write_bytes(target.read_bytes()[:half])
    result = calibrate(file, "--min-variance", 0.01)
    assert result.exit_code == 2
    assert "rows" in result.stderr
    assert not (tmp_path / "cal.json").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_empty_files(table, tmp_path, kind):
    file = write({name: values[:0] for name, values in table.items()}, tmp_path, kind)
    for more in (("--min-variance", 0.01), ()):
        result = calibrate(file, *more)
        assert result.exit_code == 2
        assert result.stderr.startswith("secondguess: ")
    blank = tmp_path / "blank.csv"
    blank.write_text("")
    assert calibrate(blank).exit_code == 2


def test_other_mistakes(table, tmp_path):
    file = write(table, tmp_path, "parquet")
    cases = [
        (calibrate(file, responses="y1,y9"), "has no column 'y9'; it has p, v, y1, y2, y3"),
        (calibrate(file, responses="y1"), "expected two or more columns"),
        (calibrate(file, responses="y1,y1"), "expected two or more columns, each once"),
        (calibrate(file, "--annotator-cols", "y1"), "--annotator-cols is 'y1'"),
        (calibrate(tmp_path / "none.csv"), "none.csv does not exist"),
        (calibrate(file, "--min-variance", 0), "expected a variance in [1e-12, 1]"),
        (calibrate(file, "--failure-rate", 1), "failure rate is 1.0"),
        (calibrate(file, out=tmp_path / "no" / "cal.json"), "is not a folder"),
    ]
    unknown = tmp_path / "rows.txt"
    unknown.write_text("p,v")
    cases.append((calibrate(unknown), "unknown type"))
    strings = tmp_path / "strings.parquet"
    parquet.write_table(pa.table({**table, "p": ["a"] * ROWS}), strings)
    cases.append((calibrate(strings, "--min-variance", 0.1), "column 'p' holds string"))
    for result, message in cases:
        assert result.exit_code == 2, message
        assert message in result.stderr
    assert not (tmp_path / "cal.json").exists()


def test_mistakes_of_intervals(table, tmp_path):
    file = write(table, tmp_path, "parquet")
    assert calibrate(file, "--min-variance", 0.01).exit_code == 0
    good = ("--calibration", tmp_path / "cal.json")
    out = tmp_path / "out.parquet"
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"kind": "else"}')
    bad = write({**table, "p": table["p"] + 0.5}, tmp_path / ".", "csv")
    cases = [
        (
            run("intervals", file, "--calibration", wrong, "--out", out),
            "expected a calibration that",
        ),
        (run("intervals", file, *good, "--out", tmp_path / "o.csv"), "expected .parquet"),
        (run("intervals", file, *good, "--out", out, "--lower-col", "p"), "already has a column"),
        (run("intervals", file, *good, "--out", out, "--miss-rate", 0), "miss_rate is 0.0"),
        (run("intervals", file, *good, "--out", out, "--probs-col", "q"), "no column 'q'"),
        (run("intervals", bad, *good, "--out", tmp_path / "o.csv"), "expected a probability"),
    ]
    for result, message in cases:
        assert result.exit_code == 2, message
        assert message in result.stderr
    assert {p.name for p in tmp_path.iterdir()} == {
        "rows.parquet", "cal.json", "wrong.json", "rows.csv"
    }  # fmt: skip


def test_responses_that_cannot_be_independent_are_refused(tmp_path):
    half = np.full(2000, 0.5)
    responses = np.random.default_rng(0).permuted(np.tile([0, 1], (2000, 1)), axis=1)
    rows = {"p": half, "v": half / 50, "y1": responses[:, 0], "y2": responses[:, 1]}
    result = calibrate(write(rows, tmp_path, "parquet"), "--min-variance", 0.01)
    assert result.exit_code == 2
    assert "no square is negative" in result.stderr
    assert not (tmp_path / "cal.json").exists()


def test_version_and_help():
    assert run("--version").stdout == f"secondguess {sg.__version__}\n"
    assert "calibrate" in run("--help").stdout


def test_help_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['secondguess', '--help']\n"
        "from secondguess.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "print('loaded', *sorted({'numpy', 'pyarrow', 'torch', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["loaded"]


def test_without_the_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from secondguess.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'secondguess[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
