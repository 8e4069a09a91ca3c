"""Muon: momentum whose matrices are made orthogonal before they are added to the weights.

All directions of a weight matrix then move equally fast. AdamW follows the strong ones, and what a
pair model gains by a look at the first response is a weak one: a few hundredths of a nat among the
many nats of the responses.

The update is that of `torch.optim.Muon`. That one makes matrices orthogonal in bfloat16 and one by
one, which suits accelerators; here it is done in the precision of the weights and for all matrices
of a shape at once. On the CPU a step of torch's took 17 to 20 times as long (`python
benchmarks/muon.py`, widths 64 and 128), and its rounding would change every result that was made
with this one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
_NUM_ITERATIONS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that takes singular values in (0, 1] near 1: steep at zero, not convergent."""


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for weight matrices; other parameters need another optimizer.

    >>> weight = nn.Parameter(torch.zeros(2, 2))
    >>> weight.grad = torch.tensor([[100.0, 0.0], [0.0, 1.0]])
    >>> Muon([weight], lr=0.1).step()
    >>> bool((weight.diagonal() < -0.06).all())  # both directions moved by about 0.1
    True

    Args:
        params: weights of two dimensions, outputs by inputs, or of more: the kernel of a
            convolution counts as the matrix of its outputs by all values of a patch.
        lr: how far each direction moves in a step; times the root of outputs / inputs where there
            are more outputs.
    """

    def __init__(self, params: Iterable[nn.Parameter], *, lr: float = 0.02) -> None:
        super().__init__(params, {"lr": lr})
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.ndim < 2:
                    raise ValueError(
                        f"a parameter has shape {tuple(weight.shape)}; expected matrices and "
                        f"kernels only: train the others with another optimizer."
                    )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move all weights that have a gradient."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[nn.Parameter]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    shape = (len(weight), weight[0].numel())
                    by_shape.setdefault(shape, []).append(weight)
            for (num_out, num_in), weights in by_shape.items():
                momenta = [self._momentum(each).flatten(1) for each in weights]
                scale = group["lr"] * max(1.0, num_out / num_in) ** 0.5
                for weight, update in zip(
                    weights, orthogonalised(torch.stack(momenta)), strict=True
                ):
                    weight.sub_(update.view_as(weight), alpha=scale)

    def _momentum(self, weight: nn.Parameter) -> Tensor:
        """The gradient with Nesterov momentum."""
        assert weight.grad is not None  # filtered by the caller
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
        return weight.grad.lerp(state["momentum"], MOMENTUM)


def orthogonalised(matrices: Tensor) -> Tensor:
    """The matrices, `(count, rows, columns)`, with singular values near 1.

    >>> nearly = orthogonalised(torch.tensor([[[3.0, 0.0, 0.0], [0.0, -0.5, 0.0]]]))
    >>> bool(((nearly @ nearly.mT).squeeze(0).diagonal() - 1).abs().max() < 0.6)
    True
    """
    a, b, c = _COEFFICIENTS
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    norms = torch.linalg.matrix_norm(wide, keepdim=True)
    wide = wide / norms.clamp(min=torch.finfo(wide.dtype).tiny)
    for _ in range(_NUM_ITERATIONS):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide if matrices.shape[1] <= matrices.shape[2] else wide.mT
