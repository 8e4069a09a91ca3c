"""Worlds in which part of the input is hidden: every head learns how much it cannot know."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from scripts import load_script

import secondguess as sg
from secondguess.classification.heads import HeadName
from secondguess.classification.predicting import joint_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "heads"


def _load(name: str) -> ModuleType:
    """A script that others of its folder import by its name."""
    module = sys.modules[name] = load_script(f"examples/heads/{name}.py")
    return module


@pytest.fixture(scope="module")
def compare() -> Iterator[ModuleType]:
    names = ("hidden_world", "page", "compare")
    yield [_load(name) for name in names][-1]
    for name in names:
        del sys.modules[name]


def test_the_world_is_what_it_says(compare) -> None:
    # 50,000 draws of the hidden context at one point: the mean of p p^T within 6 standard errors.
    world = compare.HiddenWorld.random(4)
    points, probs = world.sample(50_000, np.random.default_rng(0))
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    joint = world.calibrated_joint(points)
    difference = probs[:, :, None] * probs[:, None, :] - joint
    error = difference.std(axis=0) / len(points) ** 0.5
    assert (np.abs(difference.mean(axis=0)) < 6 * error).all()
    assert sg.check_joint(joint).holds


def _check(compare, num_classes: int, head: HeadName, *, seed: int, num_steps: int, num_test: int):
    world = compare.HiddenWorld.random(num_classes)
    model = compare.train_pair_head(
        world,
        head,
        lambda step: world.batch_at(step, batch_size=1024, seed=seed),
        seed=seed,
        num_steps=num_steps,
    )
    points, true_probs = world.sample(num_test, np.random.default_rng(10_000 + seed))
    prediction = joint_of(model, torch.from_numpy(points.astype(np.float32))).prediction()
    measured = compare.measure(prediction, true_probs)
    assert measured["mean_variance"] == pytest.approx(measured["grouping_error"], rel=0.1)
    assert measured["second_order_ece"] <= 0.1 * measured["grouping_error"]
    naive = prediction.probs * (1 - prediction.probs)
    assert sg.mean_variance(naive) > 2 * measured["grouping_error"]


@pytest.mark.parametrize(
    ("num_classes", "head"), [(2, "binary"), (5, "binary"), (5, "symmetric"), (5, "mixture")]
)
def test_variance_matches_the_grouping_error(compare, num_classes, head) -> None:
    _check(compare, num_classes, head, seed=0, num_steps=600, num_test=50_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("head", ["binary", "symmetric", "mixture"])
@pytest.mark.parametrize("num_classes", [2, 5])
def test_variance_matches_the_grouping_error_at_length(compare, num_classes, head, seed) -> None:
    _check(compare, num_classes, head, seed=seed, num_steps=1000, num_test=200_000)


def test_mixture_head_trains_ten_thousand_classes_within_a_gigabyte() -> None:
    # In a process of its own, because a peak of memory never goes down again.
    program = """
import resource, torch
from secondguess.classification.heads import MixturePairHead
from secondguess.classification.losses import pair_loss
from secondguess.training.loop import TrainingConfig, train

head = MixturePairHead(in_features=512, num_classes=10_000)
features, (y1, y2) = torch.randn(64, 512), torch.randint(10_000, (2, 64))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
train(
    head,
    loss=lambda head, batch: pair_loss(head(batch[0]), batch[1], batch[2]),
    batch_at=lambda step: (features, y1, y2),
    config=TrainingConfig(num_steps=1),
)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 1.0
