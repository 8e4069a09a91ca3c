"""Judges the kept runs of CIFAR-10H again by the claims of today, which need its rows alone.

python docs/tables/judge.py
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pages import DOCS

from secondguess.experiments.cifar10h.claims import cifar10h_claims
from secondguess.experiments.cifar10h.evaluation import Difference, FromNaive

KEPT = DOCS / "results"
RUNS = ("cifar10h-cpu.json",)


def judged(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims that a kept summary decides."""
    from_naive = {
        variant: {
            row: FromNaive(*(_difference(found[name]) for name in FromNaive._fields))
            for row, found in rows.items()
        }
        for variant, rows in run["minus_naive"].items()
    }
    return [
        asdict(claim)
        for claim in cifar10h_claims(run["metrics"], run["best_pair_model"], from_naive)
    ]


def _difference(found: dict[str, float | None]) -> Difference:
    """Where a run kept no predictions of the images, with the noise of the seeds alone."""
    mean, error, of_seeds = (found[name] for name in Difference._fields)
    assert mean is not None
    assert of_seeds is not None
    return Difference(mean, of_seeds if error is None else error, of_seeds)


if __name__ == "__main__":
    for name in RUNS:
        run = json.loads((KEPT / name).read_text())
        run["claims"] = judged(run)
        (KEPT / name).write_text(json.dumps(run, indent=2) + "\n")
        print(KEPT / name)
