"""The one training loop of the project: AdamW, linear warm-up, cosine decay, on Accelerate.

A data source is a function `batch_at(step)` that gives the *global* batch of a step: tensors in any
nesting of dicts, lists and tuples, whose first axis is the batch axis (tensors without axes are
shared by all rows). It must depend on nothing but the step, so that a training that was stopped
needs no memory of its data. A loss is a function `loss(model, batch)` that returns the mean over
the rows of its batch.

Everything else that makes the weights what they are stands in `TrainingConfig`: learning rates are
a function of the step, and torch's default generator (dropout) is seeded anew for each step, from
the seed, the step and the process. So the state of a training is its step, weights, optimizer
moments and history, and a training that was killed ends with the same bits as one that was not (on
the CPU in one process, with the same number of threads).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import recursively_apply, send_to_device
from torch import Tensor, nn

from secondguess.learning.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from secondguess.learning.progress import training_progress
from secondguess.theory.checks import FloatArray, check_at_least

ModelT = TypeVar("ModelT", bound=nn.Module)
Batch = Any
Loss = Callable[[ModelT, Batch], Tensor]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything about a training that changes its result.

    >>> TrainingConfig(num_steps=10_000, learning_rate=0.002).warmup_steps
    100

    Attributes:
        num_steps: optimizer steps.
        learning_rate: the highest learning rate, reached after the warm-up.
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
        patience: validations in a row that may pass without a new best one before the training
            stops; None to go on to the end.
        seed: seed of the random numbers that model and loss take from torch's default generator.
    """

    num_steps: int
    learning_rate: float = 1e-3
    warmup_steps: int = 100
    weight_decay: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    clip_norm: float | None = None
    accumulation_steps: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    average_decay: float | None = None
    validate_every: int = 100
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


def train(
    model: ModelT,
    *,
    loss: Loss[ModelT],
    batch_at: Callable[[int], Batch],
    config: TrainingConfig,
    validate: Callable[[ModelT], float] | None = None,
    checkpoint_dir: Path | str | None = None,
    checkpoint_every: int = 1000,
    identity: Mapping[str, Any] | None = None,
    progress: str | None = None,
) -> TrainingHistory:
    """Train a model in place; go on from the newest checkpoint where there is one.

    >>> model = nn.Linear(1, 1)
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
            gradients. The weights of the best validation are the ones the model ends with.
        checkpoint_dir: directory of this training's checkpoints. Called again after a kill, `train`
            goes on; called again after the end, it only loads the final weights.
        checkpoint_every: steps between checkpoints. It does not change the result.
        identity: anything else, in JSON types, that a checkpoint must share with this training to
            be used, such as the name and seed of the data.
        progress: what to call the training on a progress bar; without it there is none.

    Raises:
        FloatingPointError: a loss was not finite; the last good checkpoint is kept.
        ValueError: the checkpoint is of another training, or the batch cannot be divided.
    """
    accelerator = Accelerator()
    state = _TrainingState(model, loss, config, accelerator, has_validation=validate is not None)
    checkpoint_path = None if checkpoint_dir is None else Path(checkpoint_dir)
    identity = {
        "config": asdict(config),
        "weights": {name: list(tensor.shape) for name, tensor in _weights(model).items()},
        **(identity or {}),
    }
    if checkpoint_path and (found := read_checkpoint(checkpoint_path, identity=identity)):
        state.restore(found)

    if state.ended:
        return state.finish()

    num_parts = accelerator.num_processes * config.accumulation_steps
    first_part = accelerator.process_index * config.accumulation_steps
    with (
        torch.random.fork_rng([accelerator.device] if accelerator.device.type == "cuda" else []),
        training_progress(progress, config.num_steps, state.step, accelerator) as show,
    ):
        while not state.ended:
            # forward and backward, part by part
            model.train()
            torch.manual_seed(_seed_of(config.seed, state.step, accelerator.process_index))
            batch = batch_at(state.step)
            for part in range(first_part, first_part + config.accumulation_steps):
                rows = send_to_device(_part(batch, part, num_parts), accelerator.device)
                is_last = part == first_part + config.accumulation_steps - 1
                with nullcontext() if is_last else accelerator.no_sync(state.objective):
                    value = state.objective(rows) / config.accumulation_steps
                    accelerator.backward(value)
                state.losses[state.step] += value.detach()

            # step
            state.apply_gradients()

            # validation
            if validate is not None and (
                state.step % config.validate_every == 0 or state.step == config.num_steps
            ):
                state.record_validation(validate)

            # checkpoint
            if state.ended or state.step % checkpoint_every == 0:
                state.gather_losses()
                if checkpoint_path and accelerator.is_main_process:
                    write_checkpoint(checkpoint_path, state.checkpoint(), identity=identity)
                accelerator.wait_for_everyone()
            show(state.step, state.losses)
    return state.finish()


class _TrainingState:
    """What a training remembers between two steps, and what a checkpoint therefore holds."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        config: TrainingConfig,
        accelerator: Accelerator,
        *,
        has_validation: bool,
    ) -> None:
        self.model, self.config, self.accelerator = model, config, accelerator
        self.objective = accelerator.prepare(_Objective(model, loss, config.precision))
        self.weights = _weights(model)
        self.parameters = {
            name: weight for name, weight in self.weights.items() if weight.requires_grad
        }
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(),
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=accelerator.device.type in ("cpu", "cuda"),
        )
        self.step = 0
        self.stopped = False
        self.losses = torch.zeros(config.num_steps, device=accelerator.device)
        self.average = _copy(self.parameters) if config.average_decay is not None else {}
        self.best = _copy(self.weights) if has_validation else {}
        self.best_step = 0
        self.validations: list[tuple[int, float]] = []

    @property
    def ended(self) -> bool:
        return self.stopped or self.step == self.config.num_steps

    def apply_gradients(self) -> None:
        config = self.config
        if config.clip_norm is not None:
            clip = getattr(self.model, "clip_grad_norm_", None)
            if clip is not None:
                clip(config.clip_norm)
            else:
                nn.utils.clip_grad_norm_(self.parameters.values(), config.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate_at(config, self.step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        if config.average_decay is not None:
            # Early on the average forgets faster, or the initial weights would weigh it down.
            decay = min(config.average_decay, (1 + self.step) / (10 + self.step))
            with torch.no_grad():
                for name, average in self.average.items():
                    average.lerp_(self.parameters[name], 1 - decay)

    @torch.no_grad()
    def record_validation(self, validate: Callable[[Any], float]) -> None:
        trained = _copy(self.parameters) if self.average else {}
        _assign(self.weights, self.average)
        self.model.eval()
        # The mean over processes, so that all of them take the same decision.
        local = torch.tensor(float(validate(self.model)), device=self.accelerator.device)
        value = self._mean_over_processes(local).item()
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the validation loss is {value} after step {self.step}; lower the learning rate, "
                f"clip the gradient (clip_norm), or look at the held-out data."
            )
        if all(value < earlier for _, earlier in self.validations):
            self.best, self.best_step = _copy(self.weights), self.step
        self.validations.append((self.step, value))
        _assign(self.weights, trained)
        taken = [step for step, _ in self.validations]
        patience = self.config.patience
        self.stopped = patience is not None and sum(t > self.best_step for t in taken) >= patience

    def gather_losses(self) -> None:
        # Each process adds up its own slice; what earlier calls averaged is equal everywhere.
        self.losses = self._mean_over_processes(self.losses)
        finite = self.losses[: self.step].isfinite()
        if not finite.all():
            raise FloatingPointError(
                f"the loss is {self.losses[: self.step][~finite][0].item()} at step "
                f"{int((~finite).nonzero()[0])}; lower the learning rate, clip the gradient "
                f"(clip_norm), or look at the data. No checkpoint was written after it."
            )

    def _mean_over_processes(self, tensor: Tensor) -> Tensor:
        mean = self.accelerator.reduce(tensor, "mean")
        assert isinstance(mean, Tensor)  # its type covers nested tensors too
        return mean

    def checkpoint(self) -> Checkpoint:
        moments = {
            f"{key}.{name}": value
            for name, parameter in self.parameters.items()
            for key, value in self.optimizer.state[parameter].items()
        }
        groups = {
            "weights": self.weights,
            "optimizer": moments,
            "average": self.average,
            "best": self.best,
            "history": {"losses": self.losses},
        }
        return Checkpoint(
            step=self.step,
            tensors={
                f"{group}/{name}": tensor
                for group, tensors in groups.items()
                for name, tensor in tensors.items()
            },
            state={
                "stopped": self.stopped,
                "best_step": self.best_step,
                "validations": self.validations,
            },
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        groups: dict[str, dict[str, Tensor]] = {}
        for name, tensor in checkpoint.tensors.items():
            group, _, rest = name.partition("/")
            groups.setdefault(group, {})[rest] = tensor.to(self.accelerator.device)
        self.step = checkpoint.step
        self.losses = groups["history"]["losses"]
        self.average = groups.get("average", {})
        self.best = groups.get("best", {})
        self.stopped = checkpoint.state["stopped"]
        self.best_step = checkpoint.state["best_step"]
        self.validations = [(step, value) for step, value in checkpoint.state["validations"]]
        _assign(self.weights, groups["weights"])
        for key_and_name, value in groups["optimizer"].items():
            key, _, name = key_and_name.partition(".")
            self.optimizer.state[self.parameters[name]][key] = value

    def finish(self) -> TrainingHistory:
        if self.best:
            _assign(self.weights, self.best)
        else:
            _assign(self.weights, self.average)
            self.best_step = self.step
        self.model.eval()
        return TrainingHistory(
            losses=self.losses[: self.step].double().cpu().numpy(),
            validation_steps=np.array([step for step, _ in self.validations], dtype=np.int64),
            validation_losses=np.array([value for _, value in self.validations]),
            best_step=self.best_step,
        )


class _Objective(nn.Module):
    """The loss as a module.

    Under several processes, the wrapper that averages gradients then sees one forward call,
    whatever the loss does with the model.
    """

    def __init__(self, model: nn.Module, loss: Loss, precision: str) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        self.precision = precision

    def forward(self, batch: Batch) -> Tensor:
        device = next(self.model.parameters()).device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.precision == "bfloat16"):
            return self.loss(self.model, batch)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, those that are tied under their first name only."""
    weights: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            weights[name] = tensor
    return weights


def _copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@torch.no_grad()
def _assign(weights: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        weights[name].copy_(value)


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
