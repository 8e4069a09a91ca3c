"""Training of a pair model on pair data, with early stopping on the likelihood of held-out pairs.

`estimators.py` gives it the face of scikit-learn; the loop itself is `training/loop.py`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from secondguess.classification.batches import annotation_batches, pair_batches
from secondguess.classification.heads import PairModel
from secondguess.classification.losses import EIGENVALUE_WEIGHT, pair_model_loss
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import mean_loss
from secondguess.classification.splitting import split_rows
from secondguess.training.loop import TrainingConfig, TrainingHistory, train

LossName = Literal["all_pairs", "pair", "snapshot"]

MIN_VALIDATION_ROWS = 20
"""Fewer held-out rows than this would stop training by chance; none are held out then."""


class Rows(NamedTuple):
    """Inputs `(n, ...)` and the responses to them."""

    inputs: Tensor
    data: PairData

    def take(self, rows: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(self.inputs[rows], self.data[rows])


def hold_out(
    rows: Rows, fraction: float, *, seed: int, groups: ArrayLike | None = None
) -> tuple[Rows, Rows | None]:
    """Rows to train on, and a random share of the rows (or groups) to validate on.

    >>> import torch
    >>> rows = Rows(torch.randn(300, 3), PairData.from_responses([[0, 1]] * 300))
    >>> [len(part.data) for part in hold_out(rows, 0.1, seed=0) if part]
    [270, 30]
    >>> hold_out(rows, 0.01, seed=0)[1] is None  # 3 rows would stop training by chance
    True
    """
    if fraction * len(rows.data) < MIN_VALIDATION_ROWS:
        return rows, None
    rng = np.random.default_rng(seed)
    kept, held = split_rows(len(rows.data), [1 - fraction, fraction], rng=rng, groups=groups)
    return rows.take(kept), rows.take(held)


def train_pair_model(
    model: PairModel,
    rows: Rows,
    *,
    config: TrainingConfig,
    batch_size: int,
    validation: Rows | None = None,
    loss: LossName = "all_pairs",
    eigenvalue_weight: float = EIGENVALUE_WEIGHT,
    checkpoint_dir: str | Path | None = None,
    progress: str | None = None,
) -> TrainingHistory:
    """Train in place on rows, with early stopping where there are validation rows.

    >>> import torch
    >>> from torch import nn
    >>> from secondguess.classification.heads import BinaryPairHead
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
        validation: rows that are not trained on; the weights of their best likelihood win (of
            pairs, or of all annotations where the loss is `snapshot`).
        loss: all pairs of annotations of a row at once, one random pair of them per epoch, or
            (`snapshot`) the likelihood of all annotations together.
        eigenvalue_weight: weight of `negative_eigenvalue_penalty`.
        checkpoint_dir: see `train`; a checkpoint made with other rows is refused.
        progress: what to call the training on a progress bar.
    """
    sources = {
        "all_pairs": annotation_batches,
        "pair": pair_batches,
        "snapshot": annotation_batches,
    }
    if loss not in sources:
        raise ValueError(f"loss is {loss!r}; expected 'all_pairs', 'pair' or 'snapshot'.")
    if loss == "pair":  # a single response has no pair to draw
        rows = rows.take(np.flatnonzero(rows.data.has_pair))
    inputs, data = rows
    snapshot = loss == "snapshot"
    weight = next(model.head.parameters())
    inputs = inputs.to(weight.dtype) if inputs.is_floating_point() else inputs
    size = min(batch_size, len(data))
    digest = hashlib.sha256()
    for array in (inputs.numpy(), data.labels, data.multiplicity):
        digest.update(np.ascontiguousarray(array).tobytes())
    return train(
        model,
        loss=lambda model, batch: pair_model_loss(
            model, batch, eigenvalue_weight=eigenvalue_weight, snapshot=snapshot
        ),
        batch_at=sources[loss](inputs, data, batch_size=size, seed=config.seed),
        config=config,
        validate=validation
        and (lambda model: mean_loss(model, validation.inputs, validation.data, snapshot=snapshot)),
        checkpoint_dir=checkpoint_dir,
        identity={
            "rows": digest.hexdigest(),
            "loss": loss,
            "batch_size": size,
            "eigenvalue_weight": eigenvalue_weight,
        },
        progress=progress,
    )
