"""A real training, shortened, whose result has other bits with another number of threads.

It has a module of its own because it loads much more than the toys do.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from secondguess.experiments.digits_of_pi.evaluation import exact_statements
from secondguess.experiments.digits_of_pi.pairs import PiPairs
from secondguess.experiments.digits_of_pi.run import PRESETS, fresh_model, training_batches
from secondguess.experiments.registry import Experiment
from secondguess.experiments.runner import Part, PartResult, run_experiment
from secondguess.experiments.sequence_models import training_config
from secondguess.training.loop import train


def run_bits(*, preset: str, out: Path, seed: int) -> Path:
    """One seed; its metrics are a loss and what every array hashes to."""

    def compute(directory: Path, done: object) -> PartResult:
        config = replace(PRESETS["quick"], num_steps=3, seed=seed)
        pairs = PiPairs(config.layout)
        model = fresh_model(config, pairs)
        history = train(
            model.network,
            loss=pairs.layout.loss,
            batch_at=training_batches(config, pairs),
            config=training_config(config),
        )
        scores = exact_statements(model, pairs, np.arange(1, 11)).scores
        matrix = np.random.default_rng(seed).random((400, 400))
        found = {
            "losses": history.losses,
            "log_marginal": scores.log_marginal,
            "log_self_conditional": scores.log_self_conditional,
            "product": matrix @ matrix,
        }
        bits = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in found.items()}
        return PartResult(metrics={"loss": float(history.losses[-1]), **bits})

    return run_experiment(
        experiment="bits",
        preset=preset,
        seed=seed,
        config={},
        parts=[Part(name="training", config={"seed": seed}, compute=compute)],
        claims=lambda done: [],
        draw=lambda done, directory: None,
        out=out,
    )


BITS = Experiment(run=run_bits, num_seeds={"quick": 2})
