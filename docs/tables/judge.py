"""Judges kept runs again by the claims of today, which need their numbers alone.

python docs/tables/judge.py
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pages import DOCS

from secondguess.experiments.cifar10h.claims import cifar10h_claims
from secondguess.experiments.cifar10h.evaluation import Difference, FromNaive
from secondguess.experiments.needs import marked
from secondguess.experiments.regression.claims import regression_claims
from secondguess.experiments.runner import PartResult

KEPT = DOCS / "results"
RUNS = (
    *sorted(path.name for path in KEPT.glob("cifar10h-cpu*.json")),
    *sorted(path.name for path in KEPT.glob("regression-*.json")),
    "quick/regression-sinusoid/quick/seed-0/result.json",
)


def judged(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims that a kept run decides."""
    if run["experiment"].startswith("regression"):
        parts = {name: PartResult(metrics) for name, metrics in run["metrics"].items()}
        claims = marked(regression_claims(parts), "regression", run["preset"])
        return [asdict(claim) for claim in claims]
    from_naive = {
        variant: {
            row: FromNaive(*(_difference(found[name]) for name in FromNaive._fields))
            for row, found in rows.items()
        }
        for variant, rows in run["minus_naive"].items()
    }
    best = run["best_pair_model"]
    claims = cifar10h_claims(run["metrics"], best, from_naive)
    return [asdict(claim) for claim in marked(claims, "cifar10h", run["preset"])]


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
        (KEPT / name).write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n")
        print(KEPT / name)
