"""The state of a training between two steps: what a step changes and a checkpoint holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from secondguess.training.checkpoints import Checkpoint
from secondguess.training.config import (
    TrainingConfig,
    TrainingHistory,
    learning_rate_at,
)
from secondguess.training.muon import Muon

ModelT = TypeVar("ModelT", bound=nn.Module)
Batch = Any
Loss = Callable[[ModelT, Batch], Tensor]


class TrainingState:
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
        self.weights = weights_of(model)
        self.parameters = {
            name: weight for name, weight in self.weights.items() if weight.requires_grad
        }
        self.optimizers = _optimizers(model, self.parameters, config, accelerator.device)
        self.step = 0
        self.stopped = False
        self.losses = torch.zeros(config.num_steps, device=accelerator.device)
        self.average = _copy(self.parameters) if config.average_decay is not None else {}
        self.best = _copy(self.weights) if has_validation and config.keep_best else {}
        self.best_step = 0
        self.validations: list[tuple[int, float]] = []

    @property
    def ended(self) -> bool:
        """Whether the last step was taken, or validation has called for the end."""
        return self.stopped or self.step == self.config.num_steps

    def apply_gradients(self) -> None:
        """Take a step: clip, update the weights, and their average."""
        config = self.config
        if config.clip_norm is not None:
            clip = getattr(self.model, "clip_grad_norm_", None)
            if clip is not None:
                clip(config.clip_norm)
            else:
                nn.utils.clip_grad_norm_(self.parameters.values(), config.clip_norm)
        learning_rate = learning_rate_at(config, self.step)
        for optimizer, scale in self.optimizers:
            optimizer.param_groups[0]["lr"] = learning_rate * scale
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        if config.average_decay is not None:
            # Early on the average forgets faster, or the initial weights would weigh it down.
            decay = min(config.average_decay, (1 + self.step) / (10 + self.step))
            with torch.no_grad():
                for name, average in self.average.items():
                    average.lerp_(self.parameters[name], 1 - decay)

    @torch.no_grad()
    def record_validation(self, validate: Callable[[Any], float]) -> None:
        """Validate the weights that the training would end with here."""
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
            self.best_step = self.step
            self.best = _copy(self.weights) if self.config.keep_best else {}
        self.validations.append((self.step, value))
        _assign(self.weights, trained)
        taken = [step for step, _ in self.validations]
        patience = self.config.patience
        self.stopped = patience is not None and sum(t > self.best_step for t in taken) >= patience

    def gather_losses(self) -> None:
        """Average the losses over all processes, and fail if one is not finite."""
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
        """Everything that a training needs to go on from here."""
        moments = {
            f"{key}.{name}": value
            for name, parameter in self.parameters.items()
            for optimizer, _ in self.optimizers
            for key, value in optimizer.state.get(parameter, {}).items()
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
        """Go on from a checkpoint."""
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
            self._optimizer_of(name).state[self.parameters[name]][key] = value

    def _optimizer_of(self, name: str) -> torch.optim.Optimizer:
        parameter = self.parameters[name]
        return next(
            optimizer
            for optimizer, _ in self.optimizers
            if any(parameter is each for each in optimizer.param_groups[0]["params"])
        )

    def finish(self) -> TrainingHistory:
        """Give the model its final weights."""
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


def _optimizers(
    model: nn.Module, parameters: Mapping[str, Tensor], config: TrainingConfig, device: torch.device
) -> list[tuple[torch.optim.Optimizer, float]]:
    """The optimizers of a training, each with its learning rate as a multiple of the config's."""
    matrix_learning_rate = config.matrix_learning_rate
    optimizers: list[tuple[torch.optim.Optimizer, float]] = []
    of_muon: set[int] = set()
    if matrix_learning_rate is not None:
        hidden_matrices = getattr(model, "hidden_matrices", None)
        if hidden_matrices is None:
            raise ValueError(
                f"matrix_learning_rate is {matrix_learning_rate!r}, and {type(model).__name__} has "
                f"no method hidden_matrices() that says which weights it is for; expected None or "
                f"a model that has it."
            )
        matrices = [each for each in hidden_matrices() if each.requires_grad]
        of_muon = {id(each) for each in matrices}
        optimizers.append((Muon(matrices), matrix_learning_rate / config.learning_rate))
    adamw = torch.optim.AdamW(
        [each for each in parameters.values() if id(each) not in of_muon],
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=device.type in ("cpu", "cuda"),
    )
    return [*optimizers, (adamw, 1.0)]


def weights_of(model: nn.Module) -> dict[str, Tensor]:
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
