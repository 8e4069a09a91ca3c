"""Batches of pair data as pure functions of the step, so that resuming needs no data state.

A data source of the training loop is a function `batch_at(step)`. Rows come in endless epochs, each
a permutation of all rows that follows from the seed and the epoch alone; so do the drawn pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from secondguess._arrays import FloatArray
from secondguess.classification.inputs import Inputs, num_rows_of, take_rows
from secondguess.classification.pairs import PairData


class PairBatch(NamedTuple):
    """One random pair of responses for each row: inputs `(b, ...)`, y1 `(b,)`, y2 `(b,)`.

    The weights `(b,)` of the rows, where there are any, are 1 on average over all rows.
    """

    inputs: Inputs
    y1: Tensor
    y2: Tensor
    weights: Tensor | None = None


class AnnotationBatch(NamedTuple):
    """All responses of each row: inputs `(b, ...)`, labels `(b, d)`, multiplicity `(b, d)`.

    The weights `(b,)` of the rows, where there are any, are 1 on average over all rows.
    """

    inputs: Inputs
    labels: Tensor
    multiplicity: Tensor
    weights: Tensor | None = None


def pair_batches(
    inputs: Inputs,
    data: PairData,
    *,
    batch_size: int,
    seed: int,
    weights: FloatArray | None = None,
) -> Callable[[int], PairBatch]:
    """A source of batches with one fresh pair per row and epoch, as a pure function of the step.

    >>> data = PairData.from_responses([[0, 1], [1, 1], [0, 0]])
    >>> batch_at = pair_batches(torch.eye(3), data, batch_size=2, seed=0)
    >>> batch_at(7).y1.equal(batch_at(7).y1), batch_at(7).inputs.shape
    (True, torch.Size([2, 3]))

    Args:
        inputs: `(n, ...)`, one entry per row of `data`.
        data: the responses.
        batch_size: rows of a batch; the last rows of an epoch share a batch with the next epoch.
        seed: with the step, decides everything.
        weights: `(n,)`, of the rows; equal by default.
    """
    rows_at = _row_stream(inputs, data, batch_size, seed)
    scaled = scaled_weights(weights)

    @lru_cache(maxsize=2)
    def pairs_of(epoch: int) -> Tensor:
        return torch.from_numpy(data.draw(np.random.default_rng([seed, epoch, 1])))

    def batch_at(step: int) -> PairBatch:
        parts = [(rows, pairs_of(epoch)[rows]) for epoch, rows in rows_at(step)]
        rows, pairs = (torch.cat(part) for part in zip(*parts, strict=True))
        some = None if scaled is None else scaled[rows]
        return PairBatch(take_rows(inputs, rows), pairs[:, 0], pairs[:, 1], some)

    return batch_at


def annotation_batches(
    inputs: Inputs,
    data: PairData,
    *,
    batch_size: int,
    seed: int,
    weights: FloatArray | None = None,
) -> Callable[[int], AnnotationBatch]:
    """Like `pair_batches`, with all responses of a row instead of a drawn pair.

    >>> data = PairData.from_counts([[3, 0, 1], [1, 1, 0]])
    >>> batch = annotation_batches(torch.eye(2), data, batch_size=2, seed=0)(0)
    >>> batch.labels.shape, int(batch.multiplicity.sum())
    (torch.Size([2, 2]), 6)
    """
    rows_at = _row_stream(inputs, data, batch_size, seed)
    labels, multiplicity = torch.from_numpy(data.labels), torch.from_numpy(data.multiplicity)
    scaled = scaled_weights(weights)

    def batch_at(step: int) -> AnnotationBatch:
        rows = torch.cat([rows for _, rows in rows_at(step)])
        some = None if scaled is None else scaled[rows]
        return AnnotationBatch(take_rows(inputs, rows), labels[rows], multiplicity[rows], some)

    return batch_at


def scaled_weights(weights: FloatArray | None) -> Tensor | None:
    """Weights that are 1 on average.

    >>> scaled_weights(np.array([1.0, 3.0]))
    tensor([0.5000, 1.5000], dtype=torch.float64)
    """
    return None if weights is None else torch.from_numpy(weights / weights.mean())


def _row_stream(
    inputs: Inputs, data: PairData, batch_size: int, seed: int
) -> Callable[[int], list[tuple[int, Tensor]]]:
    """Which rows a step sees, as (epoch, rows): endless epochs, each a permutation of all rows."""
    num_rows = len(data)
    if num_rows_of(inputs) != num_rows:
        raise ValueError(
            f"inputs has {num_rows_of(inputs)} rows but the pair data has {num_rows}; expected one "
            f"input for each row of responses."
        )

    @lru_cache(maxsize=2)
    def order_of(epoch: int) -> Tensor:
        return torch.from_numpy(np.random.default_rng([seed, epoch, 0]).permutation(num_rows))

    def rows_at(step: int) -> list[tuple[int, Tensor]]:
        start, stop = step * batch_size, (step + 1) * batch_size
        return [
            (epoch, order_of(epoch)[max(start - epoch * num_rows, 0) : stop - epoch * num_rows])
            for epoch in range(start // num_rows, (stop - 1) // num_rows + 1)
        ]

    return rows_at
