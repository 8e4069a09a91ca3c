"""The five phases of appendix F.2.1, for one method.

1. sweep over learning rate and weight decay of the pretraining;
2. pretraining with the best of them, for a short and a long time;
3. sweep over learning rate, weight decay and length of the fine-tuning, from either checkpoint;
4. fine-tuning with the best, on the validation images too;
5. evaluation on the test half.

Hyper-parameters are chosen by the divergence from the annotators' shares on the validation images,
never by anything of the second order. `tune` is phases 1 to 3, and is done once, on the original
data; `final_model` is phases 2 and 4, for any variant and seed.

Everything resumes: a sweep keeps its finished trials in a file, and training resumes from its own
checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from secondguess.classification.joint import PairJoint
from secondguess.classification.mixture_joint import MixtureJoint
from secondguess.classification.recalibration import PairRecalibration, fit_recalibration
from secondguess.classification.table_joint import TableJoint
from secondguess.experiments.cifar10h.data import AnnotatedInputs
from secondguess.experiments.cifar10h.fitting import (
    Stage,
    chosen_stage,
    fit,
    suggest,
    sweep,
    validation_kl,
)
from secondguess.experiments.cifar10h.learning_curve import LearningCurve
from secondguess.experiments.cifar10h.methods import Method
from secondguess.experiments.cifar10h.task import Task
from secondguess.theory.records import Prediction


@dataclass(frozen=True, kw_only=True)
class ProtocolConfig:
    """The size of the protocol, in optimizer steps; the defaults are the published one.

    Only `tune` uses the lengths and the number of trials; a recipe states its own lengths.

    >>> ProtocolConfig().long_pretraining // (50_000 // ProtocolConfig().batch_size)  # epochs
    200

    Attributes:
        batch_size: rows of a batch.
        short_pretraining: steps of a trial of phase 1, and of the shorter checkpoint of phase 2.
        long_pretraining: steps of the longer checkpoint.
        finetuning_lengths: lengths that phase 3 chooses from.
        num_trials: of the sweep in phase 1, and of that in phase 3 for each checkpoint.
        num_folds: parts of the fine-tuning images for out-of-fold recalibration; 0 for none.
    """

    batch_size: int = 512
    short_pretraining: int = 50 * 97
    long_pretraining: int = 200 * 97
    finetuning_lengths: tuple[int, ...] = (30 * 5, 50 * 5, 100 * 5, 200 * 5)
    num_trials: int = 250
    num_folds: int = 5


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What tuning finds.

    >>> stage = Stage(num_steps=100, learning_rate=1e-3, weight_decay=0.1)
    >>> Recipe(pretraining=stage, finetuning=stage).finetuning.learning_rate
    0.001

    Attributes:
        pretraining: the stage of phase 2 that led to the best fine-tuning.
        finetuning: that of phase 4.
        validation_kl: what the recipe reached in phase 3, where it was tuned here.
    """

    pretraining: Stage
    finetuning: Stage
    validation_kl: float | None = None


def _published(rates_1: tuple[float, float, int], rates_2: tuple[float, float, int]) -> Recipe:
    batch_size = ProtocolConfig().batch_size
    stages = [
        Stage(num_steps=epochs * (num_images // batch_size), learning_rate=rate, weight_decay=decay)
        for num_images, (rate, decay, epochs) in ((50_000, rates_1), (5_000, rates_2))
    ]
    return Recipe(pretraining=stages[0], finetuning=stages[1])


PAPER_RECIPES = {
    "naive": _published((3.799e-03, 3.656e-01, 50), (9.071e-05, 2.363e-01, 50)),
    "evidential": _published((7.465e-04, 2.950e-01, 200), (1.455e-04, 2.146e-03, 200)),
    "sngp": _published((1.221e-03, 4.742e-01, 200), (6.032e-05, 1.457e-01, 100)),
    "epinet": _published((1.327e-03, 4.513e-01, 50), (7.345e-05, 2.954e-01, 50)),
    "cheat": _published((1.113e-03, 4.835e-01, 50), (4.265e-05, 1.865e-01, 50)),
    "cheat-sngp": _published((1.687e-03, 4.411e-01, 200), (4.972e-05, 7.621e-05, 30)),
}
"""The hyper-parameters of appendix F.2.1, the ensemble's being those of the naive network."""

QUICK_RECIPE = Recipe(
    pretraining=Stage(num_steps=48, learning_rate=4e-3, weight_decay=2e-5),
    finetuning=Stage(num_steps=120, learning_rate=2.5e-4, weight_decay=0.2),
)
"""What the search of the preset `cpu` finds for the naive network and for pair models on frozen
features, rounded: as many epochs, two and six, of fewer images."""

PIXEL_RECIPE = Recipe(
    pretraining=Stage(
        num_steps=8 * (50_000 // 256),
        learning_rate=4e-3,
        weight_decay=0.01,
        matrix_learning_rate=0.1,
    ),
    finetuning=Stage(num_steps=80, learning_rate=1e-3, weight_decay=0.01),
)
"""Of the whitened ResNet, for all methods: eight epochs of the pretraining images, and four of the
fine-tuning ones."""


def tune(
    task: Task, method: Method, config: ProtocolConfig, *, directory: Path, seed: int
) -> Recipe:
    """Phases 1 to 3.

    Args:
        task: the original data.
        method: what to tune.
        config: the size of the protocol.
        directory: of the trials and checkpoints of this method.
        seed: of the searches and training runs.
    """
    data = task.data

    def pretraining_kl(trial: Any, scratch: Path) -> float:
        stage = suggest(trial, [config.short_pretraining])
        model = fit(
            task,
            method,
            data.pretraining,
            stage,
            batch_size=config.batch_size,
            seed=seed,
            checkpoint_dir=scratch,
        )
        return validation_kl(task, method, model, trained_on=data.pretraining, seed=seed)

    settings = {"directory": directory, "num_trials": config.num_trials, "seed": seed}
    found = sweep(pretraining_kl, name="pretraining", **settings)
    candidates: list[tuple[float, Recipe]] = []
    for length in (config.short_pretraining, config.long_pretraining):
        pretraining = chosen_stage(found, num_steps=length)
        start = pretrain(task, method, pretraining, config, directory=directory, seed=seed)

        def finetuning_kl(trial: Any, scratch: Path, start: nn.Module = start) -> float:
            stage = suggest(trial, config.finetuning_lengths)
            model = fit(
                task,
                method,
                data.finetuning,
                stage,
                batch_size=config.batch_size,
                seed=seed,
                start=start,
                checkpoint_dir=scratch,
            )
            return validation_kl(task, method, model, trained_on=data.finetuning, seed=seed)

        best = sweep(finetuning_kl, name=f"finetuning-{length}", **settings)
        kl: float = best["value"]
        recipe = Recipe(pretraining=pretraining, finetuning=chosen_stage(best), validation_kl=kl)
        candidates.append((kl, recipe))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def pretrain(
    task: Task,
    method: Method,
    stage: Stage,
    config: ProtocolConfig,
    *,
    directory: Path,
    seed: int,
    curve: LearningCurve | None = None,
) -> nn.Module:
    """Phase 2: a pretrained model, loaded where it is finished."""
    return fit(
        task,
        method,
        task.data.pretraining,
        stage,
        batch_size=config.batch_size,
        seed=seed,
        checkpoint_dir=directory / f"pretrained-{stage.num_steps}",
        curve=curve,
    )


def final_model(
    task: Task,
    method: Method,
    recipe: Recipe,
    config: ProtocolConfig,
    *,
    directory: Path,
    seed: int,
    curve: LearningCurve | None = None,
) -> nn.Module:
    """Phases 2 and 4: a model fine-tuned on all 5,000 images, loaded where it is finished."""
    start = pretrain(
        task, method, recipe.pretraining, config, directory=directory, seed=seed, curve=curve
    )
    return fit(
        task,
        method,
        task.data.all_finetuning,
        recipe.finetuning,
        batch_size=config.batch_size,
        seed=seed,
        start=start,
        checkpoint_dir=directory / "finetuned",
    )


def out_of_fold_recalibration(
    task: Task,
    method: Method,
    recipe: Recipe,
    config: ProtocolConfig,
    *,
    directory: Path,
    seed: int,
    curve: LearningCurve | None = None,
) -> PairRecalibration:
    """The recalibration of a pair model, fitted without held-out images.

    The final model has seen all fine-tuning images, so its own joints for them are too sure.
    Instead, each fold of the images is predicted by a model that was fine-tuned, by the same
    recipe, on the other folds.

    Args:
        task: the data.
        method: a pair model.
        recipe: of its phases 2 and 4.
        config: the size of the protocol.
        directory: of the final model; its pretraining is shared.
        seed: of the final model.
        curve: of its pretraining.
    """
    start = pretrain(
        task, method, recipe.pretraining, config, directory=directory, seed=seed, curve=curve
    )
    examples = task.data.all_finetuning
    rows = np.random.default_rng([seed, 4]).permutation(len(examples))
    joints: list[PairJoint] = []
    order = []
    for fold in range(config.num_folds):
        held_out = rows[fold :: config.num_folds]
        model = fit(
            task,
            method,
            examples[np.setdiff1d(rows, held_out)],
            recipe.finetuning,
            batch_size=config.batch_size,
            seed=seed,
            start=start,
            checkpoint_dir=directory / f"fold-{fold}",
        )
        joints += _joints(task, model, examples[held_out])
        order.append(held_out)
    responses = task.responses(examples, seed=seed)[np.concatenate(order)]
    return fit_recalibration(_concatenated(joints), responses)


def recalibrated_prediction(
    task: Task, model: nn.Module, examples: AnnotatedInputs, recalibration: PairRecalibration
) -> Prediction:
    """Predictions of a pair model for a split, after recalibration."""
    return recalibration(_concatenated(_joints(task, model, examples))).prediction()


@torch.no_grad()
def _joints(task: Task, model: nn.Module, examples: AnnotatedInputs) -> list[PairJoint]:
    return [model(inputs).double() for inputs in task.evaluation_inputs(examples, model)]


def _concatenated(joints: Sequence[PairJoint]) -> PairJoint:
    tables = [joint for joint in joints if isinstance(joint, TableJoint)]
    if len(tables) == len(joints):
        return TableJoint(torch.cat([joint.log_joint for joint in tables]))
    mixtures = [joint for joint in joints if isinstance(joint, MixtureJoint)]
    return MixtureJoint(
        torch.cat([joint.log_weights for joint in mixtures]),
        torch.cat([joint.log_components for joint in mixtures]),
    )
