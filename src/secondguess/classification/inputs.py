"""What becomes of X before a network sees it, and what a network makes of it.

A network that comes with the estimator takes standardised features in float64; a module of the
user's own takes what the user gives: an array, a tensor, or several of them by name, as tokenizers
give them.

Axes: rows (n), then features (d), or whatever a module takes.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import _num_samples, validate_data
from torch import Tensor, nn

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
    def of(cls, inputs: FloatArray, weights: FloatArray | None = None) -> Self:
        """That of these rows, `(n, d)`, with weights `(n,)` where there are any."""
        if weights is None:
            mean, spread = inputs.mean(axis=0), inputs.std(axis=0)
        else:
            mean = np.average(inputs, axis=0, weights=weights)
            spread = np.sqrt(np.average(np.square(inputs - mean), axis=0, weights=weights))
        # A feature that never changes has a spread of nothing but rounding.
        same = np.ptp(inputs, axis=0) == 0
        return cls(mean, np.where((spread > 0) & ~same, spread, 1.0))

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


Inputs = Tensor | dict[str, Tensor]
"""What a module takes: a tensor `(n, ...)`, or several by name, each with n rows."""


def module_inputs(X: Any) -> Inputs:
    """For a module of the user's own, which gets a mapping as keyword arguments.

    Tensors stay as they are. Arrays become float32, or int64 where they hold whole numbers; but
    uint8 are pixels, which `prepared` scales.

    >>> module_inputs(np.array([[0.5]])).dtype, module_inputs(np.array([[1, 2]])).dtype
    (torch.float32, torch.int64)
    >>> module_inputs({"input_ids": [[5, 7], [6, 0]], "attention_mask": [[1, 1], [1, 0]]})
    {'input_ids': tensor([[5, 7],
            [6, 0]]), 'attention_mask': tensor([[1, 1],
            [1, 0]])}
    """
    if not has_names(X):
        return _as_tensor("X", X)
    tensors = {name: _as_tensor(f"X[{name!r}]", part) for name, part in X.items()}
    lengths = {name: len(tensor) for name, tensor in tensors.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"the parts of X have {lengths} rows; expected one number of rows.")
    return tensors


def prepared(inputs: Inputs, weight: Tensor) -> Inputs:
    """On the device of a weight; floats in its dtype, and pixels (uint8) as floats from 0 to 1.

    >>> prepared(torch.tensor([[0, 255]], dtype=torch.uint8), torch.zeros(1))
    tensor([[0., 1.]])
    """
    if isinstance(inputs, dict):
        return {name: _prepared(part, weight) for name, part in inputs.items()}
    return _prepared(inputs, weight)


def _prepared(inputs: Tensor, weight: Tensor) -> Tensor:
    if inputs.dtype == torch.uint8:
        return inputs.to(weight.device).to(weight.dtype) / 255
    return inputs.to(weight.device, weight.dtype if inputs.is_floating_point() else None)


def features_of(backbone: nn.Module, inputs: Inputs, weight: Tensor) -> Tensor:
    """What a module makes of inputs that were `prepared` like a weight.

    >>> features_of(nn.Linear(3, 7), torch.zeros(2, 3), torch.zeros(1)).shape
    torch.Size([2, 7])
    """
    ready = prepared(inputs, weight)
    return backbone(**ready) if isinstance(ready, dict) else backbone(ready)


@torch.no_grad()
def num_features_of(backbone: nn.Module, inputs: Inputs) -> int:
    """How many features a backbone gives, found by trying a copy of it on some inputs.

    >>> num_features_of(nn.Linear(3, 7), torch.zeros(2, 3))
    7
    """
    weight = next(backbone.parameters(), torch.empty(0)).float()
    features = features_of(copy.deepcopy(backbone).eval(), inputs, weight)
    if not isinstance(features, Tensor):
        raise TypeError(
            f"the backbone returns {type(features).__name__}; expected a tensor (n, num_features). "
            f"Wrap it in a module that picks or pools one, such as the mean of the last hidden "
            f"states of a text encoder."
        )
    if features.ndim != 2:
        parts = inputs if isinstance(inputs, dict) else {"X": inputs}
        shapes = ", ".join(f"{name} {tuple(part.shape)}" for name, part in parts.items())
        raise ValueError(
            f"the backbone turns inputs of shape {shapes} into features of shape "
            f"{tuple(features.shape)}; expected (n, num_features)."
        )
    return features.shape[1]


def take_rows(inputs: Inputs, rows: Any) -> Inputs:
    """Some of the rows, by a slice or by their numbers.

    >>> take_rows({"ids": torch.arange(4)}, slice(1, 3))
    {'ids': tensor([1, 2])}
    """
    if isinstance(inputs, dict):
        return {name: part[rows] for name, part in inputs.items()}
    return inputs[rows]


def has_names(X: Any) -> bool:
    """Whether inputs are several arrays by name (a sparse matrix of scipy may be a dict as well).

    >>> has_names({"ids": [[1]]}), has_names([[1]])
    (True, False)
    """
    return isinstance(X, Mapping) and not sparse.issparse(X)


def num_rows_of(X: Any) -> int:
    """How many rows inputs of any kind have; a mapping has those of its parts.

    >>> num_rows_of({"ids": [[1], [2], [3]]}), num_rows_of(np.zeros((4, 2)))
    (3, 4)
    """
    if has_names(X):
        X = next(iter(X.values()), ())
    return _num_samples(X)


def digest_of(inputs: Inputs) -> bytes:
    """The same for the same numbers.

    >>> digest_of(torch.arange(3)) == digest_of({"X": torch.arange(3)})
    True
    """
    digest = hashlib.sha256()
    for part in inputs.values() if isinstance(inputs, dict) else [inputs]:
        digest.update(part.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.digest()


def _as_tensor(name: str, values: Any) -> Tensor:
    """One tensor with a row axis, whose floats are finite."""
    if isinstance(values, Tensor):
        tensor = values.detach()
    else:
        try:
            array = np.asarray(values)
        except ValueError:
            array = np.array(None)
        if array.dtype.kind not in "fiub" or array.ndim == 0:
            raise ValueError(
                f"{name} does not hold numbers of one shape per row; expected an array or tensor. "
                f"For texts, tokenizer(texts, padding=True, truncation=True, return_tensors='pt')."
            )
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        elif array.dtype != np.uint8:
            array = array.astype(np.int64)
        tensor = torch.from_numpy(np.ascontiguousarray(array))
    if tensor.ndim == 0:
        raise ValueError(f"{name} is a single number; expected one row per item.")
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise ValueError(f"{name} contains NaN or infinity; expected finite numbers.")
    return tensor


def validated(estimator: Any, X: Any, *, own: bool, fitting: bool = False) -> Any:
    """X as an array `(n, d)` of float64, or as a module of the user's own takes it.

    Args:
        estimator: an estimator of scikit-learn, which remembers the features.
        X: inputs, as the user gave them.
        own: whether a module of the user's own takes them.
        fitting: whether they are those of a fit.
    """
    if own:
        if not has_names(X) and not isinstance(X, Tensor):
            X = validate_data(estimator, X, reset=fitting, dtype="numeric", allow_nd=True)
        return module_inputs(X)
    if len(shape := tuple(getattr(X, "shape", ()))) > 2:
        raise ValueError(
            f"X has shape {shape}; expected (n, num_features). Flatten it, or pass a network "
            f"that takes it as backbone=."
        )
    return validate_data(estimator, X, reset=fitting, dtype=np.float64)
