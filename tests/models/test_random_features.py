from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from secondguess.models.random_features import OrthogonalRandomFeatures, RandomFeatureNetwork


def rbf(x: Tensor, y: Tensor, length_scale: float) -> Tensor:
    return (-torch.cdist(x, y).square() / (2 * length_scale**2)).exp()


def kernel_errors(num_features: int, length_scale: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, 30, 16, generator=generator)
    features = OrthogonalRandomFeatures(
        16, num_features, length_scale=length_scale, generator=generator
    )
    approximate = 2 / num_features * features(x) @ features(y).T
    return approximate - rbf(x, y, length_scale)


@pytest.mark.statistical
@pytest.mark.parametrize("length_scale", [2.0, 5.0])
def test_the_features_approximate_the_rbf_kernel(length_scale: float) -> None:
    """Each of 900 errors has a standard deviation of at most 1/sqrt(m) = 0.0055 (a summand
    2 cos cos lies in [-2, 2] with variance at most 1); six of them cover all with a false-alarm
    rate below 1e-5."""
    assert kernel_errors(32_768, length_scale, seed=0).abs().max() < 6 / math.sqrt(32_768)


def test_more_features_approximate_better_at_the_usual_rate() -> None:
    few, many = (kernel_errors(m, 3.0, seed=1).square().mean().sqrt() for m in (256, 16_384))
    assert few / many == pytest.approx(8, rel=0.35)


def test_rows_of_a_block_are_orthogonal_with_gaussian_lengths() -> None:
    features = OrthogonalRandomFeatures(
        16, 64, length_scale=1.0, generator=torch.Generator().manual_seed(0)
    )
    for block in features.weight.split(16):
        gram = block @ block.T
        off_diagonal = gram - gram.diag().diag()
        assert off_diagonal.abs().max() < 1e-4
    lengths = features.weight.square().sum(dim=1)
    assert lengths.mean().item() == pytest.approx(16, rel=0.2)  # five standard errors
    assert lengths.std() > 2  # not all the same


def test_the_features_are_fixed_and_the_network_is_linear_in_them() -> None:
    generator = torch.Generator().manual_seed(0)
    features = OrthogonalRandomFeatures(5, 64, length_scale=1.0, generator=generator)
    network = RandomFeatureNetwork(nn.Identity(), features, 3, generator=generator)
    assert [name for name, _ in network.named_parameters()] == ["output_weight"]
    inputs = torch.randn(4, 5, generator=generator)
    expected = torch.cos(inputs @ features.weight.T + features.phase) @ network.output_weight.T
    torch.testing.assert_close(network(inputs), expected)


def test_the_generator_decides_everything() -> None:
    before = torch.get_rng_state()
    one, same = (
        OrthogonalRandomFeatures(5, 64, generator=torch.Generator().manual_seed(3))
        for _ in range(2)
    )
    assert torch.equal(before, torch.get_rng_state())
    assert one.weight.equal(same.weight)
    assert one.phase.equal(same.phase)
