"""How far a training is: a bar on the main process of a terminal, or whoever asked to be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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

_told: ContextVar[Callable[[int, int], None] | None] = ContextVar("who is told", default=None)


@contextmanager
def steps_told_to(listener: Callable[[int, int], None]) -> Iterator[None]:
    """Inside, trainings with a label call `listener(steps_taken, num_steps)` and draw no bar."""
    token = _told.set(listener)
    try:
        yield
    finally:
        _told.reset(token)


@contextmanager
def training_progress(
    label: str | None, num_steps: int, first_step: int, accelerator: Accelerator
) -> Iterator[Callable[[int, Tensor], None]]:
    """A function `show(step, losses)` that moves the bar; it does nothing where there is none."""
    if label is None or not accelerator.is_main_process:
        yield lambda step, losses: None
        return
    if listener := _told.get():
        yield lambda step, losses: listener(step, num_steps) if step % _REFRESH == 0 else None
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
