"""Pairs for the training loop: rows of a file, the batch of a step, and the loss of a pair.

`training.loop.train` does the training; here is what it needs to know of language: a data
source `batch_at(step)` that depends on nothing but seed and step, and -log p(y1, y2|x).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from secondguess.language.formatting import (
    NOT_SCORED,
    Batch,
    EncodedRow,
    FormatError,
    PairCollator,
    PairFormatter,
)
from secondguess.language.jsonl import BadLineError, parse_line


class Rows(Protocol):
    """Rows by number: a list, or a file."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Mapping[str, Any] | EncodedRow: ...


def pair_batches(
    rows: Rows, formatter: PairFormatter, *, batch_size: int, seed: int
) -> Callable[[int], Batch]:
    """The batch of each step: every row once an epoch in a new order, two responses drawn anew.

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


def pair_loss(network: nn.Module, batch: Batch) -> Tensor:
    """-log p(y1, y2|x), the mean over the pairs of a batch, in nats.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> model = tiny_pair_model()
    >>> rows = [{"prompt": "flip", "responses": ["heads", "tails"]}]
    >>> batch = pair_batches(rows, model.formatter, batch_size=1, seed=0)(0)
    >>> bool(pair_loss(model.network, batch) > 0)
    True

    The mean is over pairs, not over tokens, so that the parts of a batch on several processes
    average to the whole.
    """
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    logits = network(**inputs, use_cache=False).logits[:, :-1]
    targets = batch["labels"][:, 1:]
    total = nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=NOT_SCORED, reduction="sum"
    )
    return total / len(targets)


class RowFile:
    """The rows of a file of JSON lines, read when they are asked for: eight bytes a row in memory.

    Args:
        path: the file.
        check: called with every row when the file is opened; it raises `FormatError` for a bad one.
        skip_bad: leave bad lines out instead of refusing the file.

    Attributes:
        num_skipped: how many lines were left out.
    """

    def __init__(
        self, path: Path, *, check: Callable[[Mapping[str, Any]], object], skip_bad: bool = False
    ) -> None:
        self.path = path
        self.num_skipped = 0
        self._offsets = array("q")
        offset = 0
        with path.open("rb") as file:
            for line, text in enumerate(file, start=1):
                if text.strip() and self._usable(line, text, check, skip_bad):
                    self._offsets.append(offset)
                offset += len(text)
        if not self._offsets:
            raise ValueError(f"{path} has no row to train on ({self.num_skipped} were skipped).")

    def _usable(
        self, line: int, text: bytes, check: Callable[[Mapping[str, Any]], object], skip_bad: bool
    ) -> bool:
        try:
            check(parse_line(self.path, line, text))
        except FormatError as error:
            if not skip_bad:
                raise BadLineError(self.path, line, error) from None
        except BadLineError:
            if not skip_bad:
                raise
        else:
            return True
        self.num_skipped += 1
        return False

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int, /) -> Mapping[str, Any]:
        with self.path.open("rb") as file:
            file.seek(self._offsets[index])
            return parse_line(self.path, index + 1, file.readline())
