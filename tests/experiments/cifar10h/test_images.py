"""The methods on images: small networks here, the published one where there is time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cifar10h_cost import step_cost
from experiments.cifar10h.real_cifar import NEEDS_DATA
from torch import Tensor, nn

from secondguess.classification.pairs import PairData
from secondguess.experiments.cifar10h import data
from secondguess.experiments.cifar10h.data import AnnotatedInputs, Cifar10H
from secondguess.experiments.cifar10h.fitting import Stage, fit, predict
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.run import PRESETS
from secondguess.experiments.cifar10h.task import VARIANTS, image_task
from secondguess.models.whitened_resnet import WhitenedResNet
from secondguess.models.wide_resnet import WideResNet

ONE_STEP = Stage(num_steps=1, learning_rate=1e-3, weight_decay=0.1)


def noise_images(number: int) -> AnnotatedInputs:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(number, 3, 32, 32), dtype=np.uint8)
    labels = rng.integers(10, size=number)
    return AnnotatedInputs(images, PairData.from_counts(50 * np.eye(10, dtype=int)[labels]), labels)


def small_wide_resnet(examples: Tensor, **settings: Any) -> nn.Module:
    return WideResNet(depth=10, width=1, **settings)


def small_whitened_resnet(examples: Tensor, **settings: Any) -> nn.Module:
    return WhitenedResNet(examples, widths=(4, 8, 8), **settings)


@pytest.mark.parametrize("make_network", [small_wide_resnet, small_whitened_resnet])
@pytest.mark.parametrize("name", ["naive", "ensemble", "sngp", "epinet", "cheat-sngp"])
def test_methods_train_on_images(name: str, make_network: Callable[..., nn.Module]) -> None:
    noise = noise_images(16)
    task = image_task(Cifar10H(noise, noise), VARIANTS["extra-scrambled"], make_network)
    method, examples = METHODS[name], task.data.pretraining
    model = fit(task, method, examples, ONE_STEP, batch_size=4, seed=0)
    prediction = predict(task, method, model, examples[:3], trained_on=examples, seed=0)
    assert prediction.probs.shape == (3, 30)
    assert np.isfinite(prediction.variance).all()


def test_images_are_augmented_in_training_only_and_normalised() -> None:
    noise = noise_images(64)
    task = image_task(Cifar10H(noise, noise), VARIANTS["original"], small_wide_resnet)
    images = task.data.pretraining.inputs
    plain = task.prepare(images, None)
    mean, deviation = (
        torch.tensor(values).view(3, 1, 1) for values in (data.CHANNEL_MEAN, data.CHANNEL_DEVIATION)
    )
    torch.testing.assert_close(plain * deviation + mean, images / 255)
    augmented = task.prepare(images, torch.Generator().manual_seed(0))
    assert not torch.isclose(augmented, plain).all()
    batches = [task.batches(task.data.pretraining, batch_size=8, seed=1)(5) for _ in range(2)]
    assert batches[0].inputs.equal(batches[1].inputs)


def test_the_published_network_has_the_published_size() -> None:
    """36.5 million weights and 5.2 thousand million multiplications per image (Zagoruyko 2016)."""
    size = PRESETS["paper"]
    cost = step_cost(METHODS["naive"], depth=size.depth, width=size.width)
    assert cost.parameters == 36_479_194
    # A multiplication and an addition each, forward and twice that backward.
    assert cost.flops_per_image == pytest.approx(2 * 3 * 5.24e9, rel=0.01)
    ensemble = step_cost(METHODS["ensemble"], depth=10, width=1)
    single = step_cost(METHODS["naive"], depth=10, width=1)
    assert ensemble.flops_per_image == 8 * single.flops_per_image


@pytest.mark.slow
@NEEDS_DATA
@pytest.mark.parametrize("name", PRESETS["paper"].methods)
def test_the_published_network_takes_a_step(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Training and evaluation of WRN-28-10 on eight real images."""
    loaded = data.load()
    few = Cifar10H(loaded.pretraining[:8], loaded.annotated[:8])
    size = PRESETS["paper"]
    task = image_task(few, VARIANTS["original"], size.make_network)
    method, examples = METHODS[name], task.data.pretraining
    start = time.perf_counter()
    model = fit(task, method, examples, ONE_STEP, batch_size=8, seed=0)
    seconds = time.perf_counter() - start
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    parameters //= method.num_members
    with capsys.disabled():
        print(
            f"\n{method.title}: {parameters:,} parameters per network, {seconds:.1f} s for a step"
        )
    # Heads differ by at most the 1,024 x 100 weights of the pair table on random features.
    assert 36_400_000 < parameters < 36_700_000
    prediction = predict(task, method, model, examples, trained_on=examples, seed=0)
    assert prediction.probs.shape == (8, 10)
