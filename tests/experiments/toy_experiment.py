"""A small experiment for the tests of what runs experiments: three parts, one of which trains.

Run as a process of its own, like the real ones; files in `out` tell it what to do and what it did.
"""

import json
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from secondguess.experiments.needs import Needs
from secondguess.experiments.registry import Experiment
from secondguess.experiments.runner import Claim, Part, PartResult, run_experiment
from secondguess.training.loop import TrainingConfig, train

NUM_STEPS = 60


def run_toy(*, preset: str, out: Path, seed: int) -> Path:
    """One seed; where `out` has a file `slow`, every step of the training takes a while."""
    parts = [
        Part(name=name, config={"seed": seed}, compute=partial(compute, out))
        for name, compute in (("before", _note), ("training", _train), ("after", _note))
    ]
    return run_experiment(
        experiment="toy",
        preset=preset,
        seed=seed,
        config={},
        parts=parts,
        claims=lambda done: [
            Claim(name="the seed is even", holds=seed % 2 == 0, value=seed, bound=0)
        ],
        draw=lambda done, directory: None,
        out=out,
    )


def run_crash(*, preset: str, out: Path, seed: int) -> Path:
    """An experiment that breaks."""
    raise RuntimeError("the lake has melted")


def run_wrong(*, preset: str, out: Path, seed: int) -> Path:
    """An experiment that was given what it cannot use."""
    raise ValueError("methods has 'magic'; expected some of none.")


def run_unmeasured(*, preset: str, out: Path, seed: int) -> Path:
    """One seed that has nothing to say about one claim, and is too small for another."""
    return run_experiment(
        experiment="unmeasured",
        preset=preset,
        seed=seed,
        config={},
        parts=[Part(name="nothing", config={}, compute=lambda directory, done: PartResult())],
        claims=lambda done: [
            Claim.at_most("error of no answer", float("nan"), 0.1),
            replace(Claim.at_least("large: size", 1.0, 2.0), needs=TOO_SMALL.preset),
        ],
        draw=lambda done, directory: None,
        out=out,
    )


def run_threads(*, preset: str, out: Path, seed: int) -> Path:
    """One seed whose result is the number of threads that torch uses."""
    out.mkdir(exist_ok=True)
    threads = {"torch": torch.get_num_threads(), "variable": os.environ["OMP_NUM_THREADS"]}
    (out / f"threads-{seed}.json").write_text(json.dumps(threads))
    return out


def run_waiting(*, preset: str, out: Path, seed: int) -> Path:
    """One seed that ends when it is allowed to."""
    until = time.monotonic() + 120
    while not (out / f"may-end-{seed}").exists():
        if time.monotonic() > until:
            raise TimeoutError(f"seed {seed} was never allowed to end")
        time.sleep(0.01)
    return out


TOY = Experiment(run=run_toy, num_seeds={"quick": 2, "cpu": 2}, independent_seeds=False)
CRASH = Experiment(run=run_crash, num_seeds={"quick": 1})
WRONG = Experiment(run=run_wrong, num_seeds={"quick": 1})
UNMEASURED = Experiment(run=run_unmeasured, num_seeds={"quick": 1})
TOO_SMALL = Needs(claims=("large: ",), preset="cpu", why="it is small")
THREADS = Experiment(run=run_threads, num_seeds={"quick": 2})
WAITING = Experiment(run=run_waiting, num_seeds={"quick": 3})


def _note(out: Path, directory: Path, done: object) -> PartResult:
    with (out / "computed.txt").open("a") as file:
        file.write(f"{directory.parent.parent.name} {directory.name}\n")
    return PartResult()


def _train(out: Path, directory: Path, done: object) -> PartResult:
    _note(out, directory, done)
    torch.manual_seed(0)
    model = nn.Linear(1, 1)

    def batch_at(step: int) -> torch.Tensor:
        if (out / "slow").exists():
            time.sleep(0.05)
        return torch.linspace(-1, 1, 8)[:, None] + step

    train(
        model,
        loss=lambda model, batch: (model(batch) - batch).square().mean(),
        batch_at=batch_at,
        config=TrainingConfig(num_steps=NUM_STEPS, learning_rate=0.01),
        checkpoint_dir=directory / "checkpoints",
        checkpoint_every=5,
        progress="toy",
    )
    return PartResult(metrics={"weight": model.weight.item()})
