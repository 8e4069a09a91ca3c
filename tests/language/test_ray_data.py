"""Ray Data on a local cluster of two workers: the results of one process, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from serving.byte_model import byte_model
from typer.testing import CliRunner

from secondguess.cli.app import app
from secondguess.language.windows import AnswerSettings
from secondguess.theory.calibration.fit_inflation import fit_variance_inflation

pytestmark = [
    pytest.mark.slow,
    # Ray and what it loads warn about themselves.
    pytest.mark.filterwarnings("default"),
]
NUM_LINES = 10_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray") / "model"
    byte_model().save(folder)
    return folder


def write_lines(path: Path, num_lines: int) -> Path:
    rows = [
        {"prompt": f"say {number}", "responses": [f"{number % 97}", "no"][: 1 + number % 2]}
        for number in range(num_lines)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_two_workers_score_a_file_as_one_process_does(cluster, model, tmp_path):
    from secondguess.language.ray_data import score_file

    source = write_lines(tmp_path / "data.jsonl", NUM_LINES)
    alone, together = tmp_path / "alone.jsonl", tmp_path / "together.jsonl"
    run = CliRunner().invoke(app, ["score", str(model), str(source), "--out", str(alone)])
    assert run.exit_code == 0, run.output
    assert score_file(model, source, together, num_workers=2) == (NUM_LINES, 0)
    assert together.read_bytes() == alone.read_bytes()


def test_two_workers_answer_as_one_process_does(cluster, model, tmp_path):
    from secondguess.language.ray_data import answer_file

    source = write_lines(tmp_path / "data.jsonl", 500)
    with source.open("a") as file:
        file.write("no JSON\n")
    alone, together = tmp_path / "alone.jsonl", tmp_path / "together.jsonl"
    options = ["--max-hallucination-rate", "0.5", "--strategy", "rejection", "--skip-bad"]
    run = CliRunner().invoke(
        app, ["answer", str(model), str(source), "--out", str(alone), *options]
    )
    assert run.exit_code == 0, run.output
    answers = AnswerSettings(max_hallucination_rate=0.5, strategy="rejection")
    done = answer_file(model, source, together, answers, num_workers=2, skip_bad=True)
    assert done == (501, 1)
    assert together.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize("grouped", [False, True])
def test_twenty_parquet_files_calibrate_as_one_array_does(cluster, tmp_path, grouped):
    from secondguess.language.ray_data import calibrate_files

    rng = np.random.default_rng(0)
    paths, parts = [], []
    for number in range(20):
        size = int(rng.integers(500, 5000))
        true_probs = rng.uniform(0.1, 0.9, size)
        part = {
            "probs": np.clip(true_probs + rng.normal(0, 0.1, size), 0, 1),
            "variance": rng.uniform(0.001, 0.02, size),
            "y1": (rng.random(size) < true_probs).astype(np.int8),
            "y2": (rng.random(size) < true_probs).astype(np.int8),
            "item": rng.integers(0, 3000, size),
        }
        paths.append(tmp_path / f"part-{number}.parquet")
        parquet.write_table(pa.table(part), paths[-1], row_group_size=777)
        parts.append(part)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    alone = fit_variance_inflation(
        columns["probs"],
        columns["variance"],
        np.stack([columns["y1"], columns["y2"]], axis=1),
        min_variance=0.001,
        failure_rate=0.05,
        groups=columns["item"] if grouped else None,
    )
    together = calibrate_files(
        paths,
        min_variance=0.001,
        failure_rate=0.05,
        num_workers=2,
        group="item" if grouped else None,
    )
    assert asdict(together) == asdict(alone)
    with pytest.raises(ValueError, match="named twice"):
        calibrate_files([paths[0]] * 2, min_variance=0.001, failure_rate=0.05, num_workers=2)
