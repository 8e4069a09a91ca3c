from __future__ import annotations

import numpy as np
import torch
from torch import nn

from secondguess.baselines import epinet
from secondguess.classification.batches import PairBatch
from secondguess.models.epinet import Epinet


def make(prior_scale: float = 4.0) -> Epinet:
    generator = torch.Generator().manual_seed(0)
    return Epinet(nn.Identity(), 3, num_outputs=4, prior_scale=prior_scale, generator=generator)


def some_inputs(number: int) -> torch.Tensor:
    return torch.randn(number, 3, generator=torch.Generator().manual_seed(1))


def test_the_loss_is_the_mean_over_indices_and_both_responses() -> None:
    network, inputs = make(), some_inputs(6)
    y1, y2 = torch.tensor([0, 1, 2, 3, 0, 1]), torch.tensor([0, 2, 2, 1, 3, 1])
    value = epinet.loss(
        network,
        PairBatch(inputs, y1, y2),
        num_indices=5,
        generator=torch.Generator().manual_seed(2),
    )
    indices = torch.randn(5, 20, generator=torch.Generator().manual_seed(2))
    terms = [
        nn.functional.cross_entropy(network(inputs, index[None])[0], y)
        for index in indices
        for y in (y1, y2)
    ]
    torch.testing.assert_close(value, torch.stack(terms).mean())


def test_an_epinet_that_ignores_its_index_has_no_variance() -> None:
    network, generator = make(prior_scale=0.0), torch.Generator().manual_seed(0)
    nn.init.zeros_(network.corrector.out.weight)
    prediction = epinet.predict(network, some_inputs(5), generator=generator)
    assert prediction.variance.max() < 1e-30  # rounding of the mean, squared
    expected = network.base(some_inputs(5)).double().softmax(dim=-1).detach().numpy()
    np.testing.assert_allclose(prediction.probs, expected, rtol=1e-6)


def test_data_teach_the_corrector_to_cancel_the_prior() -> None:
    """Variance falls where the responses are known, and less where they were never seen."""
    network = Epinet(
        nn.Identity(),
        3,
        4,
        index_size=2,
        hidden_size=20,
        generator=torch.Generator().manual_seed(0),
    )
    seen, unseen = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[-3.0, 3.0, 3.0]])

    def variance(inputs: torch.Tensor) -> float:
        generator = torch.Generator().manual_seed(0)
        return epinet.predict(network, inputs, generator=generator).variance.sum().item()

    before = variance(seen)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    generator = torch.Generator().manual_seed(3)
    # Two annotators who disagree: the best probabilities are one half each, for every index.
    batch = PairBatch(seen, torch.tensor([0]), torch.tensor([1]))
    for _ in range(400):
        optimizer.zero_grad()
        epinet.loss(network, batch, num_indices=32, generator=generator).backward()
        optimizer.step()
    assert variance(seen) < 0.1 * before
    assert variance(unseen) > 3 * variance(seen)
