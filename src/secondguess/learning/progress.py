"""A progress bar for a training: steps, loss and time left, on the main process of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from accelerate import Accelerator
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor

_REFRESH = 10
"""Steps between two updates: reading the loss waits for the device."""


@contextmanager
def training_progress(
    label: str | None, num_steps: int, first_step: int, accelerator: Accelerator
) -> Iterator[Callable[[int, Tensor], None]]:
    """A function `show(step, losses)` that moves the bar; it does nothing where there is none."""
    if label is None or not accelerator.is_main_process:
        yield lambda step, losses: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task(label, total=num_steps, completed=first_step, loss="-")

        def show(step: int, losses: Tensor) -> None:
            if step % _REFRESH == 0 or step == num_steps:
                recent = losses[max(0, step - _REFRESH) : step].mean()
                bar.update(task, completed=step, loss=f"{recent.item():.4f}")

        yield show
