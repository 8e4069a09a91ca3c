"""Training of a pair network on pair data, with early stopping on the likelihood of held-out pairs.

`network_fitting.py` and `stacked_fitting.py` are the two ways to fit a classifier with it, and
`estimators.py` gives them the face of scikit-learn; the loop itself is `training/loop.py`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.batches import annotation_batches, pair_batches
from secondguess.classification.defaults import NetworkSettings
from secondguess.classification.heads import HeadName, PairModel
from secondguess.classification.inputs import digest_of, take_rows
from secondguess.classification.losses import EIGENVALUE_WEIGHT, pair_model_loss
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import mean_loss
from secondguess.classification.recalibration import PairRecalibration
from secondguess.classification.splitting import split_rows
from secondguess.theory.records import Prediction
from secondguess.training.loop import TrainingConfig, TrainingHistory, train

LossName = Literal["all_pairs", "pair", "snapshot"]

MIN_VALIDATION_ROWS = 20
"""Fewer held-out rows than this would stop training by chance; none are held out then."""


def check_loss(loss: str) -> None:
    """Raise where there is no loss of this name."""
    if loss not in get_args(LossName):
        raise ValueError(f"loss is {loss!r}; expected 'all_pairs', 'pair' or 'snapshot'.")


class Rows(NamedTuple):
    """Inputs `(n, ...)` and the responses to them.

    Attributes:
        inputs: as the backbone wants them: a tensor, or several by name (`Inputs`).
        data: the responses.
        groups: `(n,)` labels of rows that no split may tear apart, or None where all may.
        weights: `(n,)`, how often each row counts, or None where all count once.
        spreads: `(d,)`, standard deviations of the inputs before they were standardised; None where
            they were not.
    """

    inputs: Any
    data: PairData
    groups: NDArray[Any] | None = None
    weights: FloatArray | None = None
    spreads: FloatArray | None = None

    @property
    def total_weight(self) -> float:
        """As many rows as all weights stand for."""
        return float(len(self.data) if self.weights is None else self.weights.sum())

    def take(self, rows: IntArray) -> Rows:
        """Some of the rows."""
        groups, weights = (None if a is None else a[rows] for a in (self.groups, self.weights))
        inputs = take_rows(self.inputs, rows)
        return Rows(inputs, self.data[rows], groups, weights, self.spreads)


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """What is fitted, and how.

    Attributes:
        head: name of the head; None for the default.
        num_components: of a mixture head.
        loss: see `train_pair_model`.
        eigenvalue_weight: see `train_pair_model`.
        network: size and training of the network; None where there is none.
        recalibrate: whether to fit a `PairRecalibration` to held-out rows, where the model has one.
        validation_fraction: share of the rows that a network alone holds out.
        checkpoint_dir: where trainings keep their checkpoints.
        device: where networks are trained; None for the one that Accelerate finds.
        progress: whether to show progress bars.
        seed: of everything random.
    """

    head: HeadName | None
    num_components: int | None
    loss: LossName
    eigenvalue_weight: float
    network: NetworkSettings | None
    recalibrate: bool
    validation_fraction: float
    checkpoint_dir: str | Path | None
    device: str | None
    progress: bool
    seed: int


class FittedModel(NamedTuple):
    """A fitted model, and what it said of rows that it was not fitted to.

    Attributes:
        model: the network.
        history: of its training.
        held_out: predictions before the variance is mapped; None where no rows were held out.
        held_out_data: the responses to the same rows.
        held_out_groups: their groups, where there are any.
        held_out_weights: their weights, where there are any.
        raw_variance: `(n, K)`, before any recalibration, where that is not in `held_out`.
        recalibration: what was done to the joints of `held_out`, and is to be done to others.
    """

    model: PairModel
    history: TrainingHistory
    held_out: Prediction | None = None
    held_out_data: PairData | None = None
    held_out_groups: NDArray[Any] | None = None
    held_out_weights: FloatArray | None = None
    raw_variance: FloatArray | None = None
    recalibration: PairRecalibration = PairRecalibration()


def hold_out(rows: Rows, fraction: float, *, seed: int) -> tuple[Rows, Rows | None]:
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
    kept, held = split_rows(len(rows.data), [1 - fraction, fraction], rng=rng, groups=rows.groups)
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
    device: str | None = None,
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
        device: see `train`.
    """
    check_loss(loss)
    batches = pair_batches if loss == "pair" else annotation_batches
    if loss == "pair":  # a single response has no pair to draw
        rows = rows.take(np.flatnonzero(rows.data.has_pair))
    inputs, data, weights = rows.inputs, rows.data, rows.weights
    snapshot = loss == "snapshot"
    size = min(batch_size, len(data))
    digest = hashlib.sha256(digest_of(inputs))
    for array in (data.labels, data.multiplicity):
        digest.update(np.ascontiguousarray(array).tobytes())
    if weights is not None:
        digest.update(weights.tobytes())
    return train(
        model,
        loss=lambda model, batch: pair_model_loss(
            model, batch, eigenvalue_weight=eigenvalue_weight, snapshot=snapshot
        ),
        batch_at=batches(inputs, data, batch_size=size, seed=config.seed, weights=weights),
        config=config,
        validate=validation
        and (
            lambda model: mean_loss(
                model,
                validation.inputs,
                validation.data,
                snapshot=snapshot,
                weights=validation.weights,
            )
        ),
        checkpoint_dir=checkpoint_dir,
        identity={
            "rows": digest.hexdigest(),
            "loss": loss,
            "batch_size": size,
            "eigenvalue_weight": eigenvalue_weight,
        },
        progress=progress,
        device=device,
    )


def train_network(
    model: PairModel,
    rows: Rows,
    settings: FitSettings,
    *,
    validation: Rows | None,
    num_steps: int | None = None,
    part: str | None = None,
) -> TrainingHistory:
    """`train_pair_model` with the settings of a classifier.

    Args:
        model: the network.
        rows: inputs and responses to learn from.
        settings: size of the steps and when to stop.
        validation: see `train_pair_model`.
        num_steps: instead of that of the settings.
        part: what this training is, where there are several: it has a folder of its own for its
            checkpoints.
    """
    network = settings.network
    assert network is not None
    num_steps = num_steps or network.num_steps
    config = TrainingConfig(
        num_steps=num_steps,
        learning_rate=network.learning_rate,
        warmup_steps=min(100, num_steps // 10),
        weight_decay=network.weight_decay,
        clip_norm=1.0,
        validate_every=network.validate_every,
        patience=network.patience,
        seed=settings.seed,
    )
    folder, title = settings.checkpoint_dir, "pair classifier"
    if part is not None:
        folder, title = folder and Path(folder) / part, f"{title}, {part}"
    return train_pair_model(
        model,
        rows,
        config=config,
        batch_size=network.batch_size,
        validation=validation,
        loss=settings.loss,
        eigenvalue_weight=settings.eigenvalue_weight,
        checkpoint_dir=folder,
        progress=title if settings.progress else None,
        device=settings.device,
    )
