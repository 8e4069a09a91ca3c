"""Predicted joints p(y1, y2 | x) of two responses, for a batch of rows, and what follows from them.

Two protocols: `PairJoint` is what every parametrisation gives, and `TabularJoint` is that of joints
which also say how often two different classes occur together. The parametrisations are in
`table_joint.py`, `mixture_joint.py`, `correlation_joint.py` and `binary_joint.py`. They hold
tensors only and have no weights: a head (`heads.py`) makes them from features. Everything stays in
log space and is differentiable; `double()` comes before anything that leaves torch, because
differences of log-probabilities lose most digits of a float32.

Axes: rows are examples (n), then classes (K) of y1, then classes of y2.
"""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from secondguess._arrays import FloatArray
from secondguess.theory.records import Prediction, SelfCheatScores


class PairJoint(Protocol):
    """A batch of n symmetric joints over K classes.

    >>> from secondguess.classification.mixture_joint import MixtureJoint
    >>> joint: PairJoint = MixtureJoint(
    ...     log_weights=torch.tensor([[0.5, 0.5]]).log(),
    ...     log_components=torch.tensor([[[0.8, 0.2], [0.4, 0.6]]]).log(),
    ... )
    >>> joint.marginal, joint.epistemic_variance
    (tensor([[0.6000, 0.4000]]), tensor([[0.0400, 0.0400]]))
    >>> joint.scores().epistemic_confidence.round(3)
    array([[0.9, 0.8]])
    """

    @property
    def log_marginal(self) -> Tensor:
        """Log p(y|x), `(n, K)`."""
        ...

    @property
    def log_self_conditional(self) -> Tensor:
        """Log p(y|y,x), `(n, K)`: the chance of the same response a second time."""
        ...

    @property
    def epistemic_variance(self) -> Tensor:
        """V = p(y,y|x) - p(y|x)^2, `(n, K)`: the diagonal of the pair covariance."""
        ...

    def log_prob(self, y1: Tensor, y2: Tensor) -> Tensor:
        """Log-likelihood of pairs: `y1` and `y2` are class indices of one shape, `(n, ...)`."""
        ...

    def recalibrated(self, temperature: Tensor, correlation: Tensor) -> Self:
        """The joint made flatter by a temperature, then moved towards more or less dependence.

        The probabilities are tempered first (raised to the power 1/T, in the parametrisation's own
        terms). Then, with m the tempered marginal and s the correlation in (-1, 1), the joint J
        becomes `(1 - s) J + s diag(m)` for s >= 0 and `(1 + s) J - s m m^T` for s < 0. The second
        step keeps the marginal and leaves a positive semidefinite joint so; s = 1 would make every
        variance the naive m (1 - m), and s = -1 would make it 0.
        """
        ...

    def correlated(self, correlation: Tensor) -> Self:
        """The second step of `recalibrated` with a correlation of its own for each row, `(n,)`.

        Not differentiable where a correlation is 0.
        """
        ...

    def double(self) -> Self:
        """The same joint in float64."""
        ...

    @property
    def num_classes(self) -> int:
        """K."""
        return self.log_marginal.shape[-1]

    @property
    def marginal(self) -> Tensor:
        """p(y|x), `(n, K)`."""
        return self.log_marginal.exp()

    @property
    def epistemic_confidence(self) -> Tensor:
        """C = p(y|x) / p(y|y,x), `(n, K)`; 0 where p(y|x) is 0."""
        log_marginal = self.log_marginal
        ratio = (log_marginal - self.log_self_conditional).exp()
        return torch.where(log_marginal == -torch.inf, 0.0, ratio)

    def scores(self) -> SelfCheatScores:
        """Scores of every class, `(n, K)`, in float64."""
        exact = self.double()
        return SelfCheatScores(_numpy(exact.log_marginal), _numpy(exact.log_self_conditional))

    def prediction(self) -> Prediction:
        """Marginal and epistemic variance of every class, `(n, K)`, in float64."""
        exact = self.double()
        # Normalised in float32, or by a sum of exponentials, a probability may round above one.
        return Prediction(_numpy(exact.marginal.clamp_max(1)), _numpy(exact.epistemic_variance))


@runtime_checkable
class TabularJoint(PairJoint, Protocol):
    """Joints with a K x K table: all but those that predict each class on its own.

    >>> from secondguess.classification.table_joint import TableJoint
    >>> joint: TabularJoint = TableJoint(torch.tensor([[[0.4, 0.2], [0.2, 0.2]]]).log())
    >>> joint.conditional
    tensor([[[0.6667, 0.3333],
             [0.5000, 0.5000]]])
    """

    @property
    def log_joint(self) -> Tensor:
        """Log p(y1,y2|x), the whole table `(n, K, K)`."""
        ...

    @property
    def conditional(self) -> Tensor:
        """p(y2|y1,x), `(n, K, K)`, one row for each y1."""
        return (self.log_joint - self.log_marginal.unsqueeze(-1)).exp()

    @property
    def pair_covariance(self) -> Tensor:
        """p(y1,y2|x) - p(y1|x) p(y2|x), `(n, K, K)` (Definition 3.1)."""
        marginal = self.marginal
        return self.log_joint.exp() - marginal.unsqueeze(-1) * marginal.unsqueeze(-2)


def _numpy(tensor: Tensor) -> FloatArray:
    return tensor.detach().cpu().numpy()
