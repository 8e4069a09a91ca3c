"""What there is to do when an experiment runs: jobs, each for one process.

How they run is `secondguess.experiments.processes`; what they compute, the experiment's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from secondguess.experiments.registry import Experiment


@dataclass(frozen=True, kw_only=True)
class Job:
    """Some seeds of an experiment, one after the other in one process.

    Attributes:
        title: its name on bars and logs.
        run: see `Experiment`; it reaches the process by its name, so it is a function of a module.
        seeds: in the order in which they run.
        preset: of the experiment.
        out: where results of all experiments are.
        options: other arguments of `run`.
        effort: how long it takes compared with other jobs, roughly.
        parts: which are computed, without results, beside the job that does the others; None for
            the whole run.
    """

    title: str
    run: Callable[..., Path]
    seeds: Sequence[int]
    preset: str
    out: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    effort: float = 1.0
    parts: Sequence[str] | None = None

    @property
    def log(self) -> Path:
        """The file of what it prints."""
        return self.out / "logs" / f"{self.title.replace(' ', '-')}-{self.preset}.txt"


def jobs_of(
    name: str,
    experiment: Experiment,
    *,
    preset: str,
    out: Path,
    first_seed: int = 0,
    num_seeds: int | None = None,
    **options: Any,
) -> list[Job]:
    """What there is to do for an experiment: one job per seed where seeds are independent.

    >>> from secondguess.experiments.registry import EXPERIMENTS
    >>> pi = EXPERIMENTS["digits-of-pi"]
    >>> [job.title for job in jobs_of("digits-of-pi", pi, preset="cpu", out=Path("out"))]
    ['digits-of-pi seed 0', 'digits-of-pi seed 1', 'digits-of-pi seed 2']

    Parts that may be computed beside the others are jobs of their own:

    >>> regression = EXPERIMENTS["regression"]
    >>> [job.title for job in jobs_of("regression", regression, preset="quick", out=Path("out"))]
    ['regression ensemble', 'regression evidential', 'regression']

    Args:
        name: of the experiment.
        experiment: its entry in the registry.
        preset: a key of its `num_seeds`.
        out: where results go.
        first_seed: the seeds are this one and the following ones.
        num_seeds: how many; None for the preset's.
        options: other arguments of `experiment.run`.
    """
    count = experiment.num_seeds[preset] if num_seeds is None else num_seeds
    seeds = list(range(first_seed, first_seed + count))
    groups = [[seed] for seed in seeds] if experiment.independent_seeds else [seeds]
    whole = [
        Job(
            title=name if len(groups) == 1 else f"{name} seed {group[0]}",
            run=experiment.run,
            seeds=group,
            preset=preset,
            out=out,
            options=options,
            effort=experiment.minutes.get(preset, 1.0) * len(group),
        )
        for group in groups
    ]
    methods = options.get("methods")
    beside = [part for part in experiment.beside if methods is None or part in methods]
    return [job for each in whole for job in _divided(each, beside, experiment.beside)]


def _divided(job: Job, parts: Sequence[str], shares: Mapping[str, float]) -> list[Job]:
    """One job per part that is computed beside the others, and the job with less to do.

    They may start in any order, so the longest comes first, as of all jobs: the rest leaves a part
    that is under way to its process, waits for it at the end, and computes one that has not begun.
    """
    rest = 1 - sum(shares[part] for part in parts)
    return [
        *(
            replace(
                job, title=f"{job.title} {part}", parts=(part,), effort=job.effort * shares[part]
            )
            for part in parts
        ),
        replace(job, effort=job.effort * rest),
    ]
