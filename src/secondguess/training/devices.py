"""Where a network is trained, and where it predicts."""

from __future__ import annotations

import torch
from accelerate import Accelerator


def device_of(name: str | torch.device | None) -> torch.device:
    """A device that is there; the CPU where none is named.

    >>> device_of(None), device_of("cpu")
    (device(type='cpu'), device(type='cpu'))
    """
    try:
        device = torch.device(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device is {str(name)!r}, which this machine does not offer "
            f"({str(error).splitlines()[0]}); expected one such as 'cpu', 'cuda' or 'cuda:1'."
        ) from None
    return device


def training_device(name: str | torch.device | None, accelerator: Accelerator) -> torch.device:
    """The device of a training: that which was named, or the one that Accelerate chose.

    >>> training_device("cpu", Accelerator())
    device(type='cpu')
    """
    if name is None:
        return accelerator.device
    if accelerator.num_processes > 1:
        raise ValueError(
            f"device is {str(name)!r}, and there are {accelerator.num_processes} processes, each "
            f"with its own; expected None under `accelerate launch`."
        )
    return device_of(name)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the default generators that a training on this device draws from.

    `torch.manual_seed` also notes its caller's stack for each kind of device that is not there,
    half a millisecond per step, which small networks feel.

    >>> seed_generators(3, torch.device("cpu"))
    >>> first = torch.rand(2)
    >>> _ = torch.manual_seed(3)
    >>> torch.equal(first, torch.rand(2))
    True
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
