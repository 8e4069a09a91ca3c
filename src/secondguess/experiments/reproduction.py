"""All experiments one after the other, each in a process of its own.

A process of its own gets its threads set before torch is loaded, gives its memory back, and may
crash without taking the others along.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from secondguess.experiments.worker import EXPERIMENTS


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an experiment ended.

    Attributes:
        experiment: its name.
        directories: of the seeds that were finished, or of what puts them together.
        log: what it printed.
        error: the last line of the log of an experiment that crashed, None of one that did not.
    """

    experiment: str
    directories: tuple[Path, ...]
    log: Path
    error: str | None

    @property
    def claims(self) -> list[dict]:
        """The claims of all seeds, as `result.json` has them."""
        return [
            claim
            for directory in dict.fromkeys(self.directories)
            for claim in json.loads((directory / "result.json").read_text())["claims"]
        ]


Listener = Callable[[str, str, float], None]
"""Told an experiment, its part, and the share of the experiment that is done."""


def reproduce_all(
    experiments: Iterable[str],
    *,
    preset: str,
    out: Path,
    data_dir: Path | None,
    listener: Listener,
) -> list[Outcome]:
    """Run, or go on with, each experiment; a crash of one does not stop the others.

    Args:
        experiments: keys of `EXPERIMENTS`.
        preset: one that all of them have.
        out: where results go.
        data_dir: the folder of the CIFAR-10H data, for that experiment only.
        listener: told how far it is.

    Raises:
        KeyboardInterrupt: after the process at work has ended; finished parts and checkpoints stay.
    """
    return [
        _run(name, preset, out, data_dir if name == "cifar10h" else None, listener)
        for name in experiments
    ]


def usable_cores() -> int:
    """The cores that this process may use.

    >>> usable_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run(name: str, preset: str, out: Path, data_dir: Path | None, listener: Listener) -> Outcome:
    log = out / "logs" / f"{name}-{preset}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    job = {
        "run": EXPERIMENTS[name],
        "preset": preset,
        "out": str(out),
        "data_dir": None if data_dir is None else str(data_dir),
    }
    threads = {"OMP_NUM_THREADS": str(usable_cores()), "TOKENIZERS_PARALLELISM": "false"}
    directories: list[Path] = []
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "secondguess.experiments.worker", json.dumps(job)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=threads | os.environ,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        # Ctrl-C reaches both processes; leaving this block waits for the other one to end.
        for line in process.stdout:
            event = json.loads(line)
            if "directory" in event:
                directories.append(Path(event["directory"]))
            else:
                listener(name, event["part"], event["share_done"])
    error = None
    if process.returncode != 0:
        lines = log.read_text(encoding="utf-8").split("\n")
        error = next((line for line in reversed(lines) if line.strip()), "no message")
    return Outcome(experiment=name, directories=tuple(directories), log=log, error=error)
