"""The settings of a training, what it leaves behind, and its learning rates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from secondguess._arrays import FloatArray, check_at_least


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything about a training that changes its result.

    >>> TrainingConfig(num_steps=10_000, learning_rate=0.002).warmup_steps
    100

    Attributes:
        num_steps: optimizer steps.
        learning_rate: the highest learning rate, reached after the warm-up.
        matrix_learning_rate: the highest learning rate of Muon, which then trains the weight
            matrices inside the network, without weight decay, and AdamW the other parameters; None
            for AdamW alone. The model must have a method `hidden_matrices()` that returns them.
        warmup_steps: steps of linear warm-up; the cosine decay to zero takes the others.
        weight_decay: decoupled weight decay of AdamW, on all parameters.
        betas: decay rates of AdamW's two moments.
        clip_norm: largest norm of the gradient, or None for no clipping.
        accumulation_steps: parts in which a process works through its share of the batch, one
            after the other, to save memory; the gradient is that of the whole batch.
        precision: `bfloat16` runs the loss under autocast; weights stay as they are.
        average_decay: decay rate of an exponential moving average of the weights, which then
            replaces them when the training is validated and when it ends; None for no averaging.
        validate_every: steps between validations, where there is a validation.
        keep_best: whether the model ends with the weights of the best validation; otherwise with
            the last ones, and validations are only looks. Nothing overfits where every step has
            fresh data, and the best of noisy looks may be an early one.
        patience: validations in a row that may pass without a new best one before the training
            stops; None to go on to the end.
        seed: seed of the random numbers that model and loss take from torch's default generator.
    """

    num_steps: int
    learning_rate: float = 1e-3
    matrix_learning_rate: float | None = None
    warmup_steps: int = 100
    weight_decay: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    clip_norm: float | None = None
    accumulation_steps: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    average_decay: float | None = None
    validate_every: int = 100
    keep_best: bool = True
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_steps", "accumulation_steps", "validate_every"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("warmup_steps", self.warmup_steps, 0)
        if self.patience is not None:
            check_at_least("patience", self.patience, 1)
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision is {self.precision!r}; expected 'float32' or 'bfloat16'.")
        if self.average_decay is not None and not 0 < self.average_decay < 1:
            raise ValueError(
                f"average_decay is {self.average_decay!r}; expected a rate strictly between 0 and "
                f"1, or None."
            )


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """What happened in a training, from its first step on, resumed or not.

    Attributes:
        losses: `(steps,)`, the loss of the global batch of each step that was taken.
        validation_steps: `(validations,)`, how many steps had been taken at each validation.
        validation_losses: `(validations,)`, what `validate` returned there.
        best_step: the step whose weights the model has: the last one, or that of the best
            validation.
    """

    losses: FloatArray
    validation_steps: np.ndarray
    validation_losses: FloatArray
    best_step: int


def learning_rate_at(config: TrainingConfig, step: int) -> float:
    """The learning rate of a step: linear warm-up, then cosine decay towards zero.

    >>> config = TrainingConfig(num_steps=30, learning_rate=1.0, warmup_steps=10)
    >>> [round(learning_rate_at(config, step), 3) for step in (0, 9, 10, 20, 29)]
    [0.1, 1.0, 1.0, 0.5, 0.006]
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, config.num_steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
