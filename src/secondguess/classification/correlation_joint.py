"""The joint with one correlation per row and a background. What joints share is in `joint.py`.

Axes: rows (n), then classes (K).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import override

from secondguess.classification.joint import TabularJoint
from secondguess.classification.log_space import gather, log1mexp, log_peek

_LOG_FLOOR = -1e30


@dataclass(frozen=True, slots=True)
class CorrelationJoint(TabularJoint):
    """A marginal m, of which a part d is in doubt and the rest is a background of stray answers.

    Whatever is true of an item, the background m - d of its answers is the same. The rest is all on
    one class, class y with probability d(y) / D, where D = sum d, if the correlation r has its way;
    else p(.|x) is m. So the joint is `m m^T + r (D diag(d) - d d^T)`, and V(y) = r d(y) (D - d(y)):
    a mixture of independent pairs, always valid, in O(K). Without a background it is the joint of
    Proposition E.2 for any number of classes, with V(y) = r m(y) (1 - m(y)).

    >>> means, half = torch.tensor([[0.5, 0.4, 0.1]]), torch.tensor([0.5]).log()
    >>> CorrelationJoint(means.log(), torch.zeros(1, 3), half).epistemic_variance
    tensor([[0.1250, 0.1200, 0.0450]])
    >>> shares = torch.tensor([[1.0, 1.0, 0.0]]).log()  # the last class is never the true one
    >>> CorrelationJoint(means.log(), shares, half).epistemic_variance
    tensor([[0.1000, 0.1000, 0.0000]])

    Attributes:
        log_means: log m, `(n, K)`.
        log_shares: log d / m, `(n, K)`.
        log_correlation: log r, `(n,)`.
        log_copy: the logarithm of the weight of a further part `diag(m)`, a scalar or one per row;
            see `MixtureJoint`.
    """

    log_means: Tensor
    log_shares: Tensor
    log_correlation: Tensor
    log_copy: Tensor | None = None

    @property
    @override
    def log_marginal(self) -> Tensor:
        return self.log_means

    @property
    def _log_relative_variance(self) -> Tensor:
        """Log V / m^2, `(n, K)`."""
        # Probabilities that are zero by any measure get a floor, whose double is still finite.
        log_means = self.log_means.clamp_min(_LOG_FLOOR)
        log_shares = self.log_shares.clamp_min(_LOG_FLOOR)
        doubtful = log_means + log_shares
        total = doubtful.logsumexp(-1, keepdim=True)
        # D - d is a difference but for the largest d, where it may be nothing but rounding.
        largest = torch.zeros_like(doubtful, dtype=torch.bool)
        largest = largest.scatter(-1, doubtful.argmax(-1, keepdim=True), True)
        rest = doubtful.masked_fill(largest, -torch.inf).logsumexp(-1, keepdim=True)
        others = total + log1mexp((total - doubtful).masked_fill(largest, 1.0))
        others = torch.where(largest, rest, others)
        relative = self.log_correlation.unsqueeze(-1) + log_shares + (others - log_means)
        if self.log_copy is None:
            return relative
        # V' = (1 - s) V + s m (1 - m), see PairJoint.recalibrated.
        naive = log1mexp((-log_means).clamp_min(0)) - log_means  # m may round above 1
        log_copy = _per_row(self.log_copy, relative)
        return torch.logaddexp(log1mexp(-log_copy) + relative, log_copy + naive)

    @property
    @override
    def log_self_conditional(self) -> Tensor:
        return log_peek(self.log_means, self._log_relative_variance)

    @property
    @override
    def epistemic_variance(self) -> Tensor:
        return (self._log_relative_variance + 2 * self.log_means.clamp_min(_LOG_FLOOR)).exp()

    @property
    @override
    def log_joint(self) -> Tensor:
        num_rows, num_classes = self.log_means.shape
        index = torch.arange(num_classes, device=self.log_means.device)
        y1, y2 = index.unsqueeze(1), index.unsqueeze(0)
        shape = (num_rows, num_classes, num_classes)
        return self.log_prob(y1.expand(shape), y2.expand(shape))

    @override
    def log_prob(self, y1: Tensor, y2: Tensor) -> Tensor:
        # m(y1) m(y2) - r d(y1) d(y2) is the former times one minus r and the two shares.
        shares = gather(self.log_shares, y1) + gather(self.log_shares, y2)
        shares = shares + _per_row(self.log_correlation, shares)
        differ = gather(self.log_means, y1) + gather(self.log_means, y2) + log1mexp(-shares)
        if self.log_copy is not None:
            differ = differ + log1mexp(-_per_row(self.log_copy, differ))
        return torch.where(y1 == y2, gather(self.log_means + self.log_self_conditional, y1), differ)

    @override
    def recalibrated(self, temperature: Tensor, correlation: Tensor) -> CorrelationJoint:
        tempered = replace(self, log_means=(self.log_means / temperature).log_softmax(-1))
        if correlation >= 0:
            return replace(tempered, log_copy=correlation.log())
        lowered = self.log_correlation + torch.log1p(correlation)
        return replace(tempered, log_correlation=lowered)

    @override
    def correlated(self, correlation: Tensor) -> CorrelationJoint:
        # With c the share of diag(m) so far, u = max(s, 0) of it is added and l = max(-s, 0) of
        # m m^T, which lowers r.
        upper, lower = correlation.clamp_min(0), (-correlation).clamp_min(0)
        share = torch.zeros_like(upper) if self.log_copy is None else self.log_copy.exp()
        copied = (1 - upper - lower) * share + upper
        kept = (1 - upper - lower) * (1 - share)
        log_correlation = self.log_correlation + (kept / (kept + lower)).log()
        return replace(self, log_correlation=log_correlation, log_copy=copied.log())

    @override
    def double(self) -> CorrelationJoint:
        copy = None if self.log_copy is None else self.log_copy.double()
        return CorrelationJoint(
            self.log_means.double(),
            self.log_shares.double(),
            self.log_correlation.double(),
            copy,
        )


def _per_row(values: Tensor, like: Tensor) -> Tensor:
    """A scalar, or one value per row, with as many axes as `like`, `(n, ...)`."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))
