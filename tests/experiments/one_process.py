"""A stand-in for `run_side_by_side` that runs jobs in the test's own process.

What a test has patched holds there, as it would not in a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from secondguess.experiments.jobs import Job
from secondguess.experiments.processes import Outcome
from secondguess.experiments.runner import only_parts


def in_this_process(jobs: Sequence[Job], tell: object) -> list[Outcome]:
    """As `run_side_by_side`, one job after the other."""
    outcomes = []
    for job in jobs:
        try:
            with only_parts(job.parts):
                found = [
                    job.run(preset=job.preset, out=job.out, seed=seed, **job.options)
                    for seed in job.seeds
                ]
            outcomes.append(Outcome(job=job, directories=tuple(found)))
        except ValueError as error:
            outcomes.append(Outcome(job=job, directories=(), error="", mistake=str(error)))
    return outcomes
