"""What fits a pair model to pair data: build the network, train it, look at held-out pairs.

`estimators.py` gives these functions the face of scikit-learn.
"""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from secondguess.classification.batches import annotation_batches, pair_batches
from secondguess.classification.heads import (
    BinaryPairHead,
    ClasswisePairHead,
    MixturePairHead,
    PairHead,
    PairModel,
    SymmetricPairHead,
)
from secondguess.classification.joint import PairJoint
from secondguess.classification.losses import all_pairs_loss, pair_model_loss
from secondguess.classification.pairs import PairData
from secondguess.models.residual_mlp import ResidualMLP
from secondguess.training.loop import TrainingConfig, TrainingHistory, train

HeadName = Literal["mixture", "symmetric", "binary"]
LossName = Literal["all_pairs", "pair"]

ROWS_AT_ONCE = 4096
"""Rows that go through a network together when it predicts."""


class Rows(NamedTuple):
    """Inputs `(n, ...)` and the responses to them."""

    inputs: Tensor
    data: PairData

    def take(self, rows: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(self.inputs[rows], self.data[rows])


def build_head(
    name: HeadName,
    num_features: int,
    num_classes: int,
    num_components: int | None = None,
    *,
    generator: torch.Generator | None = None,
) -> PairHead:
    """The head of this name; `binary` has one pair of outputs, or one a class if more than two.

    >>> type(build_head("binary", 8, num_classes=3)).__name__
    'ClasswisePairHead'
    """
    match name:
        case "mixture":
            return MixturePairHead(num_features, num_classes, num_components, generator=generator)
        case "symmetric":
            return SymmetricPairHead(num_features, num_classes, generator=generator)
        case "binary" if num_classes == 2:
            return BinaryPairHead(num_features, generator=generator)
        case "binary":
            return ClasswisePairHead(num_features, num_classes, generator=generator)
    raise ValueError(f"head is {name!r}; expected 'mixture', 'symmetric' or 'binary'.")


def default_backbone(
    num_inputs: int, width: int, generator: torch.Generator | None = None
) -> ResidualMLP:
    """The residual MLP of appendix F.1, whose hidden layers are four times as wide as its stream.

    >>> default_backbone(3, width=128).num_features
    512
    """
    return ResidualMLP(num_inputs, width=width, hidden_width=4 * width, generator=generator)


def build_backbone(
    backbone: nn.Module | None,
    inputs: Tensor,
    *,
    width: int = 128,
    generator: torch.Generator | None = None,
) -> tuple[nn.Module, int]:
    """A copy of the backbone, or the default one, and the number of features it gives.

    >>> build_backbone(None, torch.zeros(5, 3))[1]
    512
    >>> build_backbone(nn.Linear(3, 7), torch.zeros(5, 3))[1]
    7
    """
    if backbone is None:
        default = default_backbone(inputs.shape[1], width, generator)
        return default, default.num_features
    copied = copy.deepcopy(backbone)
    with torch.no_grad():
        features = copied.eval()(inputs[:2])
    if features.ndim != 2:
        raise ValueError(
            f"the backbone turns inputs of shape {tuple(inputs[:2].shape)} into features of shape "
            f"{tuple(features.shape)}; expected (n, num_features)."
        )
    return copied, features.shape[1]


@torch.no_grad()
def joint_of(model: PairModel, inputs: Tensor) -> PairJoint:
    """The joints of all rows, the backbone taking some thousand at a time.

    >>> model = PairModel(nn.Linear(3, 7), BinaryPairHead(7))
    >>> joint_of(model, torch.zeros(5000, 3)).marginal.shape
    torch.Size([5000, 2])
    """
    weight = next(model.head.parameters())
    dtype = weight.dtype if inputs.is_floating_point() else None
    features = [
        model.backbone(part.to(device=weight.device, dtype=dtype))
        for part in inputs.split(ROWS_AT_ONCE)
    ]
    return model.head(torch.cat(features))


def held_out_loss(joint: PairJoint, data: PairData) -> float:
    """`all_pairs_loss` of predicted joints on the responses to the same inputs.

    >>> from secondguess.classification.joint import TableJoint
    >>> joint = TableJoint(torch.full((1, 2, 2), 1 / 4).log())
    >>> round(held_out_loss(joint, PairData.from_responses([[0, 1]])), 4)
    1.3863
    """
    device = joint.log_marginal.device
    labels = torch.from_numpy(data.labels).to(device)
    return all_pairs_loss(joint, labels, torch.from_numpy(data.multiplicity).to(device)).item()


def train_pair_model(
    model: PairModel,
    rows: Rows,
    *,
    config: TrainingConfig,
    batch_size: int,
    validation: Rows | None = None,
    loss: LossName = "all_pairs",
    eigenvalue_weight: float = 10.0,
    checkpoint_dir: str | Path | None = None,
    progress: str | None = None,
) -> TrainingHistory:
    """Train in place on rows, with early stopping where there are validation rows.

    >>> rows = Rows(torch.randn(50, 3), PairData.from_responses([[0, 1]] * 50))
    >>> model = PairModel(nn.Linear(3, 7), BinaryPairHead(7))
    >>> config = TrainingConfig(num_steps=5, warmup_steps=1)
    >>> len(train_pair_model(model, rows, config=config, batch_size=10).losses)
    5

    Args:
        model: the network.
        rows: inputs and responses to learn from.
        config: settings of the loop; its seed decides the batches too.
        batch_size: rows of a step, no more than there are.
        validation: rows that are not trained on; the weights of their best pair likelihood win.
        loss: all annotations of a row at once, or one random pair of them an epoch.
        eigenvalue_weight: weight of `negative_eigenvalue_penalty`.
        checkpoint_dir: see `train`; a checkpoint made with other rows is refused.
        progress: what to call the training on a progress bar.
    """
    sources = {"all_pairs": annotation_batches, "pair": pair_batches}
    if loss not in sources:
        raise ValueError(f"loss is {loss!r}; expected 'all_pairs' or 'pair'.")
    inputs, data = rows
    weight = next(model.head.parameters())
    inputs = inputs.to(weight.dtype) if inputs.is_floating_point() else inputs
    size = min(batch_size, len(data))
    digest = hashlib.sha256()
    for array in (inputs.numpy(), data.labels, data.multiplicity):
        digest.update(np.ascontiguousarray(array).tobytes())
    return train(
        model,
        loss=lambda model, batch: pair_model_loss(
            model, batch, eigenvalue_weight=eigenvalue_weight
        ),
        batch_at=sources[loss](inputs, data, batch_size=size, seed=config.seed),
        config=config,
        validate=validation
        and (lambda model: held_out_loss(joint_of(model, validation.inputs), validation.data)),
        checkpoint_dir=checkpoint_dir,
        identity={
            "rows": digest.hexdigest(),
            "loss": loss,
            "batch_size": size,
            "eigenvalue_weight": eigenvalue_weight,
        },
        progress=progress,
    )
