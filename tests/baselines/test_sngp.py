"""SNGP's posterior against closed forms on networks whose features are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secondguess.baselines import sngp
from secondguess.classification.batches import PairBatch
from secondguess.models.random_features import OrthogonalRandomFeatures, RandomFeatureNetwork


class LinearFeatures(OrthogonalRandomFeatures):
    """The inputs themselves in place of random features: the network is a linear model."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs


def linear_model(num_inputs: int, num_outputs: int) -> RandomFeatureNetwork:
    generator = torch.Generator().manual_seed(0)
    features = LinearFeatures(num_inputs, num_inputs, generator=generator)
    return RandomFeatureNetwork(nn.Identity(), features, num_outputs, generator=generator)


@pytest.mark.parametrize("ridge", [1.0, 0.3])
def test_the_covariance_is_that_of_bayesian_linear_regression(ridge: float) -> None:
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(50, 6)), rng.normal(size=(7, 6))
    fitted = sngp.fit(linear_model(6, 3), torch.from_numpy(train).split(8), ridge=ridge)
    # Posterior of w ~ N(0, I) from y = Xw + noise of variance `ridge`, in its other form, by
    # conditioning the joint Gaussian of f(test) and y.
    gain = test @ train.T @ np.linalg.inv(train @ train.T + ridge * np.eye(50))
    expected = np.diag(test @ test.T - gain @ train @ test.T)
    mean, variance = fitted.logit_moments(torch.from_numpy(test))
    np.testing.assert_allclose(variance.numpy(), expected, rtol=1e-9)
    assert mean.shape == (7, 3)


def rbf_network(num_features: int, length_scale: float) -> RandomFeatureNetwork:
    generator = torch.Generator().manual_seed(0)
    features = OrthogonalRandomFeatures(
        2, num_features, length_scale=length_scale, generator=generator
    )
    return RandomFeatureNetwork(nn.Identity(), features, 3, generator=generator)


def test_with_many_features_it_is_the_exact_gaussian_process() -> None:
    """phi^T phi is m/2 times the RBF kernel, so prior variance m/2 and noise variance `ridge`."""
    size, ridge = 2048, 25.0
    generator = torch.Generator().manual_seed(1)
    train, test = torch.randn(40, 2, generator=generator), torch.randn(9, 2, generator=generator)
    fitted = sngp.fit(rbf_network(size, length_scale=1.5), [train], ridge=ridge)

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        return size / 2 * (-torch.cdist(x, y).square() / (2 * 1.5**2)).exp().double()

    gram = kernel(train, train) + ridge * torch.eye(40)
    across = kernel(test, train)
    expected = kernel(test, test).diagonal() - (across @ torch.linalg.inv(gram) * across).sum(dim=1)
    variance = fitted.logit_moments(test)[1]
    # Relative to the prior variance; the kernel is approximated to 1/sqrt(m), one standard error.
    torch.testing.assert_close(
        variance / (size / 2), expected / (size / 2), atol=3 / size**0.5, rtol=0
    )


def test_the_variance_grows_away_from_the_data_and_shrinks_with_more() -> None:
    train = torch.zeros(20, 2)
    network = rbf_network(512, length_scale=1.0)
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    once = sngp.fit(network, [train]).logit_moments(points)[1]
    twice = sngp.fit(network, [train, train]).logit_moments(points)[1]
    assert once.diff().min() > 0
    assert (twice < once).all()


@pytest.mark.statistical
def test_samples_have_the_mean_and_variance_of_the_softmax() -> None:
    """Against 2-class quadrature; 40,000 samples, five standard errors: one false alarm in 10^5."""
    network = rbf_network(64, length_scale=1.0)
    with torch.no_grad():
        network.output_weight[2] = -1e4 * network.features(torch.zeros(1, 2))[0]  # class 2 is out
    fitted = sngp.fit(network, [torch.ones(3, 2)], ridge=8.0)
    point = torch.zeros(1, 2)
    mean, variance = fitted.logit_moments(point)
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    # log-odds of two independent logits: the variances add
    odds = (mean[0, 0] - mean[0, 1]).item() + (2 * variance.item()) ** 0.5 * nodes
    probability = 1 / (1 + np.exp(-odds))
    weights = weights / weights.sum()
    expected = weights @ probability
    spread = weights @ (probability - expected) ** 2
    generator = torch.Generator().manual_seed(0)
    prediction = sngp.predict(fitted, point, num_samples=40_000, generator=generator)
    error = (spread / 40_000) ** 0.5
    assert abs(prediction.probs[0, 0] - expected) < 5 * error
    fourth = weights @ (probability - expected) ** 4
    assert abs(prediction.variance[0, 0] - spread) < 5 * ((fourth - spread**2) / 40_000) ** 0.5


def test_training_moves_the_mean_towards_the_responses() -> None:
    network = rbf_network(256, length_scale=1.0)
    inputs = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    y = torch.tensor([0, 2])
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.05)
    for _ in range(50):
        optimizer.zero_grad()
        sngp.loss(network, PairBatch(inputs, y, y)).backward()
        optimizer.step()
    generator = torch.Generator().manual_seed(0)
    prediction = sngp.predict(sngp.fit(network, [inputs] * 50), inputs, generator=generator)
    assert prediction.probs.argmax(axis=1).tolist() == [0, 2]
