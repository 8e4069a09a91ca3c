"""Looks during a training on images, and what a stop does to them."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from secondguess.classification.pairs import PairData
from secondguess.experiments.cifar10h import learning_curve
from secondguess.experiments.cifar10h.data import AnnotatedInputs, Cifar10H
from secondguess.experiments.cifar10h.fitting import Stage, fit
from secondguess.experiments.cifar10h.learning_curve import LearningCurve, Look
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.task import VARIANTS, Task, image_task
from secondguess.models.whitened_resnet import WhitenedResNet
from secondguess.training.signals import TrainingStopped

STAGE = Stage(num_steps=10, learning_rate=1e-3, weight_decay=0.1, matrix_learning_rate=0.02)


def small_task() -> Task:
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=16)
    examples = AnnotatedInputs(
        rng.integers(256, size=(16, 3, 32, 32), dtype=np.uint8),
        PairData.from_counts(50 * np.eye(10, dtype=int)[labels]),
        labels,
    )
    return image_task(
        Cifar10H(examples, examples),
        VARIANTS["original"],
        lambda images, **settings: WhitenedResNet(images, widths=(4, 8, 8), **settings),
    )


def stopping_at(task: Task, batch: int) -> Task:
    """The same, with a signal to end when so many batches have been prepared."""
    prepared = 0

    def prepare(images: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        nonlocal prepared
        prepared += 1
        if prepared == batch:
            signal.raise_signal(signal.SIGTERM)
        return task.prepare(images, generator)

    return replace(task, prepare=prepare)


def trained(task: Task, directory: Path, *, watched: bool = True) -> tuple[nn.Module, list[int]]:
    curve = LearningCurve(directory / "curve.json", lambda network: (50.0, 1.0))
    network = fit(
        task,
        METHODS["naive"],
        task.data.pretraining,
        STAGE,
        batch_size=4,
        seed=0,
        checkpoint_dir=directory / "training",
        curve=curve if watched else None,
    )
    seconds = [look.seconds for look in curve.looks]
    assert seconds == sorted(seconds)
    return network, [look.step for look in curve.looks]


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name]), name


def test_looks_come_after_each_epoch_and_change_nothing(tmp_path: Path) -> None:
    plain, no_looks = trained(small_task(), tmp_path / "plain", watched=False)
    watched, steps = trained(small_task(), tmp_path / "watched")
    assert no_looks == []
    assert steps == [4, 8, 10]
    assert_same_weights(watched, plain)


@pytest.mark.parametrize("batch", [3, 6, 8])
def test_a_training_that_was_stopped_has_each_look_once(tmp_path: Path, batch: int) -> None:
    whole, steps = trained(small_task(), tmp_path / "whole")
    with pytest.raises(TrainingStopped):
        trained(stopping_at(small_task(), batch), tmp_path / "stopped")
    resumed, resumed_steps = trained(small_task(), tmp_path / "stopped")
    assert resumed_steps == steps
    assert_same_weights(resumed, whole)
    # It is finished now: nothing is looked at, and the looks are still there.
    assert trained(small_task(), tmp_path / "stopped")[1] == steps


def test_looks_at_steps_that_were_lost_are_made_again(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    curve = LearningCurve(path, lambda network: (50.0, 1.0))
    batch_at = curve.watched(lambda step: step)
    for step in (0, 1, 2):
        assert batch_at(step) == step
        curve.look(nn.Identity())
    killed_after_one = LearningCurve(path, lambda network: (60.0, 0.9))
    killed_after_one.watched(lambda step: step)(1)
    assert killed_after_one.look(nn.Identity()) == 0.9
    assert [(look.step, look.accuracy) for look in killed_after_one.looks] == [(1, 50.0), (2, 60.0)]


def test_steps_since_the_last_look_count_at_the_pace_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning_curve.time, "process_time", lambda: 7.0)
    curve = LearningCurve(tmp_path / "curve.json", lambda network: (50.0, 1.0))
    curve.looks = [Look(step=10, seconds=2000.0, accuracy=40.0, kl=1.1)]
    curve.watched(lambda step: step)(15)
    curve.look(nn.Identity())
    assert curve.looks[-1] == Look(step=16, seconds=3000.0, accuracy=50.0, kl=1.0)
