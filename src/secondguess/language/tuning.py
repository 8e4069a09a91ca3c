"""Train the network of a pair model on batches, whole or by an adapter: what every training shares.

Where batches come from, and what their loss is, is the caller's: `fitting` draws pairs of given
responses, and an experiment may know more of its respondents than two draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from secondguess.language.adapters import Adapter
from secondguess.language.collating import Batch
from secondguess.language.model import PairLanguageModel
from secondguess.language.shared_prompts import pair_loss
from secondguess.training.loop import TrainingConfig, TrainingHistory, train


def tune(
    model: PairLanguageModel,
    *,
    batch_at: Callable[[int], Batch],
    config: TrainingConfig,
    base: Path | str,
    loss: Callable[[PreTrainedModel, Batch], Tensor] = pair_loss,
    lora_rank: int | None = None,
    lora_layers: int | None = None,
    validate: Callable[[object], float] | None = None,
    gradient_checkpointing: bool = False,
    **options: Any,
) -> tuple[PairLanguageModel, TrainingHistory]:
    """The model after training, and how it went; its network is trained in place.

    >>> from secondguess.language.collating import PairCollator
    >>> from secondguess.language.examples import tiny_pair_model
    >>> tiny = tiny_pair_model()
    >>> batch = PairCollator(tiny.formatter)([{"prompt": "flip", "responses": ["heads", "heads"]}])
    >>> _, history = tune(
    ...     tiny, batch_at=lambda step: batch, base="tiny",
    ...     config=TrainingConfig(num_steps=20, learning_rate=0.01, warmup_steps=2),
    ... )
    >>> bool(history.losses[-1] < history.losses[0])
    True

    Args:
        model: a pair model.
        batch_at: the batch of a step, which depends on nothing but the step.
        config: settings of the training.
        base: where the network is from, to be written beside an adapter.
        loss: the mean loss of a batch; it may be given more than `PairCollator` puts in.
        lora_rank: train an adapter of this rank instead of the weights themselves (see `adapters`).
        lora_layers: how many of the last layers the adapter is for; all if None.
        validate: a loss on held-out data.
        gradient_checkpointing: compute activations twice instead of keeping them.
        options: of `training.loop.train`.
    """
    network, adapter = model.network, None
    if lora_rank is not None:
        adapter = Adapter(
            network, lora_rank, base=str(base), seed=config.seed, num_layers=lora_layers
        )
    if gradient_checkpointing:
        network.gradient_checkpointing_enable({"use_reentrant": False})
    history = train(
        network if adapter is None else adapter,
        loss=lambda _, batch: loss(network, batch),  # an adapter is inside the network
        batch_at=batch_at,
        config=config,
        validate=validate,
        **options,
    )
    if gradient_checkpointing:
        network.gradient_checkpointing_disable()
    if adapter is None:
        return model, history
    saved = adapter.saved()
    return replace(model, network=adapter.merge(), adapter=saved), history
