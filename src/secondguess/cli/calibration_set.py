"""A calibration set in a file: which columns hold what, and how complaints name them.

What is made of the rows is not known here: `calibration_job.py` fits by pairs of responses,
`count_job.py` by counts of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secondguess.cli.column_values import Chunk
from secondguess.cli.columns import Columns
from secondguess.theory.calibration.products import BadRowError


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationSet:
    """The columns to read.

    Attributes:
        columns: the file.
        probs: the column of predicted probabilities.
        variance: the column of their variances.
        responses: the columns of responses; none where there are counts.
        counts: the columns of how many responses are 1, and of how many there are, or none.
        group: the column that says which rows belong together, if there is one.
    """

    columns: Columns
    probs: str
    variance: str
    responses: list[str]
    counts: list[str]
    group: str | None = None

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.columns.path

    def chunks(
        self, start: int = 0, stop: int | None = None, *, grouped: bool = False
    ) -> Iterator[Chunk]:
        """Rows start to stop, in order, with the group of each where it is wanted."""
        names = [self.probs, self.variance, *self.responses, *self.counts]
        labels = [self.group] if grouped and self.group else []
        return self.columns.chunks(names, start, stop, labels)

    def responses_of(self, chunk: Chunk) -> NDArray:
        """The responses in rows of the file, `(n, k)`; stacked by column, each contiguous."""
        return np.stack([chunk[name] for name in self.responses]).T

    @contextmanager
    def naming_columns(self) -> Iterator[None]:
        """Say file, column and row of the file where the library says argument and position."""
        try:
            yield
        except BadRowError as error:
            names = {"probs": self.probs, "variance": self.variance}
            names |= dict(zip(("ones", "num_responses"), self.counts, strict=False))
            name = names.get(error.argument) or self.responses[error.column or 0]
            raise ValueError(
                f"{self.path}: column {name!r}, row {error.row} {error.problem}"
            ) from None
