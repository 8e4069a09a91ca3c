"""`calibrate` by counts, and `intervals` after it: what the library gives, from files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import secondguess as sg
from secondguess.cli import count_job
from secondguess.cli.app import app

ROWS = 3000


def world(k: int | None) -> dict[str, np.ndarray]:
    """k responses per row; without k, between 2 and 40."""
    rng = np.random.default_rng(0)
    truths = rng.beta(0.5, 1.5, ROWS)
    totals = rng.integers(2, 41, ROWS) if k is None else np.full(ROWS, k)
    return {
        "p": np.clip(truths + rng.normal(0, 0.05, ROWS), 0, 1),
        "v": np.full(ROWS, 0.0025),
        "ones": rng.binomial(totals, truths),
        "total": totals,
        "g": rng.integers(0, 900, ROWS),
        **{f"y{i}": (rng.random(ROWS) < truths).astype(np.int8) for i in (1, 2, 3)},
    }


def write(table: dict[str, np.ndarray], folder: Path, kind: str) -> Path:
    file = folder / f"rows.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.table(table), file, row_group_size=700)
    else:
        csv.write_csv(pa.table(table), file)
    return file


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def calibrate(file: Path, *more: object, cols: tuple = ("--count-cols", "ones,total")):
    return run(
        "calibrate", file, "--probs-col", "p", "--variance-col", "v", *cols, "--out",
        file.parent / "cal.json", "--overwrite", "--json", *more,
    )  # fmt: skip


def certified(result) -> dict:
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    return record["counts"] or record["inflation"]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("method", ["auto", "counts", "pairs"])
def test_counts_in_a_file_give_what_the_library_gives(tmp_path, kind, method):
    table = world(None)
    file = write(table, tmp_path, kind)
    (right,) = sg.fit_intervals(
        table["p"], table["v"], table["ones"], table["total"], method=method
    ).parts
    for workers in (1, 2) if method == "auto" else (1,):
        result = calibrate(file, "--method", method, "--workers", workers)
        assert certified(result) == asdict(right)


def test_small_chunks_and_groups_change_nothing(tmp_path, monkeypatch):
    table = world(20)
    file = write(table, tmp_path, "csv")
    whole = certified(calibrate(file, "--miss-rate", 0.2))
    grouped = certified(calibrate(file, "--miss-rate", 0.2, "--group-col", "g"))
    rows = [table[name] for name in ("p", "v", "ones", "total")]
    names = table["g"].astype(str)
    assert [asdict(p) for p in sg.fit_intervals(*rows, miss_rate=0.2).parts] == [whole]
    by_group = sg.fit_intervals(*rows, miss_rate=0.2, groups=names)
    assert [asdict(p) for p in by_group.parts] == [grouped]
    assert grouped["num_rows"] < 900


def test_naming_the_miss_rate_is_asking_for_the_narrowest(tmp_path):
    table = world(20)
    file = write(table, tmp_path, "parquet")
    cols = ("--response-cols", "y1,y2,y3")
    ones = table["y1"] + table["y2"] + table["y3"]
    (right,) = sg.fit_intervals(table["p"], table["v"], ones, 3, miss_rate=0.2).parts
    assert certified(calibrate(file, "--miss-rate", 0.2, cols=cols)) == asdict(right)
    every = certified(calibrate(file, cols=cols))
    library = sg.calibrate(table["p"], table["v"], np.stack([table[f"y{i}"] for i in (1, 2, 3)], 1))
    assert every == asdict(library)
    fixed = ("--fixed-annotators", "--miss-rate", 0.2)
    assert json.loads(calibrate(file, *fixed, cols=cols).stdout)["counts"] is None


def test_intervals_apply_what_counts_certified(tmp_path):
    table = world(20)
    file = write(table, tmp_path, "parquet")
    right = sg.fit_intervals(table["p"], table["v"], table["ones"], 20, method="counts")
    certified(calibrate(file, "--method", "counts"))
    result = run("intervals", file, "--calibration", tmp_path / "cal.json", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["miss_rate"] == 0.1
    written = parquet.read_table(tmp_path / "rows.intervals.parquet")
    interval = right.interval(table["p"], table["v"])
    np.testing.assert_array_equal(written["lower"], interval.lower)
    np.testing.assert_array_equal(written["upper"], interval.upper)
    other = run("intervals", file, "--calibration", tmp_path / "cal.json", "--miss-rate", 0.2)
    assert other.exit_code == 2
    assert "counts were certified for 0.1 only" in other.stderr


def test_mistakes_are_named(tmp_path):
    table = world(20)
    table["ones"][7] = 21
    file = write(table, tmp_path, "csv")
    for result, message in (
        (calibrate(file), "column 'ones', row 7 is 21.0; expected from 0 to num_responses"),
        (calibrate(file, cols=()), "expected --response-cols y1,y2 or --count-cols ones,total"),
        (calibrate(file, cols=("--count-cols", "ones,total,g")), "expected two columns"),
        (calibrate(file, "--method", "counts", "--min-variance", 0.1), "is for pairs of responses"),
    ):
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())
    few = write({name: values[:12] for name, values in world(20).items()}, tmp_path, "csv")
    result = calibrate(few, "--method", "counts")
    assert result.exit_code == 2
    assert "too few to certify" in " ".join(result.stderr.split())


@pytest.mark.parametrize("more", [(), ("--group-col", "g")])
def test_columns_of_people_who_lean_differently_are_refused(tmp_path, more):
    rng = np.random.default_rng(1)
    table = world(2)
    table["y1"], table["y2"] = (rng.random((2, ROWS)) < np.array([[0.8], [0.2]])).astype(np.int8)
    file = write(table, tmp_path, "parquet")
    result = calibrate(file, "--miss-rate", 0.1, *more, cols=("--response-cols", "y1,y2"))
    assert result.exit_code == 2
    assert "annotator" in result.stderr


def test_copies_within_a_group_are_not_taken_for_leanings(tmp_path):
    """13 groups against 7 is chance; were their copies counted, it would be 1,300 rows against."""
    table = world(2) | {"g": np.repeat(np.arange(30), 100)}
    table["y1"] = np.repeat(np.arange(30) < 13, 100).astype(np.int8)
    table["y2"] = np.repeat((np.arange(30) >= 13) & (np.arange(30) < 20), 100).astype(np.int8)
    cols = ("--response-cols", "y1,y2", "--miss-rate", 0.3)
    file = write(table, tmp_path, "parquet")
    assert "says 1" in calibrate(file, cols=cols).stderr
    assert "says 1" not in calibrate(file, "--group-col", "g", cols=cols).stderr


def test_memory_does_not_grow_with_the_file():
    """What a job keeps of a file is the rows that choose, about 2,000 of them at most."""
    threshold = count_job.choosing_threshold(10**8)
    assert float(threshold) == pytest.approx(2000 / 10**8 * 2**64, rel=1e-9)
