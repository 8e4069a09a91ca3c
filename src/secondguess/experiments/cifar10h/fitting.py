"""One stage of training of one method, what the model predicts, and the search for its stage.

The search is random, on Optuna, with its finished trials in a file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from secondguess.baselines import ensemble, evidential
from secondguess.experiments.cifar10h.data import AnnotatedInputs
from secondguess.experiments.cifar10h.learning_curve import LearningCurve
from secondguess.experiments.cifar10h.methods import Method
from secondguess.experiments.cifar10h.task import Task, derived_seed
from secondguess.theory.metrics import annotator_kl
from secondguess.theory.records import Prediction
from secondguess.training.loop import TrainingConfig, train

EVIDENTIAL_RAMP_EPOCHS = 10
"""Over which the evidential regularisation grows in the published pretraining of 200 epochs."""
_DIVERGED = "diverged"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One training: how long and how.

    >>> Stage(num_steps=100, learning_rate=1e-3, weight_decay=0.1).num_steps
    100

    Attributes:
        num_steps: optimizer steps.
        learning_rate: the highest.
        weight_decay: of AdamW.
        matrix_learning_rate: of Muon, for the kernels of a whitened ResNet; None for AdamW alone.
    """

    num_steps: int
    learning_rate: float
    weight_decay: float
    matrix_learning_rate: float | None = None


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
    curve: LearningCurve | None = None,
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
        curve: looks at the network once per epoch.
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
        ramp_steps = evidential_ramp(stage.num_steps, epoch) if start is None else 1
        batch_at = evidential.regularised_batches(batch_at, ramp_steps=ramp_steps)
    looks = {} if curve is None else {"validate_every": epoch, "keep_best": False}
    train(
        model,
        loss=method.loss,
        batch_at=batch_at if curve is None else curve.watched(batch_at),
        config=TrainingConfig(
            num_steps=stage.num_steps,
            learning_rate=stage.learning_rate,
            weight_decay=stage.weight_decay,
            matrix_learning_rate=stage.matrix_learning_rate,
            # An epoch as published, but not most of a run that is shorter than that.
            warmup_steps=min(epoch, stage.num_steps // 10),
            seed=derived_seed(seed, 2),
            **looks,
        ),
        validate=None if curve is None else curve.look,
        checkpoint_dir=checkpoint_dir,
        checkpoint_every=500,
        identity={"method": method.title, "seed": seed, "rows": len(examples)},
    )
    return model


def evidential_ramp(num_steps: int, epoch: int) -> int:
    """Steps over which the evidential regularisation grows to its full weight.

    Ten epochs of the pretraining, as published, but at most half of it: a short training would
    else end before the weight has grown.

    >>> evidential_ramp(200 * 97, epoch=97), evidential_ramp(400, epoch=195)
    (970, 200)

    Args:
        num_steps: of the whole pretraining.
        epoch: steps of one epoch.
    """
    return max(1, min(EVIDENTIAL_RAMP_EPOCHS * epoch, num_steps // 2))


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


def sweep(
    objective: Callable[[Any, Path], float],
    *,
    directory: Path,
    name: str,
    num_trials: int,
    seed: int,
) -> dict[str, Any]:
    """The best parameters of a random search whose finished trials are kept in a file.

    The k-th finished trial has the same parameters whether or not the search was stopped and
    resumed in between: they depend on the seed and on k alone.

    >>> import tempfile
    >>> def objective(trial, scratch):
    ...     return (trial.suggest_float("x", -1, 1) - 0.5) ** 2
    >>> directory = Path(tempfile.mkdtemp())
    >>> best = sweep(objective, directory=directory, name="parabola", num_trials=20, seed=0)
    >>> best["value"] < 0.1
    True

    Args:
        objective: from an Optuna trial, and a directory for its checkpoints, to a number, the
            smaller the better. A run that diverges (`FloatingPointError`) is a failed trial.
        directory: where the file is.
        name: of the search; several share a file.
        num_trials: finished trials to reach.
        seed: of the search.

    Raises:
        RuntimeError: every trial failed.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    directory.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(directory / "trials.journal"))),
        study_name=name,
        load_if_exists=True,
    )

    def num_ended() -> int:
        # Optuna calls a trial failed as well when it was interrupted; that one is done again.
        return sum(
            trial.state == TrialState.COMPLETE or _DIVERGED in trial.user_attrs
            for trial in study.get_trials(deepcopy=False)
        )

    while (done := num_ended()) < num_trials:
        study.sampler = optuna.samplers.RandomSampler(seed=derived_seed(seed, done))
        scratch = directory / f"{name}-trial-{done}"

        def marked(trial: Any, scratch: Path = scratch) -> float:
            try:
                return objective(trial, scratch)
            except FloatingPointError:
                trial.set_user_attr(_DIVERGED, True)
                raise

        study.optimize(marked, n_trials=1, catch=(FloatingPointError,))
        shutil.rmtree(scratch, ignore_errors=True)
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        raise RuntimeError(
            f"all {num_trials} trials of {name} diverged; lower the learning rates of the search."
        )
    return study.best_params | {"value": study.best_value}


def suggest(trial: Any, lengths: Sequence[int]) -> Stage:
    """A stage from the search space of appendix F.2.1.

    Weight decay is either strong, uniform in [0.05, 0.5], or weak, log-uniform in [1e-6, 0.05].

    Args:
        trial: an Optuna trial.
        lengths: the lengths to choose from.
    """
    rate = trial.suggest_float("learning_rate", 1e-5, 5e-3, log=True)
    strong = trial.suggest_categorical("strong_decay", [True, False])
    decays = {
        True: trial.suggest_float("strong_weight_decay", 0.05, 0.5),
        False: trial.suggest_float("weak_weight_decay", 1e-6, 0.05, log=True),
    }
    length = trial.suggest_categorical("num_steps", list(lengths))
    return Stage(num_steps=length, learning_rate=rate, weight_decay=decays[strong])


def chosen_stage(params: Mapping[str, Any], **changes: Any) -> Stage:
    """The stage that `suggest` made of these parameters, with some fields changed.

    >>> params = {"learning_rate": 1e-3, "num_steps": 50, "strong_decay": True}
    >>> params |= {"strong_weight_decay": 0.3, "weak_weight_decay": 1e-5}
    >>> chosen_stage(params, num_steps=200)
    Stage(num_steps=200, learning_rate=0.001, weight_decay=0.3, matrix_learning_rate=None)
    """
    decay = params["strong_weight_decay" if params["strong_decay"] else "weak_weight_decay"]
    fields = {"num_steps": params["num_steps"], "learning_rate": params["learning_rate"]}
    return Stage(**(fields | {"weight_decay": decay} | changes))
