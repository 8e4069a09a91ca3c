"""Predicted joints p(y1, y2 | x) of two responses, a batch at a time, and what follows from them.

`PairJoint` says what every parametrisation gives; `TableJoint` and `MixtureJoint` below, and those
of `binary_joint.py`, are the parametrisations. They hold tensors only and have no weights: a head
(`heads.py`) makes them from features. Everything stays in log space and is differentiable;
`double()` comes before anything that leaves torch, because differences of log-probabilities lose
most digits of a float32.

Axes: rows are examples (n), then classes (K) of y1, then classes of y2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor
from typing_extensions import override

from secondguess._arrays import FloatArray
from secondguess.classification.log_space import (
    gather,
    log1mexp,
    log_mix,
    log_peek,
    log_softmax_table,
)
from secondguess.theory.records import Prediction, SelfCheatScores

_LOG_FLOOR = -1e30


class PairJoint(Protocol):
    """A batch of n symmetric joints over K classes.

    >>> joint: PairJoint = MixtureJoint(
    ...     log_weights=torch.tensor([[0.5, 0.5]]).log(),
    ...     log_components=torch.tensor([[[0.8, 0.2], [0.4, 0.6]]]).log(),
    ... )
    >>> joint.marginal, joint.epistemic_variance
    (tensor([[0.6000, 0.4000]]), tensor([[0.0400, 0.0400]]))
    >>> joint.conditional
    tensor([[[0.6667, 0.3333],
             [0.5000, 0.5000]]])
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

    @property
    def log_joint(self) -> Tensor:
        """Log p(y1,y2|x), the whole table `(n, K, K)`."""
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
    def conditional(self) -> Tensor:
        """p(y2|y1,x), `(n, K, K)`, one row for each y1."""
        return (self.log_joint - self.log_marginal.unsqueeze(-1)).exp()

    @property
    def pair_covariance(self) -> Tensor:
        """p(y1,y2|x) - p(y1|x) p(y2|x), `(n, K, K)` (Definition 3.1)."""
        marginal = self.marginal
        return self.log_joint.exp() - marginal.unsqueeze(-1) * marginal.unsqueeze(-2)

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
        return Prediction(_numpy(exact.marginal), _numpy(exact.epistemic_variance))


@dataclass(frozen=True, slots=True)
class TableJoint(PairJoint):
    """The whole table, for a modest number of classes. Its variances may come out negative.

    >>> joint = TableJoint(torch.tensor([[[0.4, 0.1], [0.1, 0.4]]]).log())
    >>> joint.epistemic_variance
    tensor([[0.1500, 0.1500]])

    Attributes:
        log_table: log-probabilities `(n, K, K)`, symmetric, normalised over both class axes.
    """

    log_table: Tensor

    @property
    @override
    def log_joint(self) -> Tensor:
        return self.log_table

    @property
    @override
    def log_marginal(self) -> Tensor:
        return self.log_table.logsumexp(-1)

    @property
    @override
    def log_self_conditional(self) -> Tensor:
        log_marginal = self.log_marginal
        conditional = self.log_table.diagonal(dim1=-2, dim2=-1) - log_marginal
        return torch.where(log_marginal == -torch.inf, log_marginal, conditional)

    @property
    @override
    def epistemic_variance(self) -> Tensor:
        return self.log_table.diagonal(dim1=-2, dim2=-1).exp() - self.marginal.square()

    @override
    def log_prob(self, y1: Tensor, y2: Tensor) -> Tensor:
        num_classes = self.log_table.shape[-1]
        return gather(self.log_table.flatten(-2), y1 * num_classes + y2)

    @override
    def recalibrated(self, temperature: Tensor, correlation: Tensor) -> TableJoint:
        tempered = TableJoint(log_softmax_table(self.log_table / temperature))
        log_marginal = tempered.log_marginal
        if correlation >= 0:
            off_diagonal = torch.full_like(tempered.log_table, -torch.inf)
            target = off_diagonal.diagonal_scatter(log_marginal, dim1=-2, dim2=-1)
        else:
            target = log_marginal.unsqueeze(-1) + log_marginal.unsqueeze(-2)
        return TableJoint(log_mix(tempered.log_table, target, correlation.abs()))

    @override
    def double(self) -> TableJoint:
        return TableJoint(self.log_table.double())


@dataclass(frozen=True, slots=True)
class MixtureJoint(PairJoint):
    """The mixture `sum_r w_r q_r q_r^T` of R independent pairs: V >= 0 and C <= 1 by construction.

    It is symmetric, non-negative and completely positive. With m the marginal, V is
    `sum_r w_r (q_r - m)^2` and `log p(y|y,x)` is `log m + log1p(V / m^2)`: sums of terms that are
    never negative, so that rounding cannot break either inequality. Everything but `log_joint`,
    `conditional` and `pair_covariance` costs O(R K).

    >>> same = torch.tensor([0.9, 0.1]).log().expand(1, 3, 2)
    >>> joint = MixtureJoint(torch.full((1, 3), 1 / 3).log(), same)
    >>> bool((joint.epistemic_variance >= 0).all() & (joint.epistemic_confidence <= 1).all())
    True

    Attributes:
        log_weights: `(n, R)`, log-probabilities over the components.
        log_components: `(n, R, K)`, log-probabilities over the classes.
        log_copy: the logarithm of the weight of a further part `diag(m)`, which gives y2 = y1; a
            scalar. Heads leave it at -inf, that is none; recalibration sets it.
    """

    log_weights: Tensor
    log_components: Tensor
    log_copy: Tensor | None = None

    @property
    def num_components(self) -> int:
        """R."""
        return self.log_weights.shape[-1]

    @property
    @override
    def log_marginal(self) -> Tensor:
        return (self.log_weights.unsqueeze(-1) + self.log_components).logsumexp(-2)

    @property
    def _log_relative_variance(self) -> Tensor:
        """Log V / m^2, `(n, K)`; -inf where all components agree."""
        # Probabilities that are zero by any measure get a floor, whose double is still finite.
        log_weights = self.log_weights.clamp_min(_LOG_FLOOR).unsqueeze(-1)
        log_components = self.log_components.clamp_min(_LOG_FLOOR)
        log_marginal = (log_weights + log_components).logsumexp(-2)
        # d = log q - log m: |q/m - 1| = e^max(d, 0) (1 - e^-|d|) neither overflows nor cancels.
        distance = log_components - log_marginal.unsqueeze(-2)
        log_gap = distance.clamp_min(0) + log1mexp(distance.abs())
        relative = (log_weights + 2 * log_gap).logsumexp(-2)
        if self.log_copy is None:
            return relative
        # V' = (1 - s) V + s m (1 - m), see PairJoint.recalibrated.
        naive = log1mexp((-log_marginal).clamp_min(0)) - log_marginal  # m may round above 1
        return torch.logaddexp(log1mexp(-self.log_copy) + relative, self.log_copy + naive)

    @property
    @override
    def log_self_conditional(self) -> Tensor:
        return log_peek(self.log_marginal, self._log_relative_variance)

    @property
    @override
    def epistemic_variance(self) -> Tensor:
        log_marginal = self.log_marginal.clamp_min(2 * _LOG_FLOOR)
        return (self._log_relative_variance + 2 * log_marginal).exp()

    @property
    @override
    def log_joint(self) -> Tensor:
        weighted = self.log_weights[..., None, None] + self.log_components.unsqueeze(-1)
        table = (weighted + self.log_components.unsqueeze(-2)).logsumexp(-3)
        if self.log_copy is None:
            return table
        copied = torch.full_like(table, -torch.inf)
        copied = copied.diagonal_scatter(self.log_marginal, dim1=-2, dim2=-1)
        return log_mix(table, copied, self.log_copy.exp())

    @override
    def log_prob(self, y1: Tensor, y2: Tensor) -> Tensor:
        at_y1, at_y2 = self._components_at(y1), self._components_at(y2)
        weights = self.log_weights.reshape(self.log_weights.shape + (1,) * (y1.ndim - 1))
        independent = (weights + at_y1 + at_y2).logsumexp(1)
        if self.log_copy is None:
            return independent
        copied = torch.where(y1 == y2, (weights + at_y1).logsumexp(1), -torch.inf)
        return log_mix(independent, copied, self.log_copy.exp())

    def _components_at(self, y: Tensor) -> Tensor:
        """Log q_r(y) of each row's responses, `(n, R, ...)`."""
        flat = y.reshape(len(y), 1, -1).expand(-1, self.num_components, -1)
        picked = self.log_components.gather(2, flat)
        return picked.reshape(len(y), self.num_components, *y.shape[1:])

    @override
    def recalibrated(self, temperature: Tensor, correlation: Tensor) -> MixtureJoint:
        components = (self.log_components / temperature).log_softmax(-1)
        tempered = MixtureJoint(self.log_weights, components)
        if correlation >= 0:
            return MixtureJoint(self.log_weights, components, correlation.log())
        # m m^T is one more component, the marginal itself.
        ones = torch.ones_like(self.log_weights[:, :1])
        return MixtureJoint(
            torch.cat(
                [self.log_weights + torch.log1p(correlation), ones * (-correlation).log()], 1
            ),
            torch.cat([components, tempered.log_marginal.unsqueeze(1)], 1),
        )

    @override
    def double(self) -> MixtureJoint:
        copy = None if self.log_copy is None else self.log_copy.double()
        return MixtureJoint(self.log_weights.double(), self.log_components.double(), copy)


def _numpy(tensor: Tensor) -> FloatArray:
    return tensor.detach().cpu().numpy()
