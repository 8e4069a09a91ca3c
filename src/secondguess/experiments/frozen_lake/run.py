"""The presets of the experiment, and its parts: the exact predictor, training, samples of both.

`quick` and `cpu` use small networks and the experts' action probabilities as soft targets, which
makes cheating learnable within their budgets; `quick-sampled` and `cpu-sampled` learn from sampled
actions alone, as the paper does; `paper` is everything as published but for the discount (see
`ExpertConfig`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess._files import read_lines
from secondguess.experiments.frozen_lake.claims import lake_claims
from secondguess.experiments.frozen_lake.evaluation import (
    HeldOut,
    Walks,
    error_by_lake_cells,
    optimum_gaps,
    sampled_walks,
    top1,
    view_metrics,
)
from secondguess.experiments.frozen_lake.exact import ExactPredictor
from secondguess.experiments.frozen_lake.figures import draw_figures
from secondguess.experiments.frozen_lake.page import lake_section
from secondguess.experiments.frozen_lake.pairs import LakePairs, WalkSource
from secondguess.experiments.frozen_lake.walks import HIDDEN
from secondguess.experiments.frozen_lake.world import (
    NUM_EXPERTS,
    PRINTED_DISCOUNT,
    ExpertConfig,
)
from secondguess.experiments.runner import Part, PartResult, run_preset
from secondguess.experiments.sequence_models import (
    MODEL_PART,
    fresh_transformer,
    load_model,
    training_config,
)
from secondguess.language.formatting import Layout
from secondguess.language.model import PairLanguageModel
from secondguess.training.loop import train


@dataclass(frozen=True, kw_only=True)
class LakeConfig:
    """The size of a run; the defaults are the published ones (appendix F.4.2).

    Attributes:
        discount: of the experts.
        layout: how pairs are laid out.
        hidden_size: width of the transformer; its MLPs are four times as wide.
        num_layers: its blocks.
        num_heads: attention heads of a block.
        initializer_range: standard deviation of the first weights.
        batch_size: pairs per step.
        num_steps: steps of the training.
        learning_rate: the highest one.
        matrix_learning_rate: that of Muon on the weight matrices of the blocks, or None for AdamW.
        warmup_steps: steps until it is reached.
        hidden_share: the share of training pairs whose view hides the unsafe cell.
        soft_targets: learn the expert's action probabilities, not only the actions it took.
        num_buckets: how many batches are drawn at once and given out by length.
        clip_norm: largest norm of the gradient, or None.
        average_decay: of the moving average of the weights, or None.
        track_every: steps between two looks at the distance from the exact predictor.
        num_held_out: pairs that those looks use.
        num_samples: walks sampled under the hidden view, and under each visible one.
        seed: of weights, data and samples.
    """

    discount: float = 1.0
    layout: Layout = "padded"
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    initializer_range: float = 0.02
    batch_size: int = 512
    num_steps: int = 50_000
    learning_rate: float = 2e-5
    matrix_learning_rate: float | None = None
    warmup_steps: int = 1000
    hidden_share: float = 0.5
    soft_targets: bool = False
    num_buckets: int = 1
    clip_norm: float | None = None
    average_decay: float | None = None
    track_every: int = 1000
    num_held_out: int = 1000
    num_samples: int = 6400
    seed: int = 0


_SMALL = LakeConfig(
    layout="positions",
    hidden_size=64,
    num_layers=4,
    num_heads=4,
    initializer_range=0.125,
    batch_size=64,
    learning_rate=3e-3,
    matrix_learning_rate=0.02,
    warmup_steps=200,
    hidden_share=0.7,
    soft_targets=True,
    num_buckets=8,
    clip_norm=1.0,
    average_decay=0.998,
)
_QUICK = replace(_SMALL, num_steps=1200, track_every=300, num_samples=640)
_CPU = replace(_SMALL, num_steps=18_000)
PRESETS = {
    "quick": _QUICK,
    "quick-sampled": replace(_QUICK, soft_targets=False),
    "cpu": _CPU,
    "cpu-sampled": replace(_CPU, soft_targets=False),
    "paper": LakeConfig(),
}
STILL_LEARNING = ("quick", "quick-sampled")
"""Presets whose network is not judged (see `needs.py`), but the exact predictor is."""


def run_frozen_lake(*, preset: str, out: Path, seed: int = 0) -> Path:
    """Run or resume one seed; returns the directory of its results.

    Args:
        preset: a key of `PRESETS`.
        out: where results of all experiments are.
        seed: of weights, data and samples.
    """
    still_learning = preset in STILL_LEARNING
    return run_preset(
        PRESETS,
        experiment="frozen-lake",
        preset=preset,
        seed=seed,
        out=out,
        parts=lake_parts,
        claims=partial(lake_claims, still_learning=still_learning),
        draw=draw_figures,
        describe=partial(lake_section, still_learning=still_learning),
    )


def lake_parts(config: LakeConfig) -> list[Part]:
    """The parts of a run, in the order they need each other.

    Each depends on no more than it must, so that the number of samples can change without a new
    training.
    """
    trained, num_samples = _trained_with(config), {"num_samples": config.num_samples}
    exact = {"discount": config.discount, "seed": config.seed} | num_samples
    return [
        Part(name=name, config=depends_on, compute=partial(compute, config), effort=effort)
        for name, compute, depends_on, effort in (
            ("exact", _solve_exactly, exact, 0.2),
            (MODEL_PART, _train, trained, 10.0),
            ("samples", _sample, trained | num_samples, 1.0),
        )
    ]


def fresh_model(config: LakeConfig, pairs: LakePairs) -> PairLanguageModel:
    """The untrained model of a run; its weights depend on the seed alone."""
    return fresh_transformer(
        pairs.layout.formatter,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_positions=256,
        seed=config.seed,
        initializer_range=config.initializer_range,
    )


def _solve_exactly(config: LakeConfig, directory: Path, done: object) -> PartResult:
    """The exact predictor through the same metrics, at the run's discount and the printed one."""
    rng = np.random.default_rng([config.seed, 1])
    metrics, arrays = {}, {}
    for discount in dict.fromkeys((config.discount, PRINTED_DISCOUNT)):
        predictor = ExactPredictor(ExpertConfig(discount=discount))
        walks = _walks_of_all_views(config, predictor, predictor, rng)
        metrics[f"discount {discount:g}"] = _metrics(walks)
        if discount == config.discount:
            arrays = {"policies": predictor.policies} | _arrays(walks)
    return PartResult(metrics=metrics, arrays=arrays)


def _trained_with(config: LakeConfig) -> dict[str, Any]:
    """What the trained model depends on."""
    return {name: value for name, value in asdict(config).items() if name != "num_samples"}


def _train(config: LakeConfig, directory: Path, done: object) -> PartResult:
    pairs = LakePairs(config.layout)
    predictor = ExactPredictor(ExpertConfig(discount=config.discount))
    model = fresh_model(config, pairs)
    held_out = HeldOut.draw(predictor, config.num_held_out, np.random.default_rng([config.seed, 2]))
    looks = _Looks(directory / "distance-from-exact.jsonl")
    source = pairs.source(
        predictor.policies,
        WalkSource(
            batch_size=config.batch_size,
            seed=config.seed,
            hidden_share=config.hidden_share,
            soft_targets=config.soft_targets,
            num_buckets=config.num_buckets,
        ),
    )

    def batch_at(step: int) -> Any:
        looks.step = step + 1
        return source(step)

    def validate(network: Any) -> float:
        return looks.add(optimum_gaps(network, pairs, held_out))

    history = train(
        model.network,
        loss=pairs.loss,
        batch_at=batch_at,
        config=training_config(
            config, betas=(0.9, 0.98), validate_every=config.track_every, keep_best=False
        ),
        validate=validate,
        checkpoint_dir=directory / "checkpoints",
        checkpoint_every=200,
        identity={"experiment": "frozen-lake", **_trained_with(config)},
        progress="frozen lake",
    )
    model.save(directory / "model")
    return PartResult(
        metrics={
            "num_parameters": model.network.num_parameters(),
            "final_loss": float(history.losses[-100:].mean()),
            "distance_from_exact": optimum_gaps(model.network, pairs, held_out),
        },
        arrays={
            "losses": history.losses,
            "tracked_steps": history.validation_steps,
            **looks.at(history.validation_steps),
        },
    )


class _Looks:
    """Looks at the distance from the exact predictor, kept in a file, one line per look.

    A training that was killed looks again at the steps after its checkpoint; the last look at a
    step counts.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self.step = 0
        """How many steps the training has taken; the training keeps it up to date."""

    def add(self, gaps: Mapping[str, float]) -> float:
        """Keep a look at the present step; returns all nats above the exact predictor."""
        with self._log.open("a", encoding="utf-8") as file:
            # A line of its own, also where a killed run left half a line.
            file.write("\n" + json.dumps({"step": self.step, "gaps": gaps}) + "\n")
        names = ("hidden_y1", "hidden_y2", "visible_y1", "visible_y2")
        return sum(gaps[name] for name in names)

    def at(self, steps: IntArray) -> dict[str, FloatArray]:
        """The gaps at some steps, by name."""
        gaps_at = {}
        for line in read_lines(self._log):
            with suppress(ValueError):  # blank, or half a line
                look = line.parse()
                gaps_at[look["step"]] = look["gaps"]
        gaps = [gaps_at[int(step)] for step in steps]
        return {name: np.array([each[name] for each in gaps]) for name in gaps[0]}


def _sample(config: LakeConfig, directory: Path, done: Mapping[str, PartResult]) -> PartResult:
    walks = _walks_of_all_views(
        config,
        load_model(directory.parent.parent),
        ExactPredictor(ExpertConfig(discount=config.discount)),
        np.random.default_rng([config.seed, 3]),
    )
    return PartResult(metrics=_metrics(walks), arrays=_arrays(walks))


def _walks_of_all_views(
    config: LakeConfig,
    model: PairLanguageModel | ExactPredictor,
    predictor: ExactPredictor,
    rng: np.random.Generator,
) -> Walks:
    views = np.repeat(np.arange(HIDDEN, NUM_EXPERTS), config.num_samples)
    return sampled_walks(model, predictor, views, rng)


def _metrics(walks: Walks) -> dict[str, Any]:
    best = top1(walks)
    over_lake = walks.over_lake
    return {
        "hidden": view_metrics(walks[walks.views == HIDDEN]),
        "hidden_by_lake_cells": error_by_lake_cells(walks[walks.views == HIDDEN]),
        "visible": view_metrics(walks[walks.views != HIDDEN]),
        "top1": {
            str(view): {
                "answered": row is not None,
                "over_lake": row is not None and bool(over_lake[row]),
                "unsafe": 0.0 if row is None else float(walks.unsafe[row]),
            }
            for view, row in best.items()
        },
    }


def _arrays(walks: Walks) -> dict[str, np.ndarray]:
    return {
        "views": walks.views.astype(np.int8),
        "actions": walks.actions.astype(np.int8),
        "is_walk": walks.is_walk,
        "log_marginal": walks.scores.log_marginal.astype(np.float32),
        "log_self_conditional": walks.scores.log_self_conditional.astype(np.float32),
        "exact_log_marginal": walks.exact.log_marginal.astype(np.float32),
        "exact_log_self_conditional": walks.exact.log_self_conditional.astype(np.float32),
    }
