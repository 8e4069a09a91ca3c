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

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import recursively_apply, send_to_device
from torch import Tensor

from secondguess.training.checkpoints import only_training_in, read_checkpoint, write_checkpoint
from secondguess.training.config import (
    TrainingConfig,
    TrainingHistory,
    learning_rate_at,
)
from secondguess.training.progress import training_progress
from secondguess.training.state import Batch, Loss, ModelT, TrainingState, weights_of

__all__ = ["TrainingConfig", "TrainingHistory", "learning_rate_at", "train"]


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
        checkpoint_dir: directory of this training's checkpoints. Called again after a kill, `train`
            goes on; called again after the end, it only loads the final weights. Two trainings
            cannot write to one directory at the same time.
        checkpoint_every: steps between checkpoints. It does not change the result.
        identity: anything else, in JSON types, that a checkpoint must share with this training to
            be used, such as the name and seed of the data.
        progress: what to call the training on a progress bar; without it there is none.

    Raises:
        BlockingIOError: another process is training in `checkpoint_dir`.
        FloatingPointError: a loss was not finite; the last good checkpoint is kept.
        ValueError: the checkpoint is of another training, or the batch cannot be divided.
    """
    accelerator = Accelerator()
    state = TrainingState(model, loss, config, accelerator, has_validation=validate is not None)
    checkpoint_path = None if checkpoint_dir is None else Path(checkpoint_dir)
    identity = {
        "config": asdict(config),
        "weights": {name: list(tensor.shape) for name, tensor in weights_of(model).items()},
        **(identity or {}),
    }
    if checkpoint_path and (found := read_checkpoint(checkpoint_path, identity=identity)):
        state.restore(found)

    if state.ended:
        return state.finish()

    num_parts = accelerator.num_processes * config.accumulation_steps
    first_part = accelerator.process_index * config.accumulation_steps
    writes_to = checkpoint_path if accelerator.is_main_process else None
    with (
        only_training_in(writes_to) if writes_to else nullcontext(),
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
                if writes_to:
                    write_checkpoint(writes_to, state.checkpoint(), identity=identity)
                accelerator.wait_for_everyone()
            show(state.step, state.losses)
    return state.finish()


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
