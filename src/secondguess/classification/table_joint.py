"""The joint as a whole K x K table. What joints have in common is described in `joint.py`.

Axes: rows (n), then classes (K) of y1, then classes of y2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from secondguess.classification.joint import TabularJoint
from secondguess.classification.log_space import gather, log_mix, log_softmax_table


@dataclass(frozen=True, slots=True)
class TableJoint(TabularJoint):
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
    def correlated(self, correlation: Tensor) -> TableJoint:
        log_marginal, s = self.log_marginal, correlation.reshape(-1, 1, 1)
        same = torch.full_like(self.log_table, -torch.inf)
        same = same.diagonal_scatter(log_marginal, dim1=-2, dim2=-1)
        independent = log_marginal.unsqueeze(-1) + log_marginal.unsqueeze(-2)
        target = torch.where(s >= 0, same, independent)
        return TableJoint(log_mix(self.log_table, target, s.abs()))

    @override
    def double(self) -> TableJoint:
        return TableJoint(self.log_table.double())
