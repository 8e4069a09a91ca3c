"""What becomes of X before a network sees it.

A network that comes with the estimator takes standardised features in float64; a module of the
user's own takes what the user gives.

Axes: rows (n), then features (d), or whatever a module takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from secondguess._arrays import FloatArray


@dataclass(frozen=True)
class Standardisation:
    """Mean 0 and spread 1 for every feature of the rows it was made of.

    >>> standardise = Standardisation.of(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> standardise(np.array([[3.0, 6.0]]))  # a feature that never changes is only shifted
    array([[1., 1.]])

    Attributes:
        mean: `(d,)`.
        scale: `(d,)`.
    """

    mean: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, inputs: FloatArray) -> Self:
        """That of these rows, `(n, d)`."""
        spread = inputs.std(axis=0)
        return cls(inputs.mean(axis=0), np.where(spread > 0, spread, 1.0))

    def __call__(self, inputs: FloatArray) -> FloatArray:
        """Other rows on the same scale."""
        return (inputs - self.mean) / self.scale

    def tensors(self) -> dict[str, Tensor]:
        """As it is saved."""
        return {
            "feature_mean": torch.from_numpy(self.mean),
            "feature_scale": torch.from_numpy(self.scale),
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Self:
        """From what `tensors` gave."""
        return cls(tensors["feature_mean"].numpy(), tensors["feature_scale"].numpy())


def as_tensor(inputs: Any) -> Tensor:
    """For a module: float32, or int64 where the inputs are whole numbers.

    >>> as_tensor([[1, 2]]).dtype, as_tensor([[0.5]]).dtype
    (torch.int64, torch.float32)
    """
    array = np.asarray(inputs)
    return torch.from_numpy(array.astype(np.float32 if array.dtype.kind == "f" else np.int64))
