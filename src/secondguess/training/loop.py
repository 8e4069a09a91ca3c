"""The one training loop, which resumes by itself: settings, what it leaves behind, the loop.

It knows neither labels nor language. A data source is a function `batch_at(step)` that gives the
*global* batch of a step: tensors in any nesting of dicts, lists and tuples, whose first axis is the
batch axis (tensors without axes are shared by all rows). It must depend on nothing but the step, so
that a run that was stopped needs no memory of its data. A loss is a function `loss(model,
batch)` that returns the mean over the rows of its batch.

Everything else that makes the weights what they are stands in `TrainingConfig`: learning rates are
a function of the step, and torch's default generator (dropout) is seeded anew for each step, from
the seed, the step and the process. So the state of a run is its step, weights, optimizer
moments and history, and a run that was killed ends with the same bits as one that was not (on
the CPU in one process, with the same number of threads).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import recursively_apply, send_to_device
from torch import Tensor, nn

from secondguess._arrays import FloatArray, check_at_least
from secondguess.training.checkpoints import only_training_in, read_checkpoint, write_checkpoint
from secondguess.training.devices import seed_generators, training_device
from secondguess.training.progress import progress as shown_progress
from secondguess.training.signals import TrainingStopped, caught_signals
from secondguess.training.state import (
    Batch,
    Loss,
    ModelT,
    Objective,
    TrainingState,
    make_optimizers,
    weights_of,
)

_LOOK_EVERY = 10
"""Steps between two looks at the loss, and at other processes: both wait for the device."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything about a training run that changes its result.

    >>> TrainingConfig(num_steps=10_000, learning_rate=0.002).warmup_steps
    100

    Attributes:
        num_steps: optimizer steps.
        learning_rate: the highest learning rate, reached after the warm-up.
        matrix_learning_rate: the highest learning rate of Muon, which then trains the weight
            matrices inside the network, without weight decay, and AdamW the other parameters; None
            for AdamW alone. The model, or a module in it, must have a method `hidden_matrices()`
            that returns them.
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
        patience: successive validations that may pass without a new best one before the training
            stops; None to train to the end.
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
        for name in ("learning_rate", "matrix_learning_rate", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}; expected a positive number.")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay is {self.weight_decay!r}; expected 0 or more.")
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
    """What happened in a training run, from its first step on, resumed or not.

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


def train(
    model: ModelT,
    *,
    loss: Loss[ModelT],
    batch_at: Callable[[int], Batch],
    config: TrainingConfig,
    validate: Callable[[ModelT], float] | None = None,
    checkpoint_dir: Path | str | None = None,
    checkpoint_every: int = 1000,
    checkpoint_seconds: float = 300.0,
    identity: Mapping[str, Any] | None = None,
    progress: str | None = None,
    log_with: str | Sequence[Any] | None = None,
    log_dir: Path | str | None = None,
    device: str | torch.device | None = None,
) -> TrainingHistory:
    """Train a model in place; resume from the newest checkpoint where there is one.

    >>> model = torch.nn.Linear(1, 1)
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> history = train(
    ...     model,
    ...     loss=lambda model, batch: (model(batch) - (2 * batch + 1)).square().mean(),
    ...     batch_at=lambda step: inputs,
    ...     config=TrainingConfig(num_steps=200, learning_rate=0.1, warmup_steps=10),
    ... )
    >>> round(model.weight.item(), 2), round(model.bias.item(), 2)
    (2.0, 1.0)

    Under `accelerate launch` with several processes, each takes its slice of every batch and the
    gradients are averaged, which gives the losses of one process, to rounding (unless the model
    mixes the rows of a batch or draws random numbers).

    Args:
        model: any module; it ends in evaluation mode, on the device that Accelerate chose. One that
            has a method `clip_grad_norm_(max_norm)` clips its gradients itself.
        loss: mean loss of a batch; it may call the model in any way.
        batch_at: the global batch of a step.
        config: the optimizer's settings.
        validate: a loss on held-out data, lower is better, called in evaluation mode without
            gradients. The weights of the best validation are the ones the model ends with, unless
            `keep_best` is off.
        checkpoint_dir: directory of this run's checkpoints. Called again after a kill, `train`
            resumes; called again after the end, it only loads the final weights. Two runs
            cannot write to one directory at the same time. With it, SIGINT and SIGTERM end the
            training after the present step, with a checkpoint; a second signal ends it at once.
        checkpoint_every: most steps between two checkpoints. It does not change the result.
        checkpoint_seconds: most seconds between two checkpoints, but for the length of a step. It
            does not change the result.
        identity: anything else, in JSON types, that a checkpoint must share with this training to
            be used, such as the name and seed of the data.
        progress: what to call the training where its progress is shown; without it, it is not.
        log_with: trackers that Accelerate knows by name, or tracker objects; they are sent the loss
            and the learning rate every ten steps, and every validation.
        log_dir: where trackers that write files put them.
        device: where to train, in one process; by default the device that Accelerate chooses.

    Raises:
        BlockingIOError: another process is training in `checkpoint_dir`.
        FloatingPointError: training diverged; the last good checkpoint is kept.
        TrainingStopped: a signal asked for the end; the training can be resumed.
        ValueError: the checkpoint is of another training run, or the batch cannot be divided.
    """
    accelerator = Accelerator(
        log_with=log_with,  # pyright: ignore[reportArgumentType]
        project_dir=log_dir,
    )
    if log_with is not None:
        settings = {name: str(value) for name, value in asdict(config).items()}
        accelerator.init_trackers(progress or "training", settings)
    place = training_device(device, accelerator)
    objective = Objective(model.to(place), loss, config.precision)
    objective = accelerator.prepare(objective, device_placement=[False])
    state = _fresh_state(model, config, accelerator, validated=validate is not None)
    checkpoint_path = None if checkpoint_dir is None else Path(checkpoint_dir)
    identity = {
        "config": asdict(config),
        "weights": {name: list(tensor.shape) for name, tensor in weights_of(model).items()},
        **(identity or {}),
    }
    if checkpoint_path and (found := read_checkpoint(checkpoint_path, identity=identity)):
        state.restore(found)

    num_parts = accelerator.num_processes * config.accumulation_steps
    first_part = accelerator.process_index * config.accumulation_steps
    is_main = accelerator.is_main_process
    writes_to = checkpoint_path if is_main and not state.ended else None
    written_at = time.monotonic()
    with (
        only_training_in(writes_to) if writes_to else nullcontext(),
        caught_signals(enabled=checkpoint_path is not None) as caught,
        torch.random.fork_rng([place] if place.type == "cuda" else []),
        shown_progress(progress if is_main else None) as show,
    ):
        model.train()
        while not state.ended:
            # forward and backward, part by part
            seed_generators(_seed_of(config.seed, state.step, accelerator.process_index), place)
            batch = batch_at(state.step)
            for part in range(first_part, first_part + config.accumulation_steps):
                rows = send_to_device(_part(batch, part, num_parts), place)
                is_last = part == first_part + config.accumulation_steps - 1
                with nullcontext() if is_last else accelerator.no_sync(objective):
                    value = objective(rows) / config.accumulation_steps
                    accelerator.backward(value)
                state.losses[state.step] += value.detach()

            # step
            state.apply_gradients(learning_rate_at(config, state.step), config.clip_norm)

            # validation
            if validate is not None and (
                state.step % config.validate_every == 0 or state.step == config.num_steps
            ):
                state.record_validation(validate, config.patience)
                accelerator.log({"validation_loss": state.validations[-1][1]}, step=state.step)

            # progress
            watched = progress is not None or log_with is not None
            if watched and (state.step % _LOOK_EVERY == 0 or state.ended):
                recent = state.losses[max(0, state.step - _LOOK_EVERY) : state.step].mean().item()
                show(state.step, config.num_steps, f"loss {recent:.4f}")
                rate = learning_rate_at(config, state.step - 1)
                accelerator.log({"loss": recent, "learning_rate": rate}, step=state.step)

            # checkpoint: by steps, by time, at the end, and before a signal ends it
            signal, is_late = caught[0], time.monotonic() - written_at >= checkpoint_seconds
            if accelerator.num_processes > 1:
                signal, is_late = _agreed(signal, is_late, state.step, accelerator)
            if state.ended or state.step % checkpoint_every == 0 or is_late or signal:
                state.gather_losses()
                if writes_to:
                    write_checkpoint(writes_to, state.checkpoint(), identity=identity)
                accelerator.wait_for_everyone()
                written_at = time.monotonic()
            if signal and not state.ended:
                raise TrainingStopped(signal, state.step, checkpoint_path)

    state.finish()
    for tracker in accelerator.trackers:
        tracker.finish()
    return _history(state)


def _fresh_state(
    model: nn.Module, config: TrainingConfig, accelerator: Accelerator, *, validated: bool
) -> TrainingState:
    optimizers = make_optimizers(
        model,
        learning_rate=config.learning_rate,
        matrix_learning_rate=config.matrix_learning_rate,
        betas=config.betas,
        weight_decay=config.weight_decay,
    )
    return TrainingState(
        model,
        optimizers,
        accelerator,
        num_steps=config.num_steps,
        average_decay=config.average_decay,
        keep_best=validated and config.keep_best,
    )


def _history(state: TrainingState) -> TrainingHistory:
    return TrainingHistory(
        losses=state.losses[: state.step].double().cpu().numpy(),
        validation_steps=np.array([step for step, _ in state.validations], dtype=np.int64),
        validation_losses=np.array([value for _, value in state.validations]),
        best_step=state.best_step,
    )


def _part(batch: Batch, part: int, num_parts: int) -> Batch:
    def rows(tensor: Tensor) -> Tensor:
        if tensor.ndim == 0:
            return tensor
        size, rest = divmod(len(tensor), num_parts)
        if rest:
            raise ValueError(
                f"the batch has {len(tensor)} rows; expected a multiple of {num_parts}, the number "
                f"of processes times accumulation_steps."
            )
        return tensor[part * size : (part + 1) * size]

    return batch if num_parts == 1 else recursively_apply(rows, batch)


def _seed_of(seed: int, step: int, process: int) -> int:
    return int(np.random.SeedSequence((seed, step, process)).generate_state(1, np.uint64)[0])


def _agreed(signal: int, is_late: bool, step: int, accelerator: Accelerator) -> tuple[int, bool]:
    """The same answer on all processes: what one of them saw, at steps where all of them look."""
    if step % _LOOK_EVERY:
        return 0, False
    seen = accelerator.gather(torch.tensor([[signal, int(is_late)]], device=accelerator.device))
    assert isinstance(seen, Tensor)  # its type covers nested tensors too
    return int(seen[:, 0].max()), bool(seen[:, 1].any())
