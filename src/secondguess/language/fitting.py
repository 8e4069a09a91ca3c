"""`fit`: train a causal language model on pairs of responses.

`tuning.tune` does the training; here is what it needs to know of pairs: the rows, a data source
`batch_at(step)` that depends on nothing but seed and step, and the identity by which an interrupted
run is recognised. The loss is in `shared_prompts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from secondguess.language.collating import Batch, PairCollator
from secondguess.language.formatting import AnyRow, Layout, PairFormatter
from secondguess.language.model import PairLanguageModel, context_length, load_network
from secondguess.language.rows import Rows, Survey, held_out_of
from secondguess.language.shared_prompts import pair_loss
from secondguess.language.tuning import tune
from secondguess.training.loop import TrainingConfig, TrainingHistory

FULL_LEARNING_RATE = 1e-4
LORA_LEARNING_RATE = 1e-3
"""Right for SmolLM2-135M; full fine-tuning of models of billions of weights wants a tenth."""


def fine_tuning(
    num_steps: int = 1000,
    *,
    learning_rate: float = FULL_LEARNING_RATE,
    warmup_steps: int | None = None,
    clip_norm: float = 1.0,
    validate_every: int | None = None,
    **others: Any,
) -> TrainingConfig:
    """Settings that suit a pretrained model.

    >>> fine_tuning(400).warmup_steps
    40

    Args:
        num_steps: optimizer steps.
        learning_rate: the highest learning rate.
        warmup_steps: by default a tenth of the steps, at most 1000.
        clip_norm: largest norm of the gradient.
        validate_every: by default a tenth of the steps.
        others: further fields of `TrainingConfig`.
    """
    if warmup_steps is None:
        warmup_steps = min(1000, num_steps // 10)
    return TrainingConfig(
        num_steps=num_steps,
        learning_rate=learning_rate,
        warmup_steps=warmup_steps,
        clip_norm=clip_norm,
        validate_every=validate_every or max(1, num_steps // 10),
        **others,
    )


def one_pass(num_rows: int, batch_size: int) -> int:
    """Steps for one pass over the rows, but at least 100 and at most 2,000.

    In one pass every pair is new to the model, so that it can learn how far it knows the answers,
    but not the answers by heart, which would make it sure of itself everywhere.

    >>> one_pass(4160, 32), one_pass(50, 32)
    (130, 100)
    """
    return min(2000, max(100, math.ceil(num_rows / batch_size)))


@dataclass(frozen=True, slots=True, eq=False)
class PairFit:
    """A model that was trained on pairs, and how it went.

    Attributes:
        model: the pair model, in evaluation mode.
        history: the losses, in nats per pair.
        num_rows: how many rows it was trained on.
        num_held_out: how many rows it was validated on.
        num_skipped: how many rows could not be used.
    """

    model: PairLanguageModel
    history: TrainingHistory
    num_rows: int
    num_held_out: int
    num_skipped: int


def fit(
    rows: Sequence[AnyRow] | Path | str,
    model: Path | str | tuple[PreTrainedModel, PreTrainedTokenizerBase],
    *,
    response_length: int | None = None,
    layout: Layout = "positions",
    separator: str = "",
    batch_size: int = 32,
    lora_rank: int | None = None,
    lora_layers: int | None = None,
    config: TrainingConfig | Callable[[int], TrainingConfig] | None = None,
    validation: Sequence[AnyRow] | Path | str | float | None = None,
    max_length: int | None = None,
    gradient_checkpointing: bool = False,
    skip_bad: bool = False,
    checkpoint_dir: Path | str | None = None,
    checkpoint_every: int = 500,
    progress: str | None = None,
    log_with: str | Sequence[Any] | None = None,
    log_dir: Path | str | None = None,
    tell: Callable[[str], object] = lambda line: None,
) -> PairFit:
    """Train a causal language model on pairs of responses, in place if a network is given.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> tiny = tiny_pair_model()
    >>> rows = [{"prompt": "flip", "responses": ["heads", "heads"]}] * 8
    >>> fitted = fit(
    ...     rows, (tiny.network, tiny.formatter.tokenizer), batch_size=8,
    ...     config=fine_tuning(20, learning_rate=0.01),
    ... )
    >>> bool(fitted.history.losses[-1] < fitted.history.losses[0])
    True
    >>> fitted.model.formatter.config.response_length
    2

    Killed and called again with the same arguments and a `checkpoint_dir`, it resumes and ends with
    the same weights. Under `accelerate launch`, processes share each batch.

    Args:
        rows: `{"prompt": ..., "responses": [...]}` with two or more independent responses, or a
            file of such rows as JSON lines, which is then not held in memory.
        model: folder, name or GGUF file of a causal model, or a network and its tokenizer.
        response_length: positions that a response owns; by default the longest in the data.
        layout: see `PairFormat`.
        separator: text before each response.
        batch_size: pairs per step, over all processes.
        lora_rank: train an adapter of this rank instead of the weights themselves (see `adapters`).
        lora_layers: how many of the last layers the adapter is for; all if None. Half of them cost
            two thirds of the time.
        config: settings of the training, or a function that makes them from the number of steps of
            `one_pass`; `fine_tuning` by default, with the learning rate for an adapter or for all
            weights.
        validation: rows or a file to validate on, or the share of `rows` to hold out for it, drawn
            at random; the model ends with the weights of the best validation, and stops early if
            `config.patience` says so.
        max_length: most tokens of a prompt and two responses; longer rows are bad rows. By default
            the model's context.
        gradient_checkpointing: compute activations twice instead of keeping them, which saves
            memory and costs about a third more time.
        skip_bad: leave rows out that cannot be used, instead of raising.
        checkpoint_dir: where checkpoints are kept; nothing is kept without it.
        checkpoint_every: steps between checkpoints.
        progress: label of the progress bar; None for no bar.
        log_with: trackers of Accelerate that the losses are sent to, by name (`tensorboard`,
            `wandb`, ...) or as objects.
        log_dir: where trackers that write files put them.
        tell: called with a line about the rows before the training starts.
    """
    if lora_layers is not None and lora_rank is None:
        raise ValueError(
            f"lora_layers is {lora_layers} without a lora_rank; give a rank to train an adapter."
        )
    network, tokenizer = model if isinstance(model, tuple) else load_network(model)
    room = context_length(network.config)
    survey = Survey(
        tokenizer,
        context_length=min(filter(None, (room, max_length)), default=None),
        response_length=response_length,
        layout=layout,
        separator=separator,
    )
    usable, held_out, num_skipped = held_out_of(rows, validation, survey, skip_bad=skip_bad)
    formatter = PairFormatter(tokenizer, survey.formatter().config, context_length=room)
    pair_model = PairLanguageModel(network, formatter)
    if PartialState().is_main_process:
        skipped = f", {num_skipped:,} skipped" if num_skipped else ""
        apart = f", {len(held_out):,} held out" if held_out else ""
        owned = formatter.config.response_length
        tell(f"{len(usable):,} rows{apart}{skipped}; responses own {owned} positions")
    if not isinstance(config, TrainingConfig):
        rate = FULL_LEARNING_RATE if lora_rank is None else LORA_LEARNING_RATE
        make_config = config or partial(fine_tuning, learning_rate=rate)
        config = make_config(one_pass(len(usable), batch_size))
    identity = {
        "rows": survey.digest,
        "held_out": len(held_out),
        "batch_size": batch_size,
        "lora_rank": lora_rank,
        **({} if lora_layers is None else {"lora_layers": lora_layers}),
        **({} if checkpoint_dir is None else pair_model.identity),
    }
    source = str(network.config.name_or_path if isinstance(model, tuple) else model)
    pair_model, history = tune(
        pair_model,
        batch_at=pair_batches(usable, formatter, batch_size=batch_size, seed=config.seed),
        config=config,
        base=source,
        lora_rank=lora_rank,
        lora_layers=lora_layers,
        validate=_validation(network, held_out, formatter, batch_size) if held_out else None,
        gradient_checkpointing=gradient_checkpointing,
        checkpoint_dir=checkpoint_dir,
        checkpoint_every=checkpoint_every,
        identity=identity,
        progress=progress,
        log_with=log_with,
        log_dir=log_dir,
    )
    return PairFit(pair_model, history, len(usable), len(held_out), num_skipped)


def _validation(
    network: PreTrainedModel, held_out: Rows, formatter: PairFormatter, batch_size: int
) -> Callable[[object], float]:
    """The mean loss of held-out pairs; which two responses of a row are its pair never changes."""
    collator = PairCollator(formatter)

    def validate(_: object) -> float:
        total = 0.0
        for start in range(0, len(held_out), batch_size):
            chosen = range(start, min(start + batch_size, len(held_out)))
            batch = collator.collate(
                [held_out[index] for index in chosen], np.random.default_rng(start)
            )
            on_device = {name: tensor.to(network.device) for name, tensor in batch.items()}
            total += len(chosen) * pair_loss(network, on_device).item()
        return total / len(held_out)

    return validate


def pair_batches(
    rows: Rows, formatter: PairFormatter, *, batch_size: int, seed: int
) -> Callable[[int], Batch]:
    """The batch of each step: every row once per epoch in a new order, two responses drawn anew.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> rows = [{"prompt": "flip", "responses": ["heads", "tails"]}] * 4
    >>> batch_at = pair_batches(rows, tiny_pair_model().formatter, batch_size=2, seed=0)
    >>> batch_at(7)["input_ids"].shape
    torch.Size([2, 6])
    """
    collator = PairCollator(formatter)
    epoch_and_order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    def batch_at(step: int) -> Batch:
        nonlocal epoch_and_order
        chosen = []
        for place in range(step * batch_size, (step + 1) * batch_size):
            epoch, index = divmod(place, len(rows))
            if epoch_and_order[0] != epoch:
                order = np.random.default_rng([seed, 0, epoch]).permutation(len(rows))
                epoch_and_order = (epoch, order)
            chosen.append(rows[int(epoch_and_order[1][index])])
        return collator.collate(chosen, np.random.default_rng([seed, 1, step]))

    return batch_at
