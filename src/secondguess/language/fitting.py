"""`fit`: train a causal language model on pairs of responses.

`training.loop.train` does the training; here is what it needs to know of language: the rows, a data
source `batch_at(step)` that depends on nothing but seed and step, and the identity by which an
interrupted run is recognised. The loss is in `shared_prompts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from secondguess.language.collating import Batch, PairCollator
from secondguess.language.formatting import AnyRow, Layout, PairFormatter
from secondguess.language.model import PairLanguageModel, context_length, load_network
from secondguess.language.rows import Rows, Survey, surveyed
from secondguess.language.shared_prompts import pair_loss
from secondguess.training.loop import TrainingConfig, TrainingHistory, train


def fine_tuning(
    num_steps: int = 1000,
    *,
    learning_rate: float = 2e-5,
    warmup_steps: int | None = None,
    clip_norm: float = 1.0,
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
        others: further fields of `TrainingConfig`.
    """
    if warmup_steps is None:
        warmup_steps = min(1000, num_steps // 10)
    return TrainingConfig(
        num_steps=num_steps,
        learning_rate=learning_rate,
        warmup_steps=warmup_steps,
        clip_norm=clip_norm,
        **others,
    )


@dataclass(frozen=True, slots=True, eq=False)
class PairFit:
    """A model that was trained on pairs, and how it went.

    Attributes:
        model: the pair model, in evaluation mode.
        history: the losses, in nats per pair.
        num_rows: how many rows it was trained on.
        num_skipped: how many rows could not be used.
    """

    model: PairLanguageModel
    history: TrainingHistory
    num_rows: int
    num_skipped: int


def fit(
    rows: Sequence[AnyRow] | Path | str,
    model: Path | str | tuple[PreTrainedModel, PreTrainedTokenizerBase],
    *,
    response_length: int | None = None,
    layout: Layout = "positions",
    separator: str = "",
    batch_size: int = 32,
    config: TrainingConfig | None = None,
    skip_bad: bool = False,
    checkpoint_dir: Path | str | None = None,
    checkpoint_every: int = 500,
    progress: str | None = None,
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
        config: settings of the training; `fine_tuning()` by default.
        skip_bad: leave rows out that cannot be used, instead of raising.
        checkpoint_dir: where checkpoints are kept; nothing is kept without it.
        checkpoint_every: steps between checkpoints.
        progress: label of the progress bar; None for no bar.
        tell: called with a line about the rows before the training starts.
    """
    config = config or fine_tuning()
    network, tokenizer = model if isinstance(model, tuple) else load_network(model)
    survey = Survey(
        tokenizer,
        context_length=context_length(network),
        response_length=response_length,
        layout=layout,
        separator=separator,
    )
    usable, num_skipped = surveyed(rows, survey, skip_bad=skip_bad)
    pair_model = PairLanguageModel(network, survey.formatter())
    if PartialState().is_main_process:
        skipped = f", {num_skipped:,} skipped" if num_skipped else ""
        owned = pair_model.formatter.config.response_length
        tell(f"{len(usable):,} rows{skipped}; responses own {owned} positions")
    history = train(
        network,
        loss=pair_loss,
        batch_at=pair_batches(
            usable, pair_model.formatter, batch_size=batch_size, seed=config.seed
        ),
        config=config,
        checkpoint_dir=checkpoint_dir,
        checkpoint_every=checkpoint_every,
        identity={
            "rows": survey.digest,
            "batch_size": batch_size,
            **({} if checkpoint_dir is None else pair_model.identity),
        },
        progress=progress,
    )
    return PairFit(pair_model, history, len(usable), num_skipped)


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
