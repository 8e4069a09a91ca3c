"""Recipes for digits of pi that were tried on the way to the preset `cpu`, side by side.

    python benchmarks/pi_recipes.py --out out/pi-recipes --json docs/results/pi-recipes.json

Each is trained, then judged on all sentences about 3,000 digits: how many digits it knows, how far
the deciles of its confidence are from the truth, how much it trusts itself about digits that no
recipe learns, and how much of what it trusts most is made up. A stopped run resumes.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from secondguess._files import write_json
from secondguess.experiments.digits_of_pi.evaluation import (
    Statements,
    known_digits,
    reliability_bins,
)
from secondguess.experiments.digits_of_pi.run import PRESETS, pi_parts
from secondguess.experiments.runner import run_experiment

RECIPES: dict[str, dict[str, Any]] = {
    "narrow, AdamW": {
        "hidden_size": 64,
        "num_steps": 6500,
        "warmup_steps": 300,
        "uniform_share": 0.0,
    },
    "cpu": {},
}
"""Changes of the preset `cpu`."""

FIRST_UNLEARNED = 1500
MOST_TRUSTED = 0.1


def main() -> None:
    """Train, judge, print and keep."""
    parser = argparse.ArgumentParser(description="Recipes for digits of pi, side by side.")
    parser.add_argument("recipes", nargs="*", help=f"some of {', '.join(RECIPES)}; default: all")
    parser.add_argument("--out", type=Path, default=Path("out/pi-recipes"))
    parser.add_argument("--json", type=Path, help="keep the figures here")
    arguments = parser.parse_args()
    figures = {}
    for name in arguments.recipes or RECIPES:
        found = judged(scored(name, arguments.out))
        print(f"{name:12} " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()))
        figures[name] = {"changes": RECIPES[name], **found}
    if arguments.json:
        write_json(arguments.json, figures)


def scored(name: str, out: Path) -> Statements:
    """All sentences about all digits, by the model that a recipe gives."""
    config = replace(PRESETS["cpu"], **RECIPES[name])
    directory = run_experiment(
        experiment="digits-of-pi",
        preset=name,
        seed=config.seed,
        config=asdict(config),
        parts=[part for part in pi_parts(config) if part.name in ("training", "exact")],
        claims=lambda parts: [],
        draw=lambda parts, figures: None,
        out=out,
    )
    with np.load(directory / "parts" / "exact" / "arrays.npz") as arrays:
        return Statements.from_arrays(dict(arrays))


def judged(statements: Statements) -> dict[str, float]:
    """What the table of the docs shows of a recipe."""
    bins = reliability_bins(statements)
    below = bins.confidence < 0.95
    excess = (bins.hallucination_rate - (1 - bins.confidence))[below]
    confidence = np.minimum(statements.scores.epistemic_confidence, 1.0)
    unlearned = statements.offsets > FIRST_UNLEARNED
    order = np.argsort(statements.scores.confidence_gap(), axis=None)
    weights = statements.weights.ravel()[order]
    trusted = np.cumsum(weights) <= MOST_TRUSTED * weights.sum()
    wrong = ~statements.is_true.ravel()[order]
    return {
        "known_digits": known_digits(statements),
        "most_cautious_decile": float(excess.min()),
        "most_trusting_decile": float(excess.max()),
        "unlearned_confidence": float((statements.weights * confidence)[unlearned].sum(1).mean()),
        "unlearned_true": float(statements.share_correct[unlearned].mean()),
        "made_up_of_most_trusted": float((weights * wrong)[trusted].sum() / weights[trusted].sum()),
    }


if __name__ == "__main__":
    main()
