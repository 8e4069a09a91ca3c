"""The experiments: which there are, how many seeds each preset has, and the function that runs one.

The functions import their experiment when they are called, so that listing experiments loads
neither torch nor anything else that is heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment, before anything of it is loaded.

    >>> EXPERIMENTS["digits-of-pi"].num_seeds["cpu"]
    3

    Attributes:
        run: `run(preset=, out=, seed=, **options)` runs or resumes one seed and returns the
            directory of its results.
        num_seeds: by preset.
        minutes: by preset, what a seed takes on one core, roughly: the longest ones start first,
            and bars use it. 1 where a preset is not named.
        independent_seeds: whether its seeds may run at the same time.
        beside: methods that a process of their own may compute beside the others, because no other
            part of the run needs them, and their share of its minutes.
    """

    run: Callable[..., Path]
    num_seeds: Mapping[str, int]
    minutes: Mapping[str, float] = field(default_factory=dict)
    independent_seeds: bool = True
    beside: Mapping[str, float] = field(default_factory=dict)


def _regression(**settings: Any) -> Path:
    from secondguess.experiments.regression.run import run_regression

    return run_regression(**settings)


def _digits_of_pi(**settings: Any) -> Path:
    from secondguess.experiments.digits_of_pi.run import run_digits_of_pi

    return run_digits_of_pi(**settings)


def _frozen_lake(**settings: Any) -> Path:
    from secondguess.experiments.frozen_lake.run import run_frozen_lake

    return run_frozen_lake(**settings)


def _cifar10h(**settings: Any) -> Path:
    from secondguess.experiments.cifar10h.run import run_cifar10h

    return run_cifar10h(**settings)


def _facts(**settings: Any) -> Path:
    from secondguess.experiments.facts.run import run_facts

    return run_facts(**settings)


def _associations(**settings: Any) -> Path:
    from secondguess.experiments.associations.run import run_associations

    return run_associations(**settings)


EXPERIMENTS = {
    "regression": Experiment(
        run=_regression,
        num_seeds={"quick": 1, "cpu": 1, "paper": 1},
        minutes={"quick": 3, "cpu": 90, "paper": 90},
        beside={"ensemble": 0.5, "evidential": 0.15},
    ),
    "digits-of-pi": Experiment(
        run=_digits_of_pi,
        num_seeds={"quick": 1, "cpu": 3, "paper": 1},
        minutes={"quick": 4.5, "cpu": 25, "paper": 10_000},
    ),
    "frozen-lake": Experiment(
        run=_frozen_lake,
        num_seeds={"quick": 1, "quick-sampled": 1, "cpu": 2, "cpu-sampled": 1, "paper": 1},
        minutes={"quick": 4.5, "quick-sampled": 4.5, "cpu": 75, "cpu-sampled": 75, "paper": 10_000},
    ),
    "cifar10h": Experiment(
        run=_cifar10h,
        num_seeds={"quick": 1, "cpu": 8, "cpu-pixels": 1, "paper": 8},
        minutes={"quick": 2, "cpu": 15, "cpu-pixels": 60, "paper": 10_000},
        # Seed 0 tunes for all of them, and each adds to the summary of those before it.
        independent_seeds=False,
    ),
    "facts": Experiment(
        run=_facts,
        num_seeds={"quick": 1, "cpu": 3, "cpu-large": 1},
        minutes={"quick": 5, "cpu": 120, "cpu-large": 90},
    ),
    "associations": Experiment(
        run=_associations, num_seeds={"quick": 1, "cpu": 1}, minutes={"quick": 5, "cpu": 40}
    ),
}
"""By the name that the command line uses."""
