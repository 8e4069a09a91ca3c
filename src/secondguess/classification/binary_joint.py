"""Joints of two binary responses: one event, or one event for each of K classes.

Both follow Proposition E.2: every calibrated joint of a binary pair is given by its mean and its
correlation, each in [0, 1]. What joints have in common is described in `joint.py`.

Axes: rows (n), then classes (K).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from typing_extensions import override

from secondguess.classification.joint import PairJoint, TabularJoint
from secondguess.classification.log_space import gather, log1mexp, log_peek


@dataclass(frozen=True, slots=True)
class BinaryJoint(TabularJoint):
    """Two classes, by the mean of the event y = 1 and the correlation of a pair (Proposition E.2).

    With mean m and correlation r, both in (0, 1), the joint is
    `r diag(1 - m, m) + (1 - r) (1 - m, m) (1 - m, m)^T`, so that V = r m (1 - m).

    >>> joint = BinaryJoint(torch.tensor([0.0]), torch.tensor([0.0]))  # mean 1/2, correlation 1/2
    >>> joint.log_joint.exp()
    tensor([[[0.3750, 0.1250],
             [0.1250, 0.3750]]])

    Attributes:
        mean_logit: `(n,)`.
        correlation_logit: `(n,)`.
    """

    mean_logit: Tensor
    correlation_logit: Tensor

    @property
    @override
    def log_marginal(self) -> Tensor:
        return torch.stack([logsigmoid(-self.mean_logit), logsigmoid(self.mean_logit)], -1)

    @property
    @override
    def log_self_conditional(self) -> Tensor:
        log_marginal = self.log_marginal
        # V / m^2 = r (1 - m) / m, and 1 - m is the other class's probability.
        log_correlation = logsigmoid(self.correlation_logit).unsqueeze(-1)
        return log_peek(log_marginal, log_correlation + log_marginal.flip(-1) - log_marginal)

    @property
    @override
    def epistemic_variance(self) -> Tensor:
        log_variance = logsigmoid(self.correlation_logit) + self.log_marginal.sum(-1)
        return log_variance.exp().unsqueeze(-1).expand(-1, 2)

    @property
    @override
    def log_joint(self) -> Tensor:
        log_marginal, log_conditional = self.log_marginal, self.log_self_conditional
        differ = logsigmoid(-self.correlation_logit) + log_marginal.sum(-1)
        zeros, ones = (log_marginal + log_conditional).unbind(-1)
        return torch.stack([zeros, differ, differ, ones], -1).unflatten(-1, (2, 2))

    @override
    def log_prob(self, y1: Tensor, y2: Tensor) -> Tensor:
        return gather(self.log_joint.flatten(-2), 2 * y1 + y2)

    @override
    def recalibrated(self, temperature: Tensor, correlation: Tensor) -> BinaryJoint:
        return BinaryJoint(
            self.mean_logit / temperature, _shift_correlation(self.correlation_logit, correlation)
        )

    @override
    def correlated(self, correlation: Tensor) -> BinaryJoint:
        logit = _correlated(self.correlation_logit, correlation)
        return BinaryJoint(self.mean_logit, logit)

    @override
    def double(self) -> BinaryJoint:
        return BinaryJoint(self.mean_logit.double(), self.correlation_logit.double())


@dataclass(frozen=True, slots=True)
class ClasswiseJoint(PairJoint):
    """K binary joints "is it class c?", one mean and one correlation each, without a K x K table.

    This is classwise prediction (appendix C, "Joint, marginal, and class-wise calibration"): each
    class's joint is that of `BinaryJoint`, and nothing is said about two different classes, so this
    is no `TabularJoint`: it has no `log_joint`, `conditional` or `pair_covariance`. `log_prob` is
    the sum of the K binary log-likelihoods: a proper objective for every mean and correlation, but
    not comparable with the log-likelihood of a pair under the other joints.

    >>> joint = ClasswiseJoint(torch.zeros(1, 4).log_softmax(1), torch.zeros(1, 4))
    >>> joint.epistemic_variance  # 1/2 of 1/4 (1 - 1/4)
    tensor([[0.0938, 0.0938, 0.0938, 0.0938]])

    Attributes:
        log_means: `(n, K)`, log-probabilities that sum to one over the classes.
        correlation_logits: `(n, K)`.
    """

    log_means: Tensor
    correlation_logits: Tensor

    @property
    @override
    def log_marginal(self) -> Tensor:
        return self.log_means

    @property
    def _log_other(self) -> Tensor:
        """Log (1 - m), exact for the likeliest class too, whose m may round to 1."""
        likeliest = torch.zeros_like(self.log_means, dtype=torch.bool)
        likeliest = likeliest.scatter(-1, self.log_means.argmax(-1, keepdim=True), True)
        rest = self.log_means.masked_fill(likeliest, -torch.inf).logsumexp(-1, keepdim=True)
        return torch.where(likeliest, rest, log1mexp(-self.log_means.masked_fill(likeliest, -1)))

    @property
    @override
    def log_self_conditional(self) -> Tensor:
        log_correlation = logsigmoid(self.correlation_logits)
        return log_peek(self.log_means, log_correlation + self._log_other - self.log_means)

    @property
    @override
    def epistemic_variance(self) -> Tensor:
        return (logsigmoid(self.correlation_logits) + self.log_means + self._log_other).exp()

    @override
    def log_prob(self, y1: Tensor, y2: Tensor) -> Tensor:
        log_other, log_correlation = self._log_other, logsigmoid(self.correlation_logits)
        neither = log_other + torch.logaddexp(log_other, log_correlation + self.log_means)
        both = self.log_means + self.log_self_conditional
        one = logsigmoid(-self.correlation_logits) + self.log_means + log_other
        total = neither.sum(-1).reshape(len(y1), *(1,) * (y1.ndim - 1))
        agree = gather(both - neither, y1)
        differ = gather(one - neither, y1) + gather(one - neither, y2)
        return total + torch.where(y1 == y2, agree, differ)

    @override
    def recalibrated(self, temperature: Tensor, correlation: Tensor) -> ClasswiseJoint:
        return ClasswiseJoint(
            (self.log_means / temperature).log_softmax(-1),
            _shift_correlation(self.correlation_logits, correlation),
        )

    @override
    def correlated(self, correlation: Tensor) -> ClasswiseJoint:
        logits = _correlated(self.correlation_logits, correlation.unsqueeze(-1))
        return ClasswiseJoint(self.log_means, logits)

    @override
    def double(self) -> ClasswiseJoint:
        return ClasswiseJoint(self.log_means.double(), self.correlation_logits.double())


def _shift_correlation(logits: Tensor, correlation: Tensor) -> Tensor:
    """The logits of a pair's correlation after `PairJoint.recalibrated`."""
    return _raised(logits, correlation) if correlation >= 0 else _lowered(logits, -correlation)


def _correlated(logits: Tensor, correlation: Tensor) -> Tensor:
    """The same for correlations of both signs."""
    raised = _raised(logits, correlation.clamp_min(0))
    return torch.where(correlation >= 0, raised, _lowered(logits, (-correlation).clamp_min(0)))


def _raised(logits: Tensor, s: Tensor) -> Tensor:
    # r' = (1 - s) r + s, and 1 - r' = (1 - s) (1 - r)
    log_r, log_rest = logsigmoid(logits), logsigmoid(-logits)
    return torch.logaddexp(torch.log1p(-s) + log_r, s.log()) - (torch.log1p(-s) + log_rest)


def _lowered(logits: Tensor, s: Tensor) -> Tensor:
    # r' = (1 - s) r, and 1 - r' = (1 - r) + s r
    log_r, log_rest = logsigmoid(logits), logsigmoid(-logits)
    return torch.log1p(-s) + log_r - torch.logaddexp(log_rest, s.log() + log_r)
