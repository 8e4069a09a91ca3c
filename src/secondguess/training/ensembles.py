"""Members of an ensemble trained together: one module whose parameters have a leading member axis.

`torch.func` maps one network over that axis, so the members share each kernel launch. The training
loop is `secondguess.training.loop.train`, as for a single network: stack the members, and wrap
the loss of one member in `ensemble_loss`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate.utils import recursively_apply
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

_LARGEST_VECTORISED = 2**14
"""Weights of a member up to which one kernel computes all members (see benchmarks/training.py)."""

_SEPARATOR = "/"
"""Stands for the dot in the names of stacked parameters, where torch allows no dot."""


class MemberStack(nn.Module):
    """Networks of one architecture as one module.

    >>> members = [nn.Linear(3, 2) for _ in range(8)]
    >>> stack = MemberStack(members)
    >>> outputs = stack(torch.ones(5, 3))
    >>> outputs.shape
    torch.Size([8, 5, 2])
    >>> bool(torch.allclose(outputs[3], members[3](torch.ones(5, 3)), atol=1e-6))
    True

    Args:
        members: at least one network; all of the same architecture. Their weights are copied.
        vectorised: whether one kernel computes all members (`torch.vmap`), or each has its own.
            Small networks gain several times from the first; large ones fill the processor
            alone, and lose its cache to the others. Without it, chosen by the number of weights.
    """

    def __init__(self, members: Sequence[nn.Module], *, vectorised: bool | None = None) -> None:
        super().__init__()
        if not members:
            raise ValueError("members is empty; expected at least one network.")
        self.num_members = len(members)
        parameters, buffers = stack_module_state(list(members))
        for name, parameter in parameters.items():
            self.register_parameter(name.replace(".", _SEPARATOR), nn.Parameter(parameter.detach()))
        for name, buffer in buffers.items():
            self.register_buffer(name.replace(".", _SEPARATOR), buffer)
        # In a tuple, so that torch does not count the template among the submodules.
        self._template = (copy.deepcopy(members[0]).to("meta"),)
        weights = sum(parameter[0].numel() for parameter in parameters.values())
        self.vectorised = weights <= _LARGEST_VECTORISED if vectorised is None else vectorised

    def forward(self, *inputs: Any) -> Tensor:
        """Outputs of all members for the same inputs, `(num_members, ...)`."""
        return self.map_members(lambda member, shared: member(*shared), inputs, shared=True)

    def map_members(
        self,
        function: Callable[[Callable[..., Any], Any], Tensor],
        batch: Any,
        *,
        shared: bool = False,
    ) -> Tensor:
        """`function(member, batch)` for each member, stacked along a new first axis.

        Args:
            function: of one member and its batch; the member is a function of its inputs.
            batch: nested tensors, the same for all members if `shared`; otherwise tensors with axes
                have a member axis behind the batch axis, `(n, num_members, ...)`.
            shared: whether members see the same batch.
        """

        def of_one(state: dict[str, Tensor], member_batch: Any) -> Tensor:
            return function(self._member_of(state), member_batch)

        state = self._state()
        if self.vectorised:
            axes = recursively_apply(lambda tensor: None if shared or not tensor.ndim else 1, batch)
            return torch.vmap(of_one, in_dims=(0, axes), randomness="different")(state, batch)
        # unbind, not one index per member: its gradient is one stack, not a sum of padded slices.
        slices = zip(*(tensor.unbind() for tensor in state.values()), strict=True)
        return torch.stack(
            [
                of_one(dict(zip(state, tensors, strict=True)), _rows_of(batch, index, shared))
                for index, tensors in enumerate(slices)
            ]
        )

    def summed_loss(
        self, loss: Callable[[Any, Any], Tensor], batch: Any, *, shared: bool = False
    ) -> Tensor:
        """The sum of `loss(member, batch)` over the members; see `map_members`.

        Members that are not vectorised are differentiated one after the other, each before the next
        one goes forward. So only one member's activations are held at a time, as if the members
        were trained in turn.
        """
        if self.vectorised or not torch.is_grad_enabled():
            return self.map_members(loss, batch, shared=shared).sum()
        state = self._state()
        trained = {name: tensor for name, tensor in state.items() if tensor.requires_grad}
        gradients = [torch.empty_like(tensor) for tensor in trained.values()]
        total = torch.zeros((), device=gradients[0].device)
        for index in range(self.num_members):
            weights = {name: t[index].detach().requires_grad_() for name, t in trained.items()}
            others = {name: t[index] for name, t in state.items() if name not in trained}
            value = loss(self._member_of(weights | others), _rows_of(batch, index, shared))
            slopes = torch.autograd.grad(value, list(weights.values()), materialize_grads=True)
            for gradient, slope in zip(gradients, slopes, strict=True):
                gradient[index] = slope
            total += value.detach()
        return _WithGradients.apply(total, gradients, *trained.values())

    def _state(self) -> dict[str, Tensor]:
        named = [*self.named_parameters(), *self.named_buffers()]
        return {name.replace(_SEPARATOR, "."): tensor for name, tensor in named}

    def _member_of(self, state: dict[str, Tensor]) -> Callable[..., Any]:
        template = self._template[0].train(self.training)
        return lambda *inputs: functional_call(template, state, inputs)

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Clip each member's gradient, as if it were trained alone; returns the norms before."""
        gradients = [p.grad.flatten(1) for p in self.parameters() if p.grad is not None]
        norms = torch.stack([gradient.norm(dim=1) for gradient in gradients]).norm(dim=0)
        scales = (max_norm / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scales[:, None])
        return norms

    @torch.no_grad()
    def member(self, index: int) -> nn.Module:
        """A copy of one member, a network of its own."""
        device = next(self.parameters()).device
        network = copy.deepcopy(self._template[0]).to_empty(device=device)
        for name, tensor in network.state_dict(keep_vars=True).items():
            tensor.copy_(getattr(self, name.replace(".", _SEPARATOR))[index])
        return network.train(self.training)


def ensemble_loss(
    loss: Callable[[Any, Any], Tensor], *, shared: bool = False
) -> Callable[[MemberStack, Any], Tensor]:
    """The loss of a stack of members from that of one: their sum, so each gets its own gradient.

    >>> def loss(model, batch):
    ...     return (model(batch["inputs"]) - batch["targets"]).square().mean()
    >>> stack = MemberStack([nn.Linear(3, 1) for _ in range(4)])
    >>> batch = {"inputs": torch.zeros(10, 4, 3), "targets": torch.ones(10, 4, 1)}
    >>> ensemble_loss(loss)(stack, batch).shape
    torch.Size([])

    Args:
        loss: `loss(member, batch)`, the mean over a batch.
        shared: whether members see the same batch; otherwise see `MemberStack.map_members`.
    """
    return lambda stack, batch: stack.summed_loss(loss, batch, shared=shared)


class _WithGradients(torch.autograd.Function):
    """A value whose gradients with respect to some tensors are known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(gradient.mul_(upstream[0]) for gradient in ctx.gradients)


def _rows_of(batch: Any, index: int, shared: bool) -> Any:
    if shared:
        return batch
    return recursively_apply(lambda tensor: tensor[:, index] if tensor.ndim else tensor, batch)
