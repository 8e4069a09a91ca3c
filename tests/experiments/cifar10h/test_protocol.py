"""The protocol on a small world in place of images: features that say which labels to expect."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from secondguess.baselines import evidential
from secondguess.classification.losses import all_pairs_loss
from secondguess.classification.pairs import PairData
from secondguess.experiments.cifar10h import data
from secondguess.experiments.cifar10h.data import AnnotatedInputs, Cifar10H
from secondguess.experiments.cifar10h.evaluation import measure
from secondguess.experiments.cifar10h.fitting import (
    Stage,
    evidential_ramp,
    fit,
    predict,
    sweep,
    validation_kl,
)
from secondguess.experiments.cifar10h.frozen import FeatureMLP
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.protocol import (
    PAPER_RECIPES,
    ProtocolConfig,
    Recipe,
    final_model,
    out_of_fold_recalibration,
    recalibrated_prediction,
    tune,
)
from secondguess.experiments.cifar10h.run import PRESETS
from secondguess.experiments.cifar10h.tables import COLUMNS, PAPER_DEVIATIONS, PAPER_MEANS
from secondguess.experiments.cifar10h.task import VARIANTS, Task, Variant
from secondguess.theory.metrics import accuracy, annotator_kl
from secondguess.theory.records import Prediction

TINY = ProtocolConfig(
    batch_size=64, short_pretraining=4, long_pretraining=6, finetuning_lengths=(3,), num_trials=2
)
RECIPE = Recipe(
    pretraining=Stage(num_steps=60, learning_rate=5e-3, weight_decay=0.01),
    finetuning=Stage(num_steps=30, learning_rate=2e-3, weight_decay=0.01),
)


def world(seed: int = 0) -> Cifar10H:
    """Labels from softmax(4 W x) plus what the features do not show, in ten classes."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(8, 10))

    def part(number: int, num_annotations: int) -> AnnotatedInputs:
        inputs = rng.normal(size=(number, 8))
        logits = 1.5 * inputs @ weights + 1.5 * rng.normal(size=(number, 10))
        probs = np.exp(logits - logits.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        responses = PairData.from_counts(rng.multinomial(num_annotations, probs))
        return AnnotatedInputs(torch.from_numpy(inputs).float(), responses, probs.argmax(axis=1))

    return Cifar10H(part(2000, 3), part(2500, 20))


DATA = world()


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "NUM_FINETUNING", 600)
    monkeypatch.setattr(data, "NUM_VALIDATION", 400)


def task(variant: Variant | None = None) -> Task:
    return Task(
        data=DATA,
        variant=variant or Variant(),
        prepare=lambda inputs, generator: inputs,
        make_backbone=lambda bound, generator: FeatureMLP(
            8, 16, spectral_bound=bound, generator=generator
        ),
    )


def untouchable(inputs: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    raise AssertionError("inputs were asked for")


@pytest.mark.parametrize("variant", ["original", "extra-classes"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_and_predicts(name: str, variant: str) -> None:
    current, method = task(VARIANTS[variant]), METHODS[name]

    def kl(num_steps: int) -> float:
        stage = replace(RECIPE.pretraining, num_steps=num_steps)
        model = fit(current, method, DATA.pretraining, stage, batch_size=64, seed=0)
        return validation_kl(current, method, model, trained_on=DATA.pretraining, seed=0)

    if name != "evidential":  # whose regularisation wants flat distributions
        assert kl(60) < kl(1) - 0.05
    model = fit(current, method, DATA.pretraining, RECIPE.finetuning, batch_size=64, seed=0)
    few = DATA.test[:50]
    prediction = predict(current, method, model, few, trained_on=DATA.finetuning, seed=0)
    assert prediction.probs.shape == (50, current.num_classes)
    assert prediction.variance.max() > 0
    assert (prediction.variance <= prediction.probs * (1 - prediction.probs) + 1e-9).all()
    if "cheat" not in name:
        assert prediction.variance.min() >= 0


def test_evidential_regularisation_is_whole_by_half_of_a_short_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ramps: list[int] = []
    regularised = evidential.regularised_batches

    def watched(batch_at: Any, *, ramp_steps: int) -> Any:
        ramps.append(ramp_steps)
        return regularised(batch_at, ramp_steps=ramp_steps)

    monkeypatch.setattr(evidential, "regularised_batches", watched)
    stage = replace(RECIPE.pretraining, num_steps=6)
    options: dict[str, Any] = {"batch_size": 64, "seed": 0}
    model = fit(task(), METHODS["evidential"], DATA.pretraining, stage, **options)
    fit(task(), METHODS["evidential"], DATA.finetuning, stage, start=model, **options)
    assert ramps == [3, 1]
    published = PAPER_RECIPES["evidential"].pretraining.num_steps
    assert evidential_ramp(published, epoch=97) == 10 * 97
    assert evidential_ramp(1, epoch=97) == 1


def quadratic(
    calls: list[float], *, stop_at: int | None = None, stop: type[BaseException] = KeyboardInterrupt
) -> Callable[[Any, Path], float]:
    def objective(trial: Any, scratch: Path) -> float:
        x = trial.suggest_float("x", -1, 1)
        if len(calls) == stop_at:
            raise stop
        calls.append(x)
        return x**2

    return objective


SETTINGS: dict[str, Any] = {"name": "sweep", "num_trials": 6, "seed": 3}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, OSError])
def test_an_interrupted_sweep_loses_no_trial(stop: type[BaseException], tmp_path: Path) -> None:
    whole: list[float] = []
    expected = sweep(quadratic(whole), directory=tmp_path / "whole", **SETTINGS)

    calls: list[float] = []
    with pytest.raises(stop):
        sweep(quadratic(calls, stop_at=4, stop=stop), directory=tmp_path / "stopped", **SETTINGS)
    assert len(calls) == 4
    found = sweep(quadratic(calls), directory=tmp_path / "stopped", **SETTINGS)
    assert calls == whole  # four before, two after, none twice, and the same as without the stop
    assert found == expected
    sweep(quadratic(calls, stop_at=6), directory=tmp_path / "stopped", **SETTINGS)  # nothing to do


KILLED_IN_ITS_FIFTH_TRIAL = """
import os, signal, sys
from pathlib import Path
from secondguess.experiments.cifar10h.fitting import sweep

finished = []
def objective(trial, scratch):
    x = trial.suggest_float("x", -1, 1)
    if len(finished) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    finished.append(x)
    return x**2

sweep(objective, directory=Path(sys.argv[1]), name="sweep", num_trials=6, seed=3)
"""


def test_a_killed_process_loses_no_finished_trial(tmp_path: Path) -> None:
    whole: list[float] = []
    expected = sweep(quadratic(whole), directory=tmp_path / "whole", **SETTINGS)
    directory = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED_IN_ITS_FIFTH_TRIAL, str(directory)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    calls: list[float] = []
    assert sweep(quadratic(calls), directory=directory, **SETTINGS) == expected
    assert calls == whole[4:]  # the four that were finished are not done again


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_trials_that_diverge_count_and_are_not_chosen(tmp_path: Path) -> None:
    def objective(trial: Any, scratch: Path) -> float:
        x = trial.suggest_float("x", -1, 1)
        if x < 0:
            raise FloatingPointError
        return x

    found = sweep(objective, directory=tmp_path, name="half", num_trials=8, seed=0)
    assert found["x"] > 0

    def hopeless(trial: Any, scratch: Path) -> float:
        raise FloatingPointError

    with pytest.raises(RuntimeError, match="all 2 trials of none diverged"):
        sweep(hopeless, directory=tmp_path, name="none", num_trials=2, seed=0)


def test_tuning_follows_the_phases_and_is_done_once(tmp_path: Path) -> None:
    recipe = tune(task(), METHODS["naive"], TINY, directory=tmp_path, seed=0)
    assert recipe.pretraining.num_steps in (4, 6)
    assert recipe.finetuning.num_steps == 3
    assert 1e-5 <= recipe.pretraining.learning_rate <= 5e-3
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {
        "pretrained-4",
        "pretrained-6",
    }
    again = replace(task(), prepare=untouchable)
    assert tune(again, METHODS["naive"], TINY, directory=tmp_path, seed=0) == recipe


def test_a_finished_model_is_loaded_not_trained_again(tmp_path: Path) -> None:
    settings = {"directory": tmp_path, "seed": 0}
    first = final_model(task(), METHODS["cheat"], RECIPE, TINY, **settings)
    again = final_model(
        replace(task(), prepare=untouchable), METHODS["cheat"], RECIPE, TINY, **settings
    )
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert one.equal(other)


@pytest.mark.parametrize("name", ["cheat", "cheat-mixture"])
def test_out_of_fold_recalibration_makes_new_pairs_more_likely(name: str, tmp_path: Path) -> None:
    """Fine-tuned on 1,000 rows at a high rate and for too long; judged on 1,500 others."""
    overfitted = replace(
        RECIPE, finetuning=Stage(num_steps=150, learning_rate=2e-2, weight_decay=0.0)
    )
    current, method, test = task(), METHODS[name], DATA.test
    settings: dict[str, Any] = {"directory": tmp_path, "seed": 0}
    model = final_model(current, method, overfitted, TINY, **settings)
    recalibration = out_of_fold_recalibration(current, method, overfitted, TINY, **settings)

    joint = model(test.inputs).double()
    responses = [
        torch.from_numpy(part) for part in (test.responses.labels, test.responses.multiplicity)
    ]
    plain, repaired = (all_pairs_loss(j, *responses) for j in (joint, recalibration(joint)))
    assert repaired < plain
    prediction = recalibrated_prediction(current, model, test, recalibration)
    np.testing.assert_allclose(prediction.probs, recalibration(joint).prediction().probs)


def test_measures_count_classes_with_subclasses_as_one() -> None:
    variant = VARIANTS["extra-classes"]
    split = variant.subclass_probs()
    assert split is not None
    shares = DATA.test.responses.counts() / DATA.test.responses.num_annotations[:, None]
    probs = (shares[:, :, None] * split).reshape(len(shares), 30)
    numbers = measure(Prediction(probs, np.zeros_like(probs)), DATA.test, variant)
    assert numbers["kl"] == pytest.approx(0, abs=1e-12)
    assert numbers["first_order_ece"] == pytest.approx(0, abs=1e-12)

    called = np.random.default_rng(0).dirichlet(np.ones(10), size=len(shares))  # without ties
    both = [
        measure(Prediction(probs, np.zeros_like(probs)), DATA.test, kind)["accuracy"]
        for probs, kind in (
            (called, Variant()),
            ((called[:, :, None] * split).reshape(len(called), 30), variant),
        )
    ]
    assert both[0] == both[1]


def test_accuracy_and_divergence_are_the_metrics_of_the_theory_layer() -> None:
    probs = np.random.default_rng(0).dirichlet(np.ones(10), size=len(DATA.test))
    numbers = measure(Prediction(probs, np.zeros_like(probs)), DATA.test, Variant())
    assert numbers["accuracy"] == pytest.approx(100 * accuracy(probs, DATA.test.labels))
    assert numbers["kl"] == pytest.approx(annotator_kl(probs, DATA.test.responses.counts()))


def test_the_papers_tables_are_whole() -> None:
    published = {"naive", "ensemble", "evidential", "sngp", "epinet", "cheat", "cheat-sngp"}
    for table in (*PAPER_MEANS.values(), *PAPER_DEVIATIONS.values()):
        assert set(table) == published
        assert {len(row) for row in table.values()} == {len(COLUMNS)}
    # ECE-2 is at least the distance of the means, to the digits printed
    for rows in PAPER_MEANS.values():
        for ece, variance, error, *_ in rows.values():
            assert ece is not None
            assert variance is not None
            assert error is not None
            assert ece >= abs(variance - error) - 0.0011


def test_presets_name_known_methods_and_have_recipes_where_nothing_is_tuned() -> None:
    for preset in PRESETS.values():
        assert set(preset.methods) <= set(METHODS)
        assert set(preset.variants) <= set(VARIANTS)
        if preset.recipes is not None:
            tuned = {METHODS[name].tuned_as or name for name in preset.methods}
            assert tuned <= set(preset.recipes)
