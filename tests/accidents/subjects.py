"""What accidents happen to: every command that writes, and what writes in the library.

A subject is small, so that hundreds of accidents take minutes, and does all that a large one does.
Nothing heavy is imported at the top: the workers of `calibrate` import the main module again.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import signal
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = ("--probs-col", "p", "--variance-col", "v")
TESTS = Path(__file__).resolve().parent.parent
CHILDREN_NEED = (
    "cli.added_columns",
    "cli.calibration_job",
    "cli.columns",
    "language.fitting",
    "language.recalibrating",
    "language.windows",
    "report.page",
)
"""Imported once, before the children are forked: they live too short to import it themselves."""


@dataclass(frozen=True)
class Subject:
    """Something that writes.

    Attributes:
        run: do it once, with its output in a folder that is given.
        outputs: the names of its output in this folder.
        prepare: what must be in the folder before, if anything.
        repeatable: whether it may be done again, which finds the work done or replaces it.
    """

    run: Callable[[Path], object]
    outputs: tuple[str, ...]
    prepare: Callable[[Path], object] = lambda place: None
    repeatable: bool = False

    def found(self, place: Path) -> str:
        """A digest of the output, names included; empty where there is none."""
        digest = hashlib.sha256()
        for path in sorted(path for name in self.outputs for path in _files(place / name)):
            digest.update(f"{path.relative_to(place)}\n".encode())
            digest.update(hashlib.sha256(_content(path)).digest())
        return digest.hexdigest() if any((place / name).exists() for name in self.outputs) else ""


def _content(path: Path) -> bytes:
    """The bytes of a file, but for the seconds that a result says it took."""
    if path.name != "result.json":
        return path.read_bytes()
    return json.dumps(json.loads(path.read_text()) | {"seconds": None}).encode()


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [each for each in path.rglob("*") if each.is_file()]
    return [path] if path.is_file() else []


def command(*arguments: object) -> None:
    """The command line in this process, to its exit code."""
    from secondguess.cli import main

    sys.argv = ["secondguess", *map(str, arguments)]
    main()


def make_inputs(folder: Path) -> None:
    """What the commands read; imports all that children will need."""
    import numpy as np
    from transformers.utils import logging

    from secondguess.language.examples import tiny_pair_model
    from secondguess.language.model import PairLanguageModel

    for module in CHILDREN_NEED:
        importlib.import_module(f"secondguess.{module}")
    logging.disable_progress_bar()
    rng = np.random.default_rng(0)
    responses = (rng.random((40, 2)) < 0.5).astype(int)
    lines = [
        f"{p:.3f},0.1,{y1},{y2}" for p, (y1, y2) in zip(rng.random(40), responses, strict=True)
    ]
    (folder / "rows.csv").write_text("p,v,y1,y2\n" + "\n".join(lines) + "\n")
    row = {"prompt": "flip", "responses": ["heads", "tails"]}
    drawn = [row | {"responses": [str(rng.choice(["heads", "tails"])), "heads"]} for _ in range(60)]
    for name, rows in (("rows.jsonl", drawn[:12]), ("held-out.jsonl", drawn)):
        (folder / name).write_text("".join(json.dumps(each) + "\n" for each in rows))
    for seed in (0, 1):
        tiny_pair_model(seed).save(folder / f"model-{seed}")
        PairLanguageModel.load(folder / f"model-{seed}")
    base = tiny_pair_model()
    base.network.save_pretrained(folder / "base")
    base.formatter.tokenizer.save_pretrained(folder / "base")
    _make_run(folder / "runs" / "regression" / "quick" / "seed-0")
    _make_downloads(folder)


def _make_run(run: Path) -> None:
    from secondguess.report.files import write_result

    run.mkdir(parents=True)
    claim = {"name": "n", "holds": True, "value": 1.0, "bound": 2.0}
    result: dict[str, Any] = {"config": {}, "versions": {}, "machine": {}, "seconds": {}, "seed": 0}
    write_result(run, result | {"claims": [claim]})


def _make_downloads(folder: Path) -> None:
    with tarfile.open(folder / "images.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("cifar-10-batches-py/test_batch")
        member.size = 1 << 20
        tar.addfile(member, io.BytesIO(bytes(member.size)))
    (folder / "labels").write_bytes(bytes(1 << 20))


def commands(inputs: Path) -> dict[str, Subject]:
    """Every command that writes."""
    rows = (inputs / "rows.jsonl", "--window-size", 1)
    columns = (inputs / "rows.csv", *COLUMNS)

    def calibrate(place: Path, *more: object) -> None:
        pairs = ("--response-cols", "y1,y2", "--min-variance", 0.1, "--out", place / "cal.json")
        command("calibrate", *columns, *pairs, *more)

    def intervals(place: Path) -> None:
        calibration = ("--calibration", place / "cal.json", "--out", place / "out.csv")
        command("intervals", *columns, *calibration)

    def fit(place: Path) -> None:
        steps = ("--steps", 12, "--batch-size", 4, "--checkpoint-every", 2)
        model = ("--model", inputs / "base", "--out", place / "fitted")
        command("fit", inputs / "rows.jsonl", *model, *steps)

    def recalibrate(place: Path) -> None:
        command("recalibrate", place / "model", inputs / "held-out.jsonl")

    rate = ("--max-hallucination-rate", 0.7)
    out = "out.jsonl"
    return {
        "fit": Subject(fit, ("fitted",)),
        "score": Subject(
            lambda place: command("score", inputs / "model-0", *rows, "--out", place / out), (out,)
        ),
        "answer": Subject(
            lambda place: command("answer", inputs / "model-0", *rows, *rate, "--out", place / out),
            (out,),
        ),
        "calibrate": Subject(calibrate, ("cal.json",)),
        "calibrate --workers 2": Subject(
            lambda place: calibrate(place, "--workers", 2), ("cal.json",)
        ),
        "intervals": Subject(intervals, ("out.csv",), lambda place: _calibrated(calibrate, place)),
        "report": Subject(
            lambda place: command("report", inputs / "runs", "--out", place / "page.html"),
            ("page.html",),
            repeatable=True,
        ),
        "recalibrate": Subject(
            recalibrate, ("model",), lambda place: _saved(inputs, place), repeatable=True
        ),
        "reproduce": Subject(_reproduce, ("out/toy",), repeatable=True),
        "download": Subject(
            lambda place: _download(inputs, place),
            ("data/cifar-10-batches-py", "data/counts.npy"),
            repeatable=True,
        ),
    }


def _calibrated(calibrate: Callable[[Path], None], place: Path) -> None:
    from accidents.processes import unbroken

    unbroken(lambda: calibrate(place), place / ".said")


def _saved(inputs: Path, place: Path) -> None:
    from secondguess.language.model import PairLanguageModel

    PairLanguageModel.load(inputs / "model-0").save(place / "model")


def _reproduce(place: Path) -> None:
    """The toy experiment of the tests, in the place of a real one."""
    from experiments.toy_experiment import TOY

    from secondguess.experiments.registry import EXPERIMENTS

    EXPERIMENTS["digits-of-pi"] = TOY
    # Its processes import it by name.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    (place / "out").mkdir(exist_ok=True)
    command("reproduce", "digits-of-pi", "--seeds", 1, "--out", place / "out")


def _download(inputs: Path, place: Path) -> None:
    """Small files in the place of the official ones, which come no faster than over a network."""
    from secondguess.experiments.cifar10h import download

    fetch = download.fetch

    def slowly(file: download.OfficialFile, path: Path) -> Path:
        time.sleep(0.3)
        return fetch(file, path)

    def official(name: str) -> download.OfficialFile:
        path = inputs / name
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return download.OfficialFile(url=path.as_uri(), sha256=digest)

    data = place / "data"
    data.mkdir(exist_ok=True)
    (data / download.PRETRAINING_FILE).touch()
    download.IMAGES, download.CIFAR10H = official("images.tar.gz"), official("labels")
    download.COUNTS_FILE = "counts.npy"
    download.load = lambda folder: None
    download.fetch = slowly
    command("download", "cifar10h", data)


def classifier_fit(place: Path) -> None:
    """Fit a classifier with checkpoints, then save it, as a script would."""
    from secondguess.training.signals import TrainingStopped

    try:
        fitted = make_classifier(place / "checkpoints", num_steps=2500)
        fitted.save(place / "classifier")
    except TrainingStopped as stopped:
        sys.exit(128 + stopped.signal)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def make_classifier(checkpoints: Path | None, *, num_steps: int, flipped: bool = False) -> Any:
    """A classifier of two labels, or of the same two exchanged."""
    import numpy as np

    from secondguess.classification.estimators import PairClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(32, 2))
    above = X[:, :1] + 0.3 * rng.normal(size=(32, 2)) > 0
    y = np.where(above != flipped, "yes", "no")
    return PairClassifier(
        targets="responses",
        width=8,
        batch_size=16,
        num_steps=num_steps,
        validation_fraction=0.0,
        checkpoint_dir=checkpoints,
    ).fit(X, y)
