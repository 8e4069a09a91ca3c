from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from secondguess.models.spectral import SpectralConv2d, SpectralLinear


def exact_norm(layer: nn.Module, shape: tuple[int, ...]) -> float:
    """The largest singular value of the layer as a matrix, from its action on a basis."""
    size = torch.Size(shape).numel()
    basis = torch.eye(size).view(size, *shape)
    bias = layer(torch.zeros(1, *shape))
    matrix = (layer(basis) - bias).flatten(1)
    return torch.linalg.matrix_norm(matrix, 2).item()


def settle(layer: nn.Module, shape: tuple[int, ...], num_steps: int = 300) -> nn.Module:
    for _ in range(num_steps):
        layer(torch.zeros(1, *shape))
    return layer.eval()


def large_conv(stride: int, bound: float) -> SpectralConv2d:
    generator = torch.Generator().manual_seed(0)
    layer = SpectralConv2d(3, 4, 3, image_size=6, stride=stride, bound=bound, generator=generator)
    with torch.no_grad():
        layer.weight.mul_(10)
    return layer


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_obeys_the_bound_as_an_operator(stride: int) -> None:
    layer = settle(large_conv(stride, bound=6.0), (3, 6, 6))
    assert exact_norm(layer, (3, 6, 6)) == pytest.approx(6.0, rel=1e-3)


def test_the_norm_of_the_reshaped_kernel_is_another_number() -> None:
    layer = large_conv(1, bound=1e6)
    reshaped = torch.linalg.matrix_norm(layer.weight.flatten(1), 2).item()
    assert exact_norm(settle(layer, (3, 6, 6)), (3, 6, 6)) > 1.2 * reshaped


def test_a_linear_layer_obeys_the_bound() -> None:
    layer = SpectralLinear(7, 5, bound=0.3, generator=torch.Generator().manual_seed(0))
    assert exact_norm(settle(layer, (7,)), (7,)) == pytest.approx(0.3, rel=1e-3)


def test_weights_within_the_bound_are_left_alone() -> None:
    layer = SpectralLinear(7, 5, bound=100.0, generator=torch.Generator().manual_seed(0))
    assert layer.bounded_weight().equal(layer.weight)


@pytest.mark.parametrize("wanted", [[5.0, 3.0, 1.0, 1.0, 1.0, 1.0], [5.0] * 6])
def test_a_training_that_wants_more_ends_at_the_bound(wanted: list[float]) -> None:
    """With a learning rate that falls to zero, as in every training of the project."""
    layer = SpectralLinear(6, 6, bound=0.9, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
    inputs = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))
    for _ in range(400):
        optimizer.zero_grad()
        (layer(inputs) - inputs * torch.tensor(wanted)).square().mean().backward()
        optimizer.step()
        schedule.step()
    norm = torch.linalg.matrix_norm(layer.bounded_weight(), 2).item()
    assert norm == pytest.approx(0.9, rel=0.01)


def test_evaluation_changes_nothing() -> None:
    layer = large_conv(1, bound=6.0).eval()
    before = layer.direction.clone()
    inputs = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    first: Tensor = layer(inputs)
    assert layer(inputs).equal(first)
    assert layer.direction.equal(before)
