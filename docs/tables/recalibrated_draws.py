"""How much the recalibration of digits of pi depends on which held-out pairs were drawn.

    python docs/tables/recalibrated_draws.py OUT && python docs/tables/digits_of_pi.py

OUT is where `secondguess reproduce digits-of-pi --preset quick --out OUT` has finished.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from pages import keep

from secondguess.experiments.digits_of_pi.evaluation import Statements
from secondguess.experiments.digits_of_pi.recalibrated import recalibration_metrics

COMMAND = "python docs/tables/recalibrated_draws.py OUT"
NUM_DRAWS, NUM_PAIRS = 20, (2, 10, 40)


def statements(out: Path, part: str) -> Statements:
    """What a finished part of the run holds."""
    path = out / "digits-of-pi" / "quick" / "seed-0" / "parts" / part / "arrays.npz"
    with np.load(path) as arrays:
        return Statements.from_arrays(dict(arrays))


def largest(found: dict[str, Any]) -> float:
    """The largest difference of 1 - C and the share made up, over deciles."""
    confidence, made_up = (
        np.array(found[f"decile_{name}"]) for name in ("confidence", "hallucination_rate")
    )
    return float(np.abs(made_up - (1 - confidence)).max())


def main(out: Path) -> None:
    """The differences before and after, for pairs drawn many times."""
    began = time.process_time()
    exact, sampled = (statements(out, part) for part in ("exact", "samples"))
    rows = []
    for num_pairs in NUM_PAIRS:
        found = [
            recalibration_metrics(
                exact, sampled, num_pairs=num_pairs, rng=np.random.default_rng([draw, num_pairs])
            )["exact"]
            for draw in range(NUM_DRAWS)
        ]
        after = [largest(each["after"]) for each in found]
        rows.append({"pairs": num_pairs, "before": largest(found[0]["before"]), "after": after})
    seconds = time.process_time() - began
    keep("recalibrated-draws", command=COMMAND, seconds=seconds, rows=rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
