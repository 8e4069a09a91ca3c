"""The evidential loss beside those of two independent packages, on the same outputs and labels.

    python docs/tables/evidential_peers.py PEERS && python docs/tables/cifar10h.py

PEERS is a folder with the unpacked wheels of probly and torch-uncertainty (`pip download --no-deps
probly==0.3.0 torch-uncertainty==0.13.0`, then `unzip` each). Only the file of losses of each is
loaded, which needs torch alone: torch-uncertainty as a whole asks for torchvision. Neither of the
two has SNGP or epinets.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from pages import keep
from torch import Tensor

from secondguess.baselines.evidential import EvidentialForm, label_losses

COMMAND = "python docs/tables/evidential_peers.py PEERS"
NUM_ROWS, NUM_CLASSES, WEIGHT = 1000, 10, 0.3


def losses_of(folder: Path, file: str) -> ModuleType:
    """The module of losses of an unpacked wheel."""
    spec = importlib.util.spec_from_file_location(f"peer_{Path(file).parts[0]}", folder / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ours(evidence: Tensor, labels: Tensor, form: EvidentialForm) -> Tensor:
    """The mean loss of the rows."""
    return label_losses(1 + evidence, WEIGHT, form).gather(1, labels[:, None]).mean()


def compared(theirs: Callable[[Tensor, Tensor], Tensor], form: EvidentialForm) -> dict[str, float]:
    """The largest difference of loss and gradient from ours, beside how large ours are."""
    generator = torch.Generator().manual_seed(0)
    shape = (NUM_ROWS, NUM_CLASSES)
    # From hardly any evidence to a lot of it.
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64).mul(3).exp()
    labels = torch.randint(NUM_CLASSES, (NUM_ROWS,), generator=generator)
    found = []
    for loss in (lambda e, y: ours(e, y, form), theirs):
        evidence = drawn.clone().requires_grad_()
        value = loss(evidence, labels)
        (gradient,) = torch.autograd.grad(value, evidence)
        found.append((value.detach(), gradient))
    (our_value, our_gradient), (value, gradient) = found
    return {
        "loss": our_value.item(),
        "loss_difference": (our_value - value).abs().item(),
        "largest_gradient": our_gradient.abs().max().item(),
        "largest_gradient_difference": (our_gradient - gradient).abs().max().item(),
    }


def main(folder: Path) -> None:
    """Compare both forms with both packages."""
    start = time.process_time()
    probly = losses_of(folder, "probly/losses.py")
    uncertainty = losses_of(folder, "torch_uncertainty/losses/classification.py")
    penalty = probly.EvidentialKLDivergence()
    rows = {}
    forms: tuple[tuple[EvidentialForm, str, str], ...] = (
        ("cross_entropy", "EvidentialCELoss", "digamma"),
        ("squared_error", "EvidentialMSELoss", "mse"),
    )
    for form, name, kind in forms:
        fit = getattr(probly, name)()
        other = uncertainty.DECLoss(reg_weight=WEIGHT, loss_type=kind)
        peers = {
            "probly 0.3.0": lambda e, y, fit=fit: fit(e, y) + WEIGHT * penalty(e, y),
            "torch-uncertainty 0.13.0": other,
        }
        for package, theirs in peers.items():
            rows[f"{form}, {package}"] = compared(theirs, form)
    for title, row in rows.items():
        print(title, row)
    keep("evidential-peers", command=COMMAND, seconds=time.process_time() - start, rows=rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
