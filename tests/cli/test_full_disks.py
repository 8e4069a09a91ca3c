"""Every command that writes, where it cannot: a full disk, one that is read-only, no permission.

It ends with one message, and what was there is whole. The disks are real ones in memory, so their
tests need the right to mount.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from language.models import WORDS, network_of, pair_model
from pyarrow import csv, parquet
from typer.testing import CliRunner, Result

from secondguess.cli.app import app
from secondguess.language.examples import tiny_pair_model
from secondguess.language.tokenizer import word_tokenizer
from secondguess.report.files import write_result

EARLIER = b"what was there before"
COLUMNS = ("--probs-col", "p", "--variance-col", "v")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")


@contextmanager
def obeying_modes() -> Iterator[None]:
    """Root without the capabilities that let it write and read whatever the modes of files say."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    of_this_thread = (ctypes.c_uint32 * 2)(0x20080522, 0)  # the version of the call, and no pid
    held = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, twice 32 of each
    assert libc.capget(of_this_thread, held) == 0
    fewer = (ctypes.c_uint32 * 6)(*held)
    fewer[0] &= ~(1 << 1 | 1 << 2)  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(of_this_thread, fewer) == 0
    try:
        yield
    finally:
        assert libc.capset(of_this_thread, held) == 0


@pytest.fixture(params=["full", "read-only", "no permission"])
def disk(request: pytest.FixtureRequest, inputs: Path, tmp_path: Path) -> Iterator[Path]:
    """A place with a file and a model, where no other can be written."""
    if request.param == "no permission":
        (tmp_path / "earlier").write_bytes(EARLIER)
        shutil.copytree(inputs / "tiny", tmp_path / "model")
        closed = (tmp_path, tmp_path / "model")
        for folder in closed:
            folder.chmod(0o555)
        with obeying_modes():
            yield tmp_path
        for folder in closed:
            folder.chmod(0o755)
        return
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    folder = Path(tempfile.mkdtemp(prefix="disk-"))
    mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder))
    try:
        (folder / "earlier").write_bytes(EARLIER)
        shutil.copytree(inputs / "tiny", folder / "model")
        if request.param == "full":
            with suppress(OSError), (folder / "filling").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        else:
            mount("-o", "remount,ro", str(folder))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


@pytest.fixture(scope="module")
def inputs() -> Iterator[Path]:
    """What the commands read: a table in each format, lines, models and a run."""
    folder = Path(tempfile.mkdtemp(prefix="inputs-"))
    try:
        fill(folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def fill(folder: Path) -> None:
    rng = np.random.default_rng(0)
    size = 3000
    responses = (rng.random((2, size)) < 0.5).astype(np.int8)
    table = {"p": rng.random(size), "v": np.full(size, 0.05), "y1": responses[0]}
    table["y2"] = responses[1]
    parquet.write_table(pa.table(table), folder / "rows.parquet")
    csv.write_csv(pa.table(table), folder / "rows.csv")
    (folder / "rows").mkdir()
    for name, values in table.items():
        np.save(folder / "rows" / f"{name}.npy", values)
    row = '{"prompt": "w1 w2", "responses": ["w3", "w4 w5"]}\n'
    (folder / "rows.jsonl").write_text(row * 40)
    network_of("llama", scale=0.02).save_pretrained(folder / "base")
    word_tokenizer(WORDS).save_pretrained(folder / "base")
    pair_model("gpt2", response_length=8).save(folder / "model")
    columns = (*COLUMNS, "--response-cols", "y1,y2", "--min-variance", 0.01)
    made = run("calibrate", folder / "rows.parquet", *columns, "--out", folder / "cal.json")
    assert made.exit_code == 0, made.output
    tiny_pair_model().save(folder / "tiny")
    flips = '{"prompt": "flip", "responses": ["heads", "tails"]}\n'
    (folder / "flips.jsonl").write_text(flips * 60)
    coins = folder / "runs" / "coins" / "quick" / "seed-0"
    coins.mkdir(parents=True)
    write_result(coins, {"seed": 0, "claims": []})


def calibrate(inputs: Path, disk: Path) -> Result:
    columns = (*COLUMNS, "--response-cols", "y1,y2", "--min-variance", 0.01)
    return run("calibrate", inputs / "rows.parquet", *columns, "--out", disk / "new.json")


def intervals(name: str) -> Callable[[Path, Path], Result]:
    def command(inputs: Path, disk: Path) -> Result:
        out = ("--miss-rate", 0.1, "--out", disk / name.replace("rows", "new"))
        calibration = ("--calibration", inputs / "cal.json")
        return run("intervals", inputs / name, *calibration, *COLUMNS, *out)

    return command


def score(inputs: Path, disk: Path) -> Result:
    return run("score", inputs / "model", inputs / "rows.jsonl", "--out", disk / "new.jsonl")


def answer(inputs: Path, disk: Path) -> Result:
    rate = ("--max-hallucination-rate", 0.7, "--out", disk / "new.jsonl")
    return run("answer", inputs / "model", inputs / "rows.jsonl", *rate)


def fit(inputs: Path, disk: Path) -> Result:
    settings = ("--model", inputs / "base", "--steps", 2, "--batch-size", 4, "--out", disk / "new")
    return run("fit", inputs / "rows.jsonl", *settings)


def reproduce(inputs: Path, disk: Path) -> Result:
    return run("reproduce", "regression", "--preset", "quick", "--out", disk / "new")


def report(inputs: Path, disk: Path) -> Result:
    return run("report", inputs / "runs", "--out", disk / "new.html")


def recalibrate(inputs: Path, disk: Path) -> Result:
    return run("recalibrate", disk / "model", inputs / "flips.jsonl")


COMMANDS = {
    "calibrate": calibrate,
    "intervals, Parquet": intervals("rows.parquet"),
    "intervals, CSV": intervals("rows.csv"),
    "intervals, npy": intervals("rows"),
    "score": score,
    "answer": answer,
    "fit": fit,
    "reproduce": reproduce,
    "report": report,
    "recalibrate": recalibrate,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nowhere_to_write_is_one_message_and_loses_nothing(name: str, inputs: Path, disk: Path):
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    result = COMMANDS[name](inputs, disk)
    assert result.exit_code == 2, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    messages = [line for line in result.stderr.splitlines() if line.startswith("secondguess: ")]
    assert len(messages) == 1, result.stderr
    assert str(disk) in messages[0], result.stderr
    assert {path: path.read_bytes() for path in before} == before
    left = {path.name for path in disk.iterdir()} - {"earlier", "filling", "model"}
    assert left <= {"new", "new.jsonl.parts"}  # what a resumed run would use
