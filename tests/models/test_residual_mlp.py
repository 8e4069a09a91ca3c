import pytest
import torch
from torch import nn

from secondguess.models.residual_mlp import ResidualMLP


def printed_algorithm(network: ResidualMLP, x: torch.Tensor) -> torch.Tensor:
    """Appendix F.1 for one scalar input, line by line, with the residual stream normalised."""
    weights = network.state_dict()

    def linear(name: str, v: torch.Tensor) -> torch.Tensor:
        return weights[f"{name}.weight"] @ v + weights[f"{name}.bias"]

    def norm(name: str, r: torch.Tensor) -> torch.Tensor:
        unit = (r - r.mean()) / (r.var(unbiased=False) + 1e-5).sqrt()
        return weights[f"{name}.weight"] * unit + weights[f"{name}.bias"]

    v = weights["input_scale"][:, 0] * (x + weights["input_shift"])
    r = linear("input_out", v.relu())
    for i in range(3):
        v = linear(f"blocks.{i}.hidden", norm(f"blocks.{i}.norm", r))
        r = r + linear(f"blocks.{i}.out", v.relu())
    v = linear("head_hidden", norm("head_norm", r))
    return linear("head_out", v.relu())


def test_it_computes_the_printed_algorithm() -> None:
    generator = torch.Generator().manual_seed(0)
    network = ResidualMLP(1, 2, generator=generator).double()
    with torch.no_grad():  # so that no scale is one and no shift is zero
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    inputs = torch.linspace(-3, 3, 7, dtype=torch.float64)
    expected = torch.stack([printed_algorithm(network, x) for x in inputs])
    torch.testing.assert_close(network(inputs[:, None]), expected, rtol=1e-12, atol=1e-12)


def test_sizes_are_the_printed_ones() -> None:
    shapes = {name: tuple(p.shape) for name, p in ResidualMLP(1, 2).named_parameters()}
    assert shapes["input_shift"] == (512,)
    assert shapes["input_out.weight"] == (128, 512)
    assert [shapes[f"blocks.{i}.hidden.weight"] for i in range(3)] == [(512, 128)] * 3
    assert [shapes[f"blocks.{i}.out.weight"] for i in range(3)] == [(128, 512)] * 3
    assert shapes["head_out.weight"] == (2, 512)


def test_a_backbone_with_a_linear_head_is_the_whole_network() -> None:
    whole = ResidualMLP(3, 4, generator=torch.Generator().manual_seed(5))
    backbone = ResidualMLP(3, generator=torch.Generator().manual_seed(5))
    head = nn.Linear(backbone.num_features, 4)
    assert whole.head_out is not None
    head.load_state_dict(whole.head_out.state_dict())
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(head(backbone(inputs)), whole(inputs))


def test_making_one_leaves_the_default_generator_alone() -> None:
    before = torch.get_rng_state()
    first = ResidualMLP(2, 1, generator=torch.Generator().manual_seed(7))
    again = ResidualMLP(2, 1, generator=torch.Generator().manual_seed(7))
    assert torch.equal(before, torch.get_rng_state())
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)
    )


def test_inputs_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"inputs has shape \(5, 2\); expected \(n, 3\)"):
        ResidualMLP(3, 1)(torch.zeros(5, 2))
