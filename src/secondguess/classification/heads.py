"""Heads: the last layer of a pair model, from features `(n, in_features)` to a `PairJoint`.

- `CorrelationPairHead`: a marginal, one correlation and a background; K + 1 outputs; variances
  never negative.
- `BinaryPairHead`: two classes, mean and correlation; 2 outputs; variances never negative.
- `ClasswisePairHead`: one binary joint per class; 2 K outputs; variances never negative.
- `SymmetricPairHead`: any symmetric table; K^2 outputs; variances may come out negative.
- `MixturePairHead`: a mixture of R independent pairs; R (K + 1) outputs; variances never negative.

`PairModel` puts a head on a backbone. Each head takes a `generator` for its initial weights (LeCun
normal, biases zero); without it, they come from torch's default generator. With `offset`, the last
`num_classes` features are log-odds that another model found: they are added to the logits of the
classes, and the head learns what to add; `offsets.py` sets how much of that is used.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from secondguess._arrays import check_at_least
from secondguess.classification.binary_joint import BinaryJoint, ClasswiseJoint
from secondguess.classification.correlation_joint import CorrelationJoint
from secondguess.classification.inputs import Inputs, features_of
from secondguess.classification.joint import PairJoint
from secondguess.classification.log_space import log_softmax_table
from secondguess.classification.mixture_joint import MixtureJoint
from secondguess.classification.offsets import (
    add_share,
    full_precision,
    split_offset,
    with_offset,
)
from secondguess.classification.table_joint import TableJoint
from secondguess.models.initial import lecun_linear

HeadName = Literal["correlation", "mixture", "symmetric", "binary"]

MAX_DEFAULT_COMPONENTS = 10
_FIRST_BACKGROUND = 0.1
"""Of all classes together, when the training begins."""

ROWS_AT_ONCE = 4096
"""Rows that go through a network together when it predicts, at most."""


class CorrelationPairHead(nn.Module):
    """A marginal m, one correlation r for all classes and a background (`CorrelationJoint`).

    It is always valid, has the fewest outputs of all heads and is therefore learned from few rows;
    it cannot say that two labels are mistaken for each other more often than others.

    The background is m(y) b / (m(y) + b), with one rate b for all rows and classes, which is
    learned: all of a probability far below b, and no more than b of a large one. Some people choose
    an unlikely label whatever the item is, and where p(y|x) is small mostly for that reason, there
    is little about it that could be learned. With b = 0, V(y) = r m(y) (1 - m(y)) as for a
    Dirichlet distribution over p(.|x), and the variance of rare classes comes out too large.

    >>> joint = CorrelationPairHead(in_features=3, num_classes=4)(torch.zeros(5, 3))
    >>> joint.epistemic_variance[0]  # a little below half of 1/4 (1 - 1/4)
    tensor([0.0775, 0.0775, 0.0775, 0.0775], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        offset: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.num_classes = check_at_least("num_classes", num_classes, 2)
        self.num_offsets = num_classes if offset else 0
        add_share(self, self.num_offsets)
        self.outputs = lecun_linear(in_features, num_classes + 1, generator=generator)
        # Of the rate, beyond where it starts: so weight decay draws it there and not to 1.
        self.log_rate = nn.Parameter(torch.zeros(1))

    def forward(self, features: Tensor) -> CorrelationJoint:
        """Features `(n, in_features)` to a joint with one correlation per row."""
        features, offset = split_offset(features, self.num_offsets)
        outputs = full_precision(self.outputs(features))
        log_means = with_offset(self, outputs[:, :-1], offset).log_softmax(-1)
        log_rate = math.log(_FIRST_BACKGROUND / self.num_classes) + self.log_rate
        # d / m = m / (m + b)
        log_shares = logsigmoid(log_means - log_rate)
        return CorrelationJoint(log_means, log_shares, logsigmoid(outputs[:, -1]))


class BinaryPairHead(nn.Module):
    """Two classes: mean = sigmoid(h0), correlation = sigmoid(h1) (Proposition E.2).

    The appendix uses two names for each of the two outputs; they are one mean and one correlation.

    >>> joint = BinaryPairHead(in_features=3)(torch.zeros(5, 3))
    >>> joint.marginal.shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        in_features: int,
        *,
        offset: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.num_offsets = 2 if offset else 0
        add_share(self, self.num_offsets)
        self.outputs = lecun_linear(in_features, 2, generator=generator)

    def forward(self, features: Tensor) -> BinaryJoint:
        """Features `(n, in_features)` to a joint of the classes 0 and 1."""
        features, offset = split_offset(features, self.num_offsets)
        mean_logit, correlation_logit = full_precision(self.outputs(features)).unbind(-1)
        if offset is not None:
            mean_logit = with_offset(self, mean_logit, offset[:, 1] - offset[:, 0])
        return BinaryJoint(mean_logit, correlation_logit)


class ClasswisePairHead(nn.Module):
    """One binary pair per class, for classwise prediction of many classes without a K x K table.

    The means are a softmax over the classes, so that they sum to one.

    >>> joint = ClasswisePairHead(in_features=3, num_classes=1000)(torch.zeros(5, 3))
    >>> joint.epistemic_variance.shape
    torch.Size([5, 1000])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        offset: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.num_classes = check_at_least("num_classes", num_classes, 2)
        self.num_offsets = num_classes if offset else 0
        add_share(self, self.num_offsets)
        self.outputs = lecun_linear(in_features, 2 * num_classes, generator=generator)

    def forward(self, features: Tensor) -> ClasswiseJoint:
        """Features `(n, in_features)` to K binary joints."""
        features, offset = split_offset(features, self.num_offsets)
        logits, correlation_logits = full_precision(self.outputs(features)).chunk(2, dim=-1)
        logits = with_offset(self, logits, offset)
        return ClasswiseJoint(logits.log_softmax(-1), correlation_logits)


class SymmetricPairHead(nn.Module):
    """A K x K table of logits plus its transpose, and one softmax over all of it (appendix E).

    Nothing keeps the table positive semidefinite: train it with `negative_eigenvalue_penalty`.

    >>> joint = SymmetricPairHead(in_features=3, num_classes=4)(torch.ones(5, 3))
    >>> joint.log_joint.shape, joint.log_joint.equal(joint.log_joint.mT)
    (torch.Size([5, 4, 4]), True)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        offset: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.num_classes = check_at_least("num_classes", num_classes, 2)
        self.num_offsets = num_classes if offset else 0
        self.outputs = lecun_linear(in_features, num_classes**2, generator=generator)

    def forward(self, features: Tensor) -> TableJoint:
        """Features `(n, in_features)` to a symmetric table."""
        features, offset = split_offset(features, self.num_offsets)
        logits = full_precision(self.outputs(features)).unflatten(-1, (self.num_classes,) * 2)
        if offset is not None:  # the transpose below adds it for the other response
            logits = logits + offset.unsqueeze(-1)
        return TableJoint(log_softmax_table(logits + logits.mT))


class MixturePairHead(nn.Module):
    """A mixture of R independent pairs, `sum_r w_r q_r q_r^T`: a valid joint by construction.

    The paper knows no simple way to make a table of probabilities positive semidefinite; this is
    one. A mixture over r of "both responses are drawn from q_r" is what a calibrated model's joint
    is (with r standing for what the model does not see), so nothing but valid joints can come out.

    R is K by default, and 10 where there are more classes than that. K components are the fewest
    that can say "each input has one right label and I know nothing about it" (the joint I / K has
    rank K), and enough for every valid joint of up to four classes, where the completely positive
    rank is at most K. Beyond ten classes a row's plausible labels are usually few, while time and
    memory grow with R; raise it where they are not few.

    >>> joint = MixturePairHead(in_features=3, num_classes=4)(torch.ones(5, 3))
    >>> joint.num_components, joint.log_weights.shape, joint.log_components.shape
    (4, torch.Size([5, 4]), torch.Size([5, 4, 4]))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        num_components: int | None = None,
        *,
        offset: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.num_classes = check_at_least("num_classes", num_classes, 2)
        self.num_offsets = num_classes if offset else 0
        if num_components is None:
            num_components = min(num_classes, MAX_DEFAULT_COMPONENTS)
        self.num_components = check_at_least("num_components", num_components, 1)
        add_share(self, self.num_offsets)
        self.weights = lecun_linear(in_features, num_components, generator=generator)
        self.components = lecun_linear(
            in_features, num_components * num_classes, generator=generator
        )
        # Equal components are a saddle point of the likelihood: each one starts with a lean
        # towards its own class, so that the variance has a slope from the first step on.
        with torch.no_grad():
            leans = torch.arange(num_components) % num_classes
            bias = self.components.bias.view(num_components, num_classes)
            bias.scatter_add_(1, leans.unsqueeze(1), torch.ones(num_components, 1))

    def forward(self, features: Tensor) -> MixtureJoint:
        """Features `(n, in_features)` to a mixture; memory and time grow with R K, not K^2."""
        features, offset = split_offset(features, self.num_offsets)
        components = full_precision(self.components(features))
        components = components.unflatten(-1, (self.num_components, self.num_classes))
        if offset is not None:
            components = components + offset.unsqueeze(1)
        weights = full_precision(self.weights(features))
        joint = MixtureJoint(weights.log_softmax(-1), components.log_softmax(-1))
        if offset is None or (share := self.get_buffer("own_share")) == 1:
            return joint
        log_ratio = joint.log_marginal - offset.log_softmax(-1)
        return joint.with_marginal((offset + share * log_ratio).log_softmax(-1))


PairHead = (
    CorrelationPairHead | BinaryPairHead | ClasswisePairHead | SymmetricPairHead | MixturePairHead
)


def build_head(
    name: HeadName,
    num_features: int,
    num_classes: int,
    num_components: int | None = None,
    *,
    offset: bool = False,
    generator: torch.Generator | None = None,
) -> PairHead:
    """The head of this name; `binary` has one pair of outputs, or one per class if more than two.

    >>> type(build_head("binary", 8, num_classes=3)).__name__
    'ClasswisePairHead'
    """
    match name:
        case "correlation":
            return CorrelationPairHead(
                num_features, num_classes, offset=offset, generator=generator
            )
        case "mixture":
            return MixturePairHead(
                num_features, num_classes, num_components, offset=offset, generator=generator
            )
        case "symmetric":
            return SymmetricPairHead(num_features, num_classes, offset=offset, generator=generator)
        case "binary" if num_classes == 2:
            return BinaryPairHead(num_features, offset=offset, generator=generator)
        case "binary":
            return ClasswisePairHead(num_features, num_classes, offset=offset, generator=generator)
    raise ValueError(
        f"head is {name!r}; expected 'correlation', 'mixture', 'symmetric' or 'binary'."
    )


def head_name(head: PairHead) -> HeadName:
    """The name by which `build_head` makes such a head.

    >>> head_name(build_head("binary", 8, num_classes=3))
    'binary'
    """
    match head:
        case CorrelationPairHead():
            return "correlation"
        case MixturePairHead():
            return "mixture"
        case SymmetricPairHead():
            return "symmetric"
        case _:
            return "binary"


class PairModel(nn.Module):
    """A backbone from inputs to features, with a head on it.

    >>> model = PairModel(nn.Linear(8, 3), BinaryPairHead(in_features=3))
    >>> model(torch.zeros(5, 8)).log_marginal.shape
    torch.Size([5, 2])

    Attributes:
        rows_at_once: how many rows go through the backbone together when it predicts, at most.
    """

    def __init__(self, backbone: nn.Module, head: PairHead) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.rows_at_once = ROWS_AT_ONCE

    def features(self, inputs: Inputs) -> Tensor:
        """What the head sees of inputs, `(n, in_features)`."""
        return features_of(self.backbone, inputs, next(self.head.parameters()))

    def forward(self, inputs: Inputs) -> PairJoint:
        """Inputs `(n, ...)`, as the backbone wants them, to a joint."""
        return self.head(self.features(inputs))
