"""One training run of one method on one split, and what the trained model predicts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from secondguess.baselines import ensemble, evidential
from secondguess.experiments.cifar10h.data import AnnotatedInputs
from secondguess.experiments.cifar10h.methods import Method
from secondguess.experiments.cifar10h.task import Task, derived_seed
from secondguess.theory.metrics import annotator_kl
from secondguess.theory.records import Prediction
from secondguess.training.loop import TrainingConfig, train

EVIDENTIAL_RAMP_EPOCHS = 10


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One training: how long and how.

    >>> Stage(num_steps=100, learning_rate=1e-3, weight_decay=0.1).num_steps
    100

    Attributes:
        num_steps: optimizer steps.
        learning_rate: the highest.
        weight_decay: of AdamW.
    """

    num_steps: int
    learning_rate: float
    weight_decay: float


def fit(
    task: Task,
    method: Method,
    examples: AnnotatedInputs,
    stage: Stage,
    *,
    batch_size: int,
    seed: int,
    start: nn.Module | None = None,
    checkpoint_dir: Path | None = None,
) -> nn.Module:
    """Train a method on a split, from scratch or from the weights of another run.

    Args:
        task: where the split comes from.
        method: what to train.
        examples: the split.
        stage: how long and how.
        batch_size: rows of a batch.
        seed: of initial values, batches, augmentation and dropout.
        start: the model to start from; it is left as it is.
        checkpoint_dir: of this training, to resume it and to load it when it is finished.
    """
    generator = torch.Generator().manual_seed(derived_seed(seed, 0))
    model = method.build(task.make_backbone, task.num_classes, generator)
    if start is not None:
        model.load_state_dict(start.state_dict())
    sources = [
        task.batches(
            examples,
            batch_size=batch_size,
            seed=derived_seed(seed, 1, member),
            all_pairs=method.all_pairs,
        )
        for member in range(method.num_members)
    ]
    batch_at = sources[0] if method.num_members == 1 else ensemble.member_batches(sources)
    epoch = max(1, len(examples) // batch_size)
    if method.is_evidential:
        # The weight has grown once the network is fine-tuned.
        ramp_steps = EVIDENTIAL_RAMP_EPOCHS * epoch if start is None else 1
        batch_at = evidential.regularised_batches(batch_at, ramp_steps=ramp_steps)
    train(
        model,
        loss=method.loss,
        batch_at=batch_at,
        config=TrainingConfig(
            num_steps=stage.num_steps,
            learning_rate=stage.learning_rate,
            weight_decay=stage.weight_decay,
            # An epoch as published, but not most of a run that is shorter than that.
            warmup_steps=min(epoch, stage.num_steps // 10),
            seed=derived_seed(seed, 2),
        ),
        checkpoint_dir=checkpoint_dir,
        checkpoint_every=500,
        identity={"method": method.title, "seed": seed, "rows": len(examples)},
    )
    return model


@torch.no_grad()
def predict(
    task: Task,
    method: Method,
    model: nn.Module,
    examples: AnnotatedInputs,
    *,
    trained_on: AnnotatedInputs,
    seed: int,
) -> Prediction:
    """Predictions of a trained model for a split.

    Args:
        task: where the split comes from.
        method: what was trained.
        model: the trained model.
        examples: the split.
        trained_on: the split of its last training, for methods with a posterior.
        seed: of methods that draw samples.
    """
    finished = method.finish(model, task.evaluation_inputs(trained_on, model))
    generator = torch.Generator().manual_seed(derived_seed(seed, 3))
    parts = [
        method.predict(finished, inputs, generator)
        for inputs in task.evaluation_inputs(examples, model)
    ]
    return Prediction(
        np.concatenate([part.probs for part in parts]),
        np.concatenate([part.variance for part in parts]),
    )


def validation_kl(
    task: Task, method: Method, model: nn.Module, *, trained_on: AnnotatedInputs, seed: int
) -> float:
    """The divergence by which hyper-parameters are chosen."""
    examples = task.data.validation
    prediction = predict(task, method, model, examples, trained_on=trained_on, seed=seed)
    return annotator_kl(prediction, task.variant.annotations(examples.responses.counts()))
