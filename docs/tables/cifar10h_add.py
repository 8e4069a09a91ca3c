"""Add methods that were run later to a committed run of CIFAR-10H, or put them in place of others.

    python docs/tables/cifar10h_add.py OUT/cifar10h/cpu-pixels/seed-all/result.json

The new run has the same preset, on any machine, and some methods only (`secondguess reproduce
cifar10h --methods ...`). Claims are decided anew; comparisons with the naive network image by image
need the predictions of both, and stay as they are. Where the rows come from, by which settings they
were found and the means of the rows that they replace are kept under `added`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from judge import judged
from pages import DOCS

from secondguess.experiments.cifar10h.claims import best_pair_model
from secondguess.experiments.cifar10h.tables import method_of


def added(kept: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """A committed summary with the methods of another summary of the same preset."""
    for key in ("experiment", "preset"):
        if kept[key] != newer[key]:
            raise ValueError(f"the new run has {key} {newer[key]!r}; expected {kept[key]!r}.")
    rows = {
        variant: found | newer["metrics"].get(variant, {})
        for variant, found in kept["metrics"].items()
    }
    recipes = kept["recipes"] | newer["recipes"]
    methods = {method_of(row) for found in newer["metrics"].values() for row in found}
    result = {
        **kept,
        "seconds": kept["seconds"] | newer["seconds"],
        "recipes": recipes,
        "metrics": rows,
        "learning_curves": kept.get("learning_curves", {}) | newer["learning_curves"],
        "best_pair_model": {
            variant: row for variant in rows if (row := best_pair_model(rows[variant], recipes))
        },
        "added": kept.get("added", {})
        | {
            method: {
                **{key: newer[key] for key in ("seeds", "config", "machine", "versions")},
                "replaced": replaced_means(kept, newer, method),
            }
            for method in sorted(methods)
        },
    }
    return result | {"claims": judged(result)}


def replaced_means(
    kept: Mapping[str, Any], newer: Mapping[str, Any], method: str
) -> dict[str, dict[str, dict[str, float]]]:
    """By variant and row, what the rows of a method were on average before a newer run."""
    return {
        variant: {
            row: {key: round(float(np.mean(values)), 6) for key, values in rows[row].items()}
            for row in found
            if method_of(row) == method and row in rows
        }
        for variant, found in newer["metrics"].items()
        for rows in [kept["metrics"][variant]]
    }


if __name__ == "__main__":
    newer = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    path = DOCS / "results" / f"cifar10h-{newer['preset']}.json"
    result = added(json.loads(path.read_text(encoding="utf-8")), newer)
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {path}")
