"""`secondguess calibrate` on a Parquet file against merely reading the file with pyarrow.

Run with `make bench`, or `python benchmarks/calibrate_command.py [--rows 100_000_000] [--folder
DIR] [--out FILE]`. The file holds float64 probabilities and variances and two int8 responses of the
one-dimensional task in row groups of a million rows. Both sides are processes of their own,
start-up included; memory is the peak of their resident set. The two run in turn, best of three.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from secondguess.experiments.regression.data import sample_pairs
from secondguess.experiments.regression.half_blind import half_blind_predictor

GROUP = 1_000_000
READ = """
import sys
from pyarrow import parquet
rows = 0
with parquet.ParquetFile(sys.argv[1]) as file:
    for batch in file.iter_batches(1 << 18):
        rows += batch.num_rows
print(rows)
"""


def make(path: Path, num_rows: int) -> None:
    if path.exists() and parquet.ParquetFile(path).metadata.num_rows == num_rows:
        return
    rng = np.random.default_rng(0)
    fields = [("p", pa.float64()), ("v", pa.float64()), ("y1", pa.int8()), ("y2", pa.int8())]
    with parquet.ParquetWriter(path, pa.schema(fields)) as writer:
        for start in range(0, num_rows, GROUP):
            inputs, responses = sample_pairs(min(GROUP, num_rows - start), rng)
            prediction = half_blind_predictor(inputs)
            y1, y2 = responses.astype(np.int8).T
            columns = {"p": prediction.probs, "v": prediction.variance, "y1": y1, "y2": y2}
            writer.write_table(pa.table(columns), row_group_size=GROUP)


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds, and megabytes at the peak, of one process (of its largest one with workers)."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds, usage.ru_maxrss / 1e3


def run(path: Path, num_rows: int, folder: Path) -> dict[str, Any]:
    calibrate = [sys.executable, "-m", "secondguess.cli", "calibrate", str(path)]
    calibrate += ["--probs-col", "p", "--variance-col", "v", "--response-cols", "y1,y2"]
    calibrate += ["--min-variance", "0.0004"]
    results = [folder / "one.json", folder / "two.json"]
    commands = {
        "read": [sys.executable, "-c", READ, str(path)],
        "calibrate": [*calibrate, "--out", str(results[0])],
        "two_workers": [*calibrate, "--workers", "2", "--out", str(results[1])],
    }
    best = dict.fromkeys(commands, (np.inf, 0.0))
    for _ in range(3):
        for name, command in commands.items():
            best[name] = min(best[name], measure(command))
    one, two = (json.loads(result.read_text())["inflation"]["value"] for result in results)
    return {
        "command": f"python benchmarks/calibrate_command.py --rows {num_rows:_} --out "
        "docs/results/calibrate-command.json",
        "rows": num_rows,
        "file_megabytes": path.stat().st_size / 1e6,
        "seconds": {name: value[0] for name, value in best.items()},
        "megabytes": {name: value[1] for name, value in best.items()},
        "inflation": one,
        "relative_difference_of_two_workers": abs(two - one) / one,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, help="keep the file there")
    parser.add_argument("--out", type=Path, help="write the result there as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        path = folder / f"pairs-{arguments.rows}.parquet"
        # In a process of its own: the peak of a child's memory starts at that of its parent.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            pool.submit(make, path, arguments.rows).result()
        record = run(path, arguments.rows, Path(temporary))
    print(f"{arguments.rows:,} rows, {record['file_megabytes']:.0f} MB")
    for name, seconds in record["seconds"].items():
        print(
            f"{name:>12} {seconds:>8.2f} s {arguments.rows / seconds / 1e6:>7.1f} million rows/s "
            f"{record['seconds']['read'] / seconds:>6.2f} of reading "
            f"{record['megabytes'][name]:>7.0f} MB"
        )
    print(f"two workers differ by {record['relative_difference_of_two_workers']:.1e} relative")
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
