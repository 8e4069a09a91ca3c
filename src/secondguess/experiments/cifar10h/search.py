"""Random search over hyper-parameters, on Optuna, with its finished trials in a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from secondguess.experiments.cifar10h.fitting import Stage
from secondguess.experiments.cifar10h.task import derived_seed

_DIVERGED = "diverged"


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
    Stage(num_steps=200, learning_rate=0.001, weight_decay=0.3)
    """
    decay = params["strong_weight_decay" if params["strong_decay"] else "weak_weight_decay"]
    fields = {"num_steps": params["num_steps"], "learning_rate": params["learning_rate"]}
    return Stage(**(fields | {"weight_decay": decay} | changes))
