from __future__ import annotations

import pytest
import torch
from torch import nn

from secondguess.models.spectral import SpectralConv2d
from secondguess.models.wide_resnet import WideResNet


def num_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_wrn_28_10_has_its_published_size() -> None:
    network = WideResNet(10)
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    # 25 convolutions of 3 x 3 and three shortcuts of 1 x 1; the output layer is the 28th on a path
    assert len([layer for layer in convolutions if layer.kernel_size == (3, 3)]) == 25
    assert num_parameters(network) == 36_479_194


@pytest.mark.parametrize(("depth", "width", "size"), [(16, 2, 691_674), (16, 4, 2_748_890)])
def test_narrower_ones_have_theirs(depth: int, width: int, size: int) -> None:
    assert num_parameters(WideResNet(10, depth=depth, width=width)) == size


def test_a_spectral_bound_adds_no_parameters_and_is_on_every_convolution() -> None:
    plain = WideResNet(10, depth=10, width=1)
    bounded = WideResNet(10, depth=10, width=1, spectral_bound=6.0)
    assert num_parameters(plain) == num_parameters(bounded)
    assert not any(isinstance(layer, nn.Conv2d) for layer in bounded.modules())
    layers = [layer for layer in bounded.modules() if isinstance(layer, SpectralConv2d)]
    bounded(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert {layer.bound for layer in layers} == {6.0}


def test_with_a_loose_bound_it_is_the_plain_network() -> None:
    plain, bounded = (
        WideResNet(
            4,
            depth=10,
            width=1,
            image_size=8,
            spectral_bound=bound,
            generator=torch.Generator().manual_seed(0),
        ).eval()
        for bound in (None, 1e9)
    )
    # Same weights by position: the bounded network has one more buffer per convolution.
    for ours, theirs in zip(bounded.parameters(), plain.parameters(), strict=True):
        ours.data.copy_(theirs.data)
    images = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(bounded(images), plain(images))


def test_outputs_have_the_scale_of_a_working_initialisation() -> None:
    network = WideResNet(10, depth=16, width=2, generator=torch.Generator().manual_seed(0))
    images = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    assert 0.1 < network(images).std() < 10


def test_making_one_leaves_the_default_generator_alone() -> None:
    before = torch.get_rng_state()
    one, same = (
        WideResNet(2, depth=10, width=1, generator=torch.Generator().manual_seed(7))
        for _ in range(2)
    )
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))


@pytest.mark.parametrize("depth", [4, 20, 27])
def test_impossible_depths_are_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=r"expected 6 n \+ 4"):
        WideResNet(10, depth=depth)
