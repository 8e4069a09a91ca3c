"""The state of a training between two steps: what a step changes and a checkpoint holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from secondguess.training.checkpoints import Checkpoint
from secondguess.training.muon import Muon

ModelT = TypeVar("ModelT", bound=nn.Module)
Batch = Any
Loss = Callable[[ModelT, Batch], Tensor]
Optimizers = list[tuple[torch.optim.Optimizer, float]]


class TrainingState:
    """What a training remembers between two steps, and what a checkpoint therefore holds.

    Args:
        model: what is trained.
        optimizers: each with its learning rate as a multiple of the one that a step is given.
        accelerator: of this process.
        num_steps: steps in all.
        average_decay: of the moving average of the weights; None for none.
        keep_best: whether to keep the weights of the best validation.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Optimizers,
        accelerator: Accelerator,
        *,
        num_steps: int,
        average_decay: float | None,
        keep_best: bool,
    ) -> None:
        self.device = next(model.parameters()).device
        self.model, self.optimizers, self.accelerator = model, optimizers, accelerator
        self.num_steps, self.average_decay, self.keep_best = num_steps, average_decay, keep_best
        self.weights = weights_of(model)
        self.parameters = _trained(self.weights)
        self.step = 0
        self.stopped = False
        self.losses = torch.zeros(num_steps, device=self.device)
        self.average = _copy(self.parameters) if average_decay is not None else {}
        self.best = _copy(self.weights) if keep_best else {}
        self.best_step = 0
        self.validations: list[tuple[int, float]] = []

    @property
    def ended(self) -> bool:
        """Whether the last step was taken, or validation has called for the end."""
        return self.stopped or self.step == self.num_steps

    def apply_gradients(self, learning_rate: float, clip_norm: float | None) -> None:
        """Take a step: clip, update the weights, and their average."""
        if clip_norm is not None:
            clip = getattr(self.model, "clip_grad_norm_", None)
            if clip is not None:
                clip(clip_norm)
            else:
                nn.utils.clip_grad_norm_(self.parameters.values(), clip_norm)
        for optimizer, scale in self.optimizers:
            optimizer.param_groups[0]["lr"] = learning_rate * scale
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        if self.average_decay is not None:
            # Early on the average forgets faster, or the initial weights would weigh it down.
            decay = min(self.average_decay, (1 + self.step) / (10 + self.step))
            with torch.no_grad():
                for name, average in self.average.items():
                    average.lerp_(self.parameters[name], 1 - decay)

    @torch.no_grad()
    def record_validation(self, validate: Callable[[Any], float], patience: int | None) -> None:
        """Validate the weights that the training would end with here, and stop out of patience."""
        trained = _copy(self.parameters) if self.average else {}
        _assign(self.weights, self.average)
        self.model.eval()
        # The mean over processes, so that all of them take the same decision.
        local = torch.tensor(float(validate(self.model)), device=self.device)
        value = self._mean_over_processes(local).item()
        if not math.isfinite(value):
            raise FloatingPointError(
                f"training diverged: the validation loss is {value} after step "
                f"{self.step}; lower the learning rate, clip the gradient (clip_norm), or look at "
                f"the held-out data."
            )
        if all(value < earlier for _, earlier in self.validations):
            self.best_step = self.step
            self.best = _copy(self.weights) if self.keep_best else {}
        self.validations.append((self.step, value))
        _assign(self.weights, trained)
        self.model.train()
        taken = [step for step, _ in self.validations]
        self.stopped = patience is not None and sum(t > self.best_step for t in taken) >= patience

    def gather_losses(self) -> None:
        """Average the losses over all processes, and fail if one is not finite."""
        # Each process adds up its own slice; what earlier calls averaged is equal everywhere.
        self.losses = self._mean_over_processes(self.losses)
        finite = self.losses[: self.step].isfinite()
        if not finite.all():
            raise FloatingPointError(
                f"training diverged: the loss is {self.losses[: self.step][~finite][0].item()} "
                f"at step {int((~finite).nonzero()[0])}; lower the learning rate, clip the "
                f"gradient (clip_norm), or look at the data. No checkpoint was written after it."
            )

    def _mean_over_processes(self, tensor: Tensor) -> Tensor:
        mean = self.accelerator.reduce(tensor, "mean")
        assert isinstance(mean, Tensor)  # its type covers nested tensors too
        return mean

    def checkpoint(self) -> Checkpoint:
        """Everything that a training needs to resume from here."""
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
        """Resume from a checkpoint."""
        groups: dict[str, dict[str, Tensor]] = {}
        for name, tensor in checkpoint.tensors.items():
            group, _, rest = name.partition("/")
            groups.setdefault(group, {})[rest] = tensor.to(self.device)
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

    def finish(self) -> None:
        """Give the model its final weights."""
        if self.best:
            _assign(self.weights, self.best)
        else:
            _assign(self.weights, self.average)
            self.best_step = self.step
        self.model.eval()


class Objective(nn.Module):
    """The loss as a module.

    Under several processes, the wrapper that averages gradients then sees one forward call,
    whatever the loss does with the model.
    """

    def __init__(self, model: nn.Module, loss: Loss, precision: str) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        self.precision = precision

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        if self.precision != "bfloat16":
            return self.loss(self.model, batch)
        with torch.autocast(next(self.model.parameters()).device.type, torch.bfloat16):
            return self.loss(self.model, batch)


def make_optimizers(
    model: nn.Module,
    *,
    learning_rate: float,
    matrix_learning_rate: float | None,
    betas: tuple[float, float],
    weight_decay: float,
) -> Optimizers:
    """AdamW, beside Muon for the hidden matrices where these have a learning rate of their own."""
    optimizers: Optimizers = []
    of_muon: set[int] = set()
    if matrix_learning_rate is not None:
        sources: list[Any] = [each for each in model.modules() if hasattr(each, "hidden_matrices")]
        if not sources:
            raise ValueError(
                f"matrix_learning_rate is {matrix_learning_rate!r}, and {type(model).__name__} has "
                f"no module with a method hidden_matrices() that says which weights it is for; "
                f"expected None or a model that has one."
            )
        matrices = {id(each): each for source in sources for each in source.hidden_matrices()}
        of_muon = {key for key, each in matrices.items() if each.requires_grad}
        muon = Muon([matrices[key] for key in matrices if key in of_muon])
        optimizers.append((muon, matrix_learning_rate / learning_rate))
    adamw = torch.optim.AdamW(
        [each for each in _trained(weights_of(model)).values() if id(each) not in of_muon],
        betas=betas,
        weight_decay=weight_decay,
        fused=next(model.parameters()).device.type in ("cpu", "cuda"),
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


def _trained(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight for name, weight in weights.items() if weight.requires_grad}


def _copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@torch.no_grad()
def _assign(weights: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        weights[name].copy_(value)
