from __future__ import annotations

import torch
from torch import nn

from secondguess.models.epinet import Epinet, IndexedMLP


def make(prior_scale: float = 4.0) -> Epinet:
    generator = torch.Generator().manual_seed(0)
    backbone = nn.Linear(3, 6)
    return Epinet(backbone, 6, num_outputs=5, prior_scale=prior_scale, generator=generator)


def some(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def test_an_indexed_mlp_is_its_plain_formula() -> None:
    network = IndexedMLP(6, 4, 7, 5, generator=torch.Generator().manual_seed(0)).double()
    nn.init.normal_(network.hidden.bias, generator=torch.Generator().manual_seed(2))
    nn.init.normal_(network.out.bias, generator=torch.Generator().manual_seed(3))
    features, indices = some(3, 6).double(), some(2, 4).double()
    result = network(features, indices)
    for m, index in enumerate(indices):
        for n, row in enumerate(features):
            outputs = network.out(network.hidden(torch.cat([index, row])).relu())
            torch.testing.assert_close(result[m, n], outputs.view(5, 4) @ index)


def test_the_prior_is_fixed_and_everything_else_learns() -> None:
    network = make()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.1, weight_decay=0.1)
    network(some(8, 3), some(4, 20)).square().mean().backward()
    optimizer.step()
    for name, tensor in network.state_dict().items():
        assert tensor.equal(before[name]) == name.startswith("prior."), name


def test_the_index_does_not_reach_the_backbone() -> None:
    network = make()
    with torch.no_grad():
        network.base.weight.zero_()
    network(some(8, 3), some(4, 20)).square().mean().backward()
    backbone = network.backbone
    assert isinstance(backbone, nn.Linear)
    assert backbone.weight.grad is not None
    assert backbone.weight.grad.abs().max() == 0


def test_no_prior_and_a_silent_corrector_leave_nothing_to_the_index() -> None:
    network = make(prior_scale=0.0)
    indices = some(6, 20)
    assert network(some(8, 3), indices).var(dim=0).min() > 0
    nn.init.zeros_(network.corrector.out.weight)
    outputs = network(some(8, 3), indices)
    assert outputs.var(dim=0).max() == 0
    torch.testing.assert_close(outputs[0], network.base(network.backbone(some(8, 3))))


def test_the_prior_speaks_with_its_scale() -> None:
    once, fourfold = make(prior_scale=1.0), make(prior_scale=4.0)
    fourfold.load_state_dict(once.state_dict())
    for network in (once, fourfold):
        nn.init.zeros_(network.corrector.out.weight)
    inputs, indices = some(8, 3), some(6, 20)
    base = once.base(once.backbone(inputs))
    torch.testing.assert_close(
        fourfold(inputs, indices) - base, 4 * (once(inputs, indices) - base), rtol=1e-4, atol=1e-4
    )


def test_a_zero_index_gives_the_base_network() -> None:
    network = make()
    outputs = network(some(8, 3), torch.zeros(1, 20))
    torch.testing.assert_close(outputs[0], network.base(network.backbone(some(8, 3))))


def test_larger_features_do_not_make_the_prior_louder() -> None:
    network = Epinet(nn.Identity(), 6, num_outputs=5, generator=torch.Generator().manual_seed(0))
    inputs, indices = some(8, 6), some(6, 20)

    def indexed(features: torch.Tensor) -> torch.Tensor:
        return network(features, indices) - network.base(features)

    torch.testing.assert_close(indexed(100 * inputs), indexed(inputs), rtol=1e-3, atol=1e-3)
