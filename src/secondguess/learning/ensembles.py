"""Members of an ensemble trained together: one module whose parameters have a leading member axis.

`torch.func` maps one network over that axis, so the members share each kernel launch. The training
loop is `secondguess.learning.training.train`, as for a single network: stack the members, and wrap
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
        template = self._template[0].train(self.training)
        parts = {name.replace(_SEPARATOR, "."): tensor for name, tensor in self.named_parameters()}
        parts |= {name.replace(_SEPARATOR, "."): tensor for name, tensor in self.named_buffers()}

        def of_one(state: dict[str, Tensor], member_batch: Any) -> Tensor:
            def member(*inputs: Any) -> Any:
                return functional_call(template, state, inputs)

            return function(member, member_batch)

        def is_per_member(tensor: Tensor) -> bool:
            return not shared and tensor.ndim > 0

        if self.vectorised:
            axes = recursively_apply(lambda tensor: 1 if is_per_member(tensor) else None, batch)
            return torch.vmap(of_one, in_dims=(0, axes), randomness="different")(parts, batch)

        # unbind, not an index a member: its gradient is one stack, not a sum of padded slices.
        states = [
            dict(zip(parts, tensors, strict=True))
            for tensors in zip(*(tensor.unbind() for tensor in parts.values()), strict=True)
        ]

        def rows_of(index: int) -> Any:
            return recursively_apply(
                lambda tensor: tensor[:, index] if is_per_member(tensor) else tensor, batch
            )

        return torch.stack([of_one(state, rows_of(i)) for i, state in enumerate(states)])

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

    def summed(stack: MemberStack, batch: Any) -> Tensor:
        return stack.map_members(loss, batch, shared=shared).sum()

    return summed
