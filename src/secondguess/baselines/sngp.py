"""SNGP: the logits of a Gaussian process in feature space, with a posterior (Liu et al. 2020).

The network is a `RandomFeatureNetwork` over a backbone with spectrally bounded layers. It is
trained like the naive network, on the mean alone; a pass over the training inputs afterwards gives
the covariance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from secondguess.baselines import naive
from secondguess.classification.batches import PairBatch
from secondguess.models.random_features import RandomFeatureNetwork
from secondguess.theory.records import Prediction


def loss(model: RandomFeatureNetwork, batch: PairBatch) -> Tensor:
    """The naive loss of the mean logits.

    >>> from secondguess.models.random_features import OrthogonalRandomFeatures
    >>> features = OrthogonalRandomFeatures(3, 64, length_scale=1.0)
    >>> network = RandomFeatureNetwork(torch.nn.Identity(), features, num_outputs=10)
    >>> y = torch.tensor([0, 1])
    >>> loss(network, PairBatch(torch.zeros(2, 3), y, y)).shape
    torch.Size([])
    """
    return naive.loss(model, batch)


@dataclass(frozen=True, slots=True)
class FittedSNGP:
    """A trained network and the posterior of its last layer.

    Attributes:
        network: gives the mean of the logits.
        precision_cholesky: `(m, m)` float64, L with L L^T = Phi^T Phi + ridge I.
        ridge: the ridge penalty.
    """

    network: RandomFeatureNetwork
    precision_cholesky: Tensor
    ridge: float

    @torch.no_grad()
    def logit_moments(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean `(n, num_classes)` and variance `(n,)` of the logits, in float64.

        The variance is `ridge * phi(x)^T (Phi^T Phi + ridge I)^-1 phi(x)`, the same for all
        classes: that of linear regression on the random features Phi of the training inputs, with a
        standard normal prior on the weights and noise of variance `ridge`. This is the Laplace
        approximation with the Gaussian likelihood that `uncertainty_baselines` uses for CIFAR-10.
        """
        features = self.network.random_features(inputs).double()
        mean = features @ self.network.output_weight.double().T
        whitened = torch.linalg.solve_triangular(self.precision_cholesky, features.T, upper=False)
        return mean, self.ridge * whitened.square().sum(dim=0)


@torch.no_grad()
def fit(
    network: RandomFeatureNetwork, inputs: Iterable[Tensor], *, ridge: float = 1.0
) -> FittedSNGP:
    """The posterior after a pass over the training inputs; the network itself does not change.

    >>> from secondguess.models.random_features import OrthogonalRandomFeatures
    >>> features = OrthogonalRandomFeatures(3, 64, length_scale=1.0)
    >>> network = RandomFeatureNetwork(torch.nn.Identity(), features, num_outputs=10)
    >>> fitted = fit(network, [torch.zeros(100, 3)])
    >>> seen, unseen = fitted.logit_moments(torch.tensor([[0.0] * 3, [9.0] * 3]))[1]
    >>> bool(seen < unseen)
    True

    Args:
        network: trained; used in evaluation mode.
        inputs: batches of training inputs, each once.
        ridge: the ridge penalty.
    """
    network.eval()
    size = network.features.num_features
    precision = ridge * torch.eye(size, dtype=torch.float64, device=network.output_weight.device)
    for batch in inputs:
        features = network.random_features(batch).double()
        precision += features.T @ features
    return FittedSNGP(network, torch.linalg.cholesky(precision), ridge)


@torch.no_grad()
def predict(
    model: FittedSNGP,
    inputs: Tensor,
    *,
    num_samples: int = 1000,
    generator: torch.Generator,
    chunk: int = 256,
) -> Prediction:
    """Mean and variance of the softmax over Monte-Carlo samples of the logits.

    (The mean-field factor that the paper lists is not used where samples are drawn.)

    >>> from secondguess.models.random_features import OrthogonalRandomFeatures
    >>> features = OrthogonalRandomFeatures(3, 64, length_scale=1.0)
    >>> network = RandomFeatureNetwork(torch.nn.Identity(), features, num_outputs=10)
    >>> fitted = fit(network, [torch.zeros(100, 3)])
    >>> predict(fitted, torch.zeros(2, 3), generator=torch.Generator().manual_seed(0)).probs.shape
    (2, 10)

    Args:
        model: from `fit`.
        inputs: `(n, ...)`, as the backbone wants them.
        num_samples: samples for each input, each input its own.
        generator: source of the samples, on the CPU.
        chunk: inputs at a time, to bound memory.
    """
    means, variances = [], []
    for rows in inputs.split(chunk):
        mean, variance = (moment.cpu() for moment in model.logit_moments(rows))
        noise = torch.randn(num_samples, *mean.shape, generator=generator, dtype=mean.dtype)
        probs = (mean + variance.sqrt().unsqueeze(1) * noise).softmax(dim=-1)
        means.append(probs.mean(dim=0))
        variances.append(probs.var(dim=0))
    return Prediction(torch.cat(means).numpy(), torch.cat(variances).numpy())
