"""The joint as a mixture of independent pairs. What joints share is described in `joint.py`.

Axes: rows (n), then components (R), then classes (K).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from secondguess.classification.joint import TabularJoint
from secondguess.classification.log_space import log1mexp, log_mix, log_peek

_LOG_FLOOR = -1e30


@dataclass(frozen=True, slots=True)
class MixtureJoint(TabularJoint):
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
            scalar, or one per row, `(n,)`. Heads leave it at None; recalibration sets it.
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
        log_copy = self._log_copy_like(relative)
        return torch.logaddexp(log1mexp(-log_copy) + relative, log_copy + naive)

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
        return log_mix(table, copied, self._log_copy_like(table).exp())

    @override
    def log_prob(self, y1: Tensor, y2: Tensor) -> Tensor:
        at_y1, at_y2 = self._components_at(y1), self._components_at(y2)
        weights = self.log_weights.reshape(self.log_weights.shape + (1,) * (y1.ndim - 1))
        independent = (weights + at_y1 + at_y2).logsumexp(1)
        if self.log_copy is None:
            return independent
        copied = torch.where(y1 == y2, (weights + at_y1).logsumexp(1), -torch.inf)
        return log_mix(independent, copied, self._log_copy_like(independent).exp())

    def log_prob_of_all(self, labels: Tensor, multiplicity: Tensor) -> Tensor:
        """Log-probability of all annotations of each row, in a given order, `(n,)`.

        It is `log sum_r w_r prod_c q_r(c)^(n_c)`, in O(R K). A part `diag(m)` is the candidate that
        everybody gives one label, drawn from m.

        >>> components = torch.tensor([[[0.9, 0.1], [0.1, 0.9]]]).log()
        >>> joint = MixtureJoint(torch.tensor([[0.5, 0.5]]).log(), components)
        >>> joint.log_prob_of_all(torch.tensor([[0, 1]]), torch.tensor([[3, 0]])).exp()
        tensor([0.3650])

        Args:
            labels: `(n, d)` class indices.
            multiplicity: `(n, d)`, how many annotations have each label, as in `PairData`.
        """
        counts = multiplicity.unsqueeze(1).to(self.log_weights.dtype)
        # A label of zero probability that nobody gave is 0 * -inf, which must count as nothing.
        terms = torch.where(counts > 0, counts * self._components_at(labels), 0.0)
        independent = (self.log_weights + terms.sum(-1)).logsumexp(1)
        if self.log_copy is None:
            return independent
        given = multiplicity > 0
        log_marginal = self.log_marginal.gather(1, labels)
        alone = torch.where(given, log_marginal, 0.0).sum(1)
        copied = torch.where(given.sum(1) == 1, alone, -torch.inf)
        return log_mix(independent, copied, self._log_copy_like(independent).exp())

    def with_marginal(self, log_marginal: Tensor) -> MixtureJoint:
        """The mixture with another marginal m and the same p(r|y), the component behind a response.

        By Bayes' rule component r then has weight `sum_y m(y) p(r|y)` and q_r(y) = m(y) p(r|y) over
        that: a mixture of independent pairs again, with m to the last digit.

        >>> components = torch.tensor([[[0.9, 0.1], [0.1, 0.9]]]).log()
        >>> joint = MixtureJoint(torch.tensor([[0.5, 0.5]]).log(), components)
        >>> moved = joint.with_marginal(torch.tensor([[0.3, 0.7]]).log())
        >>> moved.marginal, moved.epistemic_variance
        (tensor([[0.3000, 0.7000]]), tensor([[0.1258, 0.1258]]))

        Args:
            log_marginal: log m, `(n, K)`.
        """
        weighted = self.log_weights.unsqueeze(-1) + self.log_components
        shared = weighted.log_softmax(-2) + log_marginal.unsqueeze(-2)
        log_weights = shared.logsumexp(-1)
        return MixtureJoint(log_weights, shared - log_weights.unsqueeze(-1), self.log_copy)

    def distribution(self) -> tuple[Tensor, Tensor]:
        """Weights `(n, R')` and candidates `(n, R', K)`, the part `diag(m)` among them."""
        weights, components = self.log_weights.exp(), self.log_components.exp()
        if self.log_copy is None:
            return weights, components
        share = self._log_copy_like(weights).exp()
        labels = torch.eye(components.shape[-1]).to(components)
        return (
            torch.cat([(1 - share) * weights, share * self.log_marginal.exp()], 1),
            torch.cat([components, labels.expand(len(weights), -1, -1)], 1),
        )

    def _log_copy_like(self, values: Tensor) -> Tensor:
        """`log_copy`, one per row, with as many axes as the values `(n, ...)`."""
        assert self.log_copy is not None
        return self.log_copy.reshape(-1, *(1,) * (values.ndim - 1))

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
    def correlated(self, correlation: Tensor) -> MixtureJoint:
        # With c the share of diag(m) so far, u = max(s, 0) of it is added and l = max(-s, 0) of
        # m m^T, which is one more component.
        upper, lower = correlation.clamp_min(0), (-correlation).clamp_min(0)
        share = torch.zeros_like(upper) if self.log_copy is None else self.log_copy.exp()
        copied = (1 - upper - lower) * share + upper
        kept = (1 - upper - lower) * (1 - share)
        rest = kept + lower
        scaled = self.log_weights + (kept / rest).log().unsqueeze(1)
        return MixtureJoint(
            torch.cat([scaled, (lower / rest).log().unsqueeze(1)], 1),
            torch.cat([self.log_components, self.log_marginal.unsqueeze(1)], 1),
            copied.log(),
        )

    @override
    def double(self) -> MixtureJoint:
        copy = None if self.log_copy is None else self.log_copy.double()
        return MixtureJoint(self.log_weights.double(), self.log_components.double(), copy)
