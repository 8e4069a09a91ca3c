"""One experiment in a process of its own: `python -m secondguess.experiments.worker JOB`.

JOB is a JSON object: `run` names a function ("module:function"), `preset`, `out` and `data_dir` (a
path or null) are its arguments. How far it is, and the directory of each seed that is finished, go
to standard output, a JSON object a line; everything else goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from secondguess.experiments.runner import progress_told_to

EXPERIMENTS = {
    "regression": "secondguess.experiments.regression.run:run_regression",
    "digits-of-pi": "secondguess.experiments.digits_of_pi.run:run_digits_of_pi",
    "frozen-lake": "secondguess.experiments.frozen_lake.run:run_frozen_lake",
    "cifar10h": "secondguess.experiments.cifar10h.run:run_cifar10h",
}
"""The function that runs a seed of each experiment; its module also has NUM_SEEDS, by preset."""


def num_seeds(run: str, preset: str) -> int:
    """How many seeds a preset of an experiment has.

    >>> num_seeds(EXPERIMENTS["digits-of-pi"], "cpu")
    3
    """
    return import_module(run.partition(":")[0]).NUM_SEEDS[preset]


def run_seed(run: str, *, preset: str, out: Path, seed: int, **options: Any) -> Path:
    """Run, or go on with, one seed of an experiment; returns the directory of its results."""
    module, _, function = run.partition(":")
    return getattr(import_module(module), function)(preset=preset, out=out, seed=seed, **options)


def main() -> None:
    """Do the job that the command line names."""
    job = json.loads(sys.argv[1])
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr
    seeds = num_seeds(job["run"], job["preset"])
    options = {} if job["data_dir"] is None else {"data_dir": Path(job["data_dir"])}
    for seed in range(seeds):

        def tell(part: str, share_done: float, seed: int = seed) -> None:
            event = {"part": part, "seed": seed, "share_done": (seed + share_done) / seeds}
            print(json.dumps(event), file=events)

        with progress_told_to(tell):
            directory = run_seed(
                job["run"],
                preset=job["preset"],
                out=Path(job["out"]),
                seed=seed,
                **options,
            )
        print(json.dumps({"directory": str(directory)}), file=events)


if __name__ == "__main__":
    main()
