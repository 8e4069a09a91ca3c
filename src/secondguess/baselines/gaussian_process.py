"""A variational Gaussian-process classifier of one event, on GPyTorch (appendix F.1).

A latent function f ~ GP(0, k) with a rational-quadratic kernel, p(Y=1|f,x) = sigmoid(f(x)), and
q(u) = N(m, L L^T) over its values at fixed inducing points (Hensman et al. 2015). The kernel is
fixed, so natural gradients over the whole data reach the optimum of the evidence bound in tens of
steps, where the paper takes 20,000 stochastic ones. All in float64, and independent of any
generator: two fits to the same data are equal to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.utils.quadrature import GaussHermiteQuadrature1D
from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import logsigmoid

from secondguess.theory.records import Prediction


@dataclass(frozen=True, kw_only=True)
class GaussianProcessConfig:
    """Kernel, approximation and optimiser.

    >>> GaussianProcessConfig(length_scale=0.05).num_inducing
    512

    Attributes:
        length_scale: of the rational-quadratic kernel.
        standard_deviation: of the prior f(x).
        mixture: the mixture parameter of the kernel, called alpha elsewhere.
        num_inducing: inducing points, evenly spaced.
        inducing_range: where the inducing points lie: from minus this to this.
        jitter: added to the diagonal of the prior covariance.
        step_size: of a natural-gradient step; 1 would jump to the optimum of a quadratic bound.
        tolerance: the optimum counts as reached when a step changes the evidence bound by less
            than this, in nats.
        max_steps: give up after so many steps, with an error.
    """

    length_scale: float = 0.15
    standard_deviation: float = 2.0
    mixture: float = 1.0
    num_inducing: int = 512
    inducing_range: float = 4.0
    jitter: float = 1e-3
    step_size: float = 0.5
    tolerance: float = 1e-3
    max_steps: int = 200


@dataclass(frozen=True, slots=True)
class FittedGaussianProcess:
    """A posterior, and how it was reached.

    Attributes:
        model: the GPyTorch model, whose call gives q(f(x)).
        evidence_bounds: `(steps,)`, the evidence lower bound in nats before each step.
    """

    model: gpytorch.models.ApproximateGP
    evidence_bounds: np.ndarray


class _LatentFunction(gpytorch.models.ApproximateGP):
    def __init__(self, config: GaussianProcessConfig) -> None:
        limit = config.inducing_range
        points = torch.linspace(-limit, limit, config.num_inducing, dtype=torch.float64)[:, None]
        # It starts at the prior itself: GPyTorch would add noise from torch's global generator.
        distribution = gpytorch.variational.NaturalVariationalDistribution(
            config.num_inducing, mean_init_std=0.0
        )
        super().__init__(
            gpytorch.variational.VariationalStrategy(
                self, points, distribution, learn_inducing_locations=False, jitter_val=config.jitter
            )
        )
        kernel = gpytorch.kernels.RQKernel()
        kernel.lengthscale = torch.tensor(config.length_scale)
        kernel.alpha = torch.tensor(config.mixture)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)
        self.covar_module.outputscale = torch.tensor(config.standard_deviation**2)

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(torch.zeros_like(x[:, 0]), self.covar_module(x))


def fit(inputs: Tensor, responses: Tensor, config: GaussianProcessConfig) -> FittedGaussianProcess:
    """The posterior given all responses, each taken as an observation of its own.

    >>> inputs = torch.linspace(-1, 1, 50)[:, None]
    >>> responses = (inputs > 0).long().expand(50, 2)
    >>> fitted = fit(inputs, responses, GaussianProcessConfig(length_scale=1.0, num_inducing=16))
    >>> predict(fitted, torch.tensor([[-0.8], [0.8]])).probs[:, 1].round(1)
    array([0., 1.])

    Args:
        inputs: `(n, 1)`.
        responses: `(n, k)`, zeros and ones.
        config: the kernel and how to optimise.
    """
    inputs, num_ones = inputs.double(), responses.sum(dim=1).double()
    num_zeros = responses.shape[1] - num_ones
    model = _LatentFunction(config).double()
    quadrature = GaussHermiteQuadrature1D().double()
    optimizer = gpytorch.optim.NGD(
        list(model.variational_parameters()), num_data=1, lr=config.step_size
    )

    def log_likelihood(latent: Tensor) -> Tensor:
        return num_ones * logsigmoid(latent) + num_zeros * logsigmoid(-latent)

    model.train()
    bounds: list[float] = []
    while len(bounds) < config.max_steps:
        optimizer.zero_grad()
        expected = quadrature(log_likelihood, model(inputs)).sum()
        # The paper prints + KL; it is subtracted.
        bound = expected - model.variational_strategy.kl_divergence()
        bounds.append(bound.item())
        if len(bounds) > 1 and abs(bounds[-1] - bounds[-2]) < config.tolerance:
            return FittedGaussianProcess(model.eval(), np.array(bounds))
        (-bound).backward()
        optimizer.step()
    raise RuntimeError(
        f"the evidence bound still moved by {bounds[-1] - bounds[-2]:.3g} nats after "
        f"{config.max_steps} steps; lower step_size or raise max_steps."
    )


@torch.no_grad()
def predict(
    model: FittedGaussianProcess, inputs: Tensor, *, num_nodes: int = 100, chunk: int = 4096
) -> Prediction:
    """Posterior mean and variance of the probability sigmoid(f(x)), by quadrature.

    Args:
        model: from `fit`.
        inputs: `(n, 1)`.
        num_nodes: nodes of the Gauss-Hermite rule.
        chunk: rows at a time, to bound memory.
    """
    quadrature = GaussHermiteQuadrature1D(num_nodes).double()
    means, variances = [], []
    for rows in inputs.double().split(chunk):
        posterior = model.model(rows)
        latent = Normal(posterior.mean, posterior.stddev)
        mean = quadrature(torch.sigmoid, latent)
        means.append(mean)
        # E[(s - E s)^2] rather than E[s^2] - (E s)^2: no cancellation, never negative.
        variances.append(quadrature(lambda f, mean=mean: (torch.sigmoid(f) - mean) ** 2, latent))
    probs, variance = torch.cat(means).numpy(), torch.cat(variances).numpy()
    return Prediction(np.stack([1 - probs, probs], axis=1), np.stack([variance, variance], axis=1))
