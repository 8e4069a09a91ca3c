"""`secondguess fit`: train a causal language model on pairs of responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secondguess._files import check_output, only_writer_of, private_folder, remove_folder
from secondguess.cli.errors import OverwriteOption, say, user_errors
from secondguess.cli.rows import SkipOption, quiet_state

if TYPE_CHECKING:
    from accelerate import PartialState

    from secondguess.training.loop import TrainingHistory

_SAVING = "saving"
"""A file among the checkpoints that says that the output is being written, or is there."""


class LayoutName(StrEnum):
    """How y2 gets a constant start."""

    positions = "positions"
    padded = "padded"


class PrecisionName(StrEnum):
    """What training computes in."""

    float32 = "float32"
    bfloat16 = "bfloat16"


def fit(
    data: Annotated[
        Path, typer.Argument(help='JSON lines {"prompt": "...", "responses": ["...", "..."]}.')
    ],
    model: Annotated[str, typer.Option(help="Folder, name or GGUF file of a causal model.")],
    out: Annotated[Path, typer.Option(help="Folder for the pair model.")],
    response_length: Annotated[
        int | None,
        typer.Option(min=2, help="Positions of a response. Default: the longest in the data."),
    ] = None,
    layout: Annotated[
        LayoutName, typer.Option(help="How y2 gets a constant start.")
    ] = LayoutName.positions,
    separator: Annotated[str, typer.Option(help="Text before each response.")] = "",
    max_length: Annotated[
        int | None,
        typer.Option(
            min=5, help="Most tokens of a prompt and two responses. Default: the model's."
        ),
    ] = None,
    validation_file: Annotated[
        Path | None, typer.Option(help="Rows to validate on, as in the data.")
    ] = None,
    validation_share: Annotated[
        float | None, typer.Option(help="Share of the rows to hold out and validate on.")
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after so many validations without a better one."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Optimizer steps. Default: one pass, from 100 to 2,000."),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Pairs per step, over all processes.")
    ] = 32,
    lora_rank: Annotated[
        int | None,
        typer.Option(min=1, help="Train an adapter of this rank, not the whole model (PEFT)."),
    ] = None,
    lora_layers: Annotated[
        int | None,
        typer.Option(help="Give the adapter to this many of the last layers only.", min=1),
    ] = None,
    accumulation_steps: Annotated[
        int, typer.Option(min=1, help="Parts of a batch, one after the other, to save memory.")
    ] = 1,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Highest learning rate. Default: 1e-4, or 1e-3 with --lora-rank."),
    ] = None,
    warmup_steps: Annotated[
        int | None, typer.Option(min=0, help="Default: a tenth of the steps, at most 1000.")
    ] = None,
    weight_decay: Annotated[float, typer.Option(help="Weight decay of AdamW.")] = 1e-4,
    clip_norm: Annotated[float, typer.Option(help="Largest norm of the gradient.")] = 1.0,
    precision: Annotated[
        PrecisionName, typer.Option(help="bfloat16 computes under autocast.")
    ] = PrecisionName.float32,
    gradient_checkpointing: Annotated[
        bool,
        typer.Option("--gradient-checkpointing", help="Less memory, about a third more time."),
    ] = False,
    log_with: Annotated[
        str | None,
        typer.Option(help="Tracker of Accelerate: tensorboard, wandb, ... (files in OUT.logs)."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Order of the rows and draws of the pairs.")
    ] = 0,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 500,
    skip_bad: SkipOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Train a causal language model on pairs of responses.

    A line of the data has a prompt (text, or a list of chat messages) and two or more independent
    responses to it. Killed and started again with the same options, it resumes from its last
    checkpoint (in OUT.checkpoints). For several processes, run it under
    'accelerate launch -m secondguess.cli fit ...'.
    """
    with user_errors():
        from secondguess.language import fitting

        state = quiet_state()
        inputs = [data, model, *([validation_file] if validation_file else [])]
        if validation_file is not None and validation_share is not None:
            raise ValueError("expected --validation-file or --validation-share, not both.")
        if patience is not None and validation_file is None and validation_share is None:
            raise ValueError("--patience needs --validation-file or --validation-share.")
        if learning_rate is None:
            learning_rate = (
                fitting.FULL_LEARNING_RATE if lora_rank is None else fitting.LORA_LEARNING_RATE
            )
        settings = {
            "learning_rate": learning_rate,
            "warmup_steps": warmup_steps,
            "weight_decay": weight_decay,
            "clip_norm": clip_norm,
            "accumulation_steps": accumulation_steps,
            "precision": precision.value,
            "patience": patience,
            "seed": seed,
        }
        with _only_fit_of(out, inputs, state, overwrite=overwrite) as checkpoints:
            fitted = fitting.fit(
                data,
                model,
                response_length=response_length,
                layout=layout.value,
                separator=separator,
                batch_size=batch_size,
                lora_rank=lora_rank,
                lora_layers=lora_layers,
                config=lambda one_pass: fitting.fine_tuning(steps or one_pass, **settings),
                validation=validation_file or validation_share,
                max_length=max_length,
                gradient_checkpointing=gradient_checkpointing,
                skip_bad=skip_bad,
                checkpoint_dir=checkpoints,
                checkpoint_every=checkpoint_every,
                progress="fit",
                log_with=log_with,
                log_dir=None if log_with is None else out.with_name(out.name + ".logs"),
                tell=say,
            )
            if state.is_main_process:
                (checkpoints / _SAVING).touch()
                fitted.model.save(out)
                remove_folder(checkpoints)
            state.wait_for_everyone()
        if state.is_main_process:
            found = _found(fitted.history)
            say(f"wrote {out}: {found}; next: secondguess check {out} HELD_OUT_FILE")


@contextmanager
def _only_fit_of(
    out: Path, inputs: list[Path | str], state: PartialState, *, overwrite: bool
) -> Iterator[Path]:
    """The folder of checkpoints, as the only one to write `out`; gone again if none was written."""
    checkpoints = out.parent / f"{out.name}.checkpoints"
    with only_writer_of(out) if state.is_main_process else nullcontext():
        # Killed between its output and its last checkpoint's end, a fit may write the same again.
        overwrite = overwrite or (checkpoints / _SAVING).exists()
        check_output(out, inputs, overwrite=overwrite, folder=True)
        private_folder(checkpoints)
        try:
            yield checkpoints
        finally:
            with suppress(OSError):
                checkpoints.rmdir()


def _found(history: TrainingHistory) -> str:
    found = f"{history.losses[-max(1, len(history.losses) // 10) :].mean():.4f}"
    found += " nats per pair over the last steps"
    if len(history.validation_losses):
        best = history.validation_losses.min()
        found += f", {best:.4f} on rows held out at step {history.best_step:,}"
    return found
