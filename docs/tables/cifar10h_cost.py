"""What the preset `paper` would cost on a GPU: counted operations over an assumed throughput.

    python docs/tables/cifar10h_cost.py && python docs/tables/cifar10h.py

Nothing is trained: one step of each method is traced with tensors that have shapes and no values,
and its multiplications and additions are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pages import DOCS
from torch.utils.flop_counter import FlopCounterMode

from secondguess._files import write_json
from secondguess.baselines.evidential import EvidentialBatch
from secondguess.classification.batches import PairBatch
from secondguess.experiments.cifar10h.methods import METHODS, Method
from secondguess.experiments.cifar10h.protocol import ProtocolConfig, Recipe
from secondguess.experiments.cifar10h.run import PRESETS, Preset
from secondguess.experiments.cifar10h.task import REPEATED
from secondguess.experiments.registry import EXPERIMENTS
from secondguess.models.wide_resnet import WideResNet


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A processor, as a projection needs it.

    >>> Accelerator().operations_per_second / 1e12
    54.6

    Attributes:
        name: of the processor and the number format.
        peak: operations per second on its data sheet.
        utilisation: the share of the peak that training reaches. An assumption: convolutional
            networks of this size are usually reported between a quarter and a half.
    """

    name: str = "NVIDIA A100, TF32"
    peak: float = 156e12
    utilisation: float = 0.35

    @property
    def operations_per_second(self) -> float:
        """What is assumed to be reached."""
        return self.peak * self.utilisation


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """A method's network and what training it takes.

    Attributes:
        parameters: trained ones, of one network.
        flops_per_image: forward and backward, all networks of the method together.
    """

    parameters: int
    flops_per_image: float


def step_cost(method: Method, *, depth: int, width: int, batch_size: int = 512) -> StepCost:
    """Count the operations of a training step on images.

    >>> cost = step_cost(METHODS["naive"], depth=10, width=1)
    >>> cost.parameters, round(cost.flops_per_image / 1e6)
    (77850, 74)

    Args:
        method: what to train.
        depth: of the wide ResNet.
        width: of the wide ResNet.
        batch_size: images of the step; what does not grow with it is shared among them.
    """
    # Members of an ensemble are alike: one is counted.
    single = METHODS[method.tuned_as] if method.tuned_as else method
    network = single.build(
        lambda bound, generator: WideResNet(
            depth=depth, width=width, spectral_bound=bound, generator=generator
        ),
        10,
        torch.Generator().manual_seed(0),
    ).to("meta")
    images = torch.zeros(batch_size, 3, 32, 32, device="meta")
    labels = torch.zeros(batch_size, dtype=torch.int64, device="meta")
    batch = PairBatch(images, labels, labels)
    if single.is_evidential:
        batch = EvidentialBatch(images, labels, labels, torch.zeros((), device="meta"))
    with FlopCounterMode(display=False) as counter:
        single.loss(network.train(), batch).backward()
    parameters = sum(weight.numel() for weight in network.parameters() if weight.requires_grad)
    flops = method.num_members * counter.get_total_flops() / batch_size
    return StepCost(parameters=parameters, flops_per_image=flops)


def num_images(method: Method, recipe: Recipe, preset: Preset, *, tuned: bool) -> int:
    """Images that go through training, counted each time, for all variants and seeds.

    >>> preset = PRESETS["paper"]
    >>> num_images(METHODS["naive"], preset.recipes["naive"], preset, tuned=False)
    48844800

    Args:
        method: what is trained.
        recipe: its lengths.
        preset: variants and size of the protocol; seeds are those of the preset `paper`.
        tuned: whether the sweeps of phases 1 to 3 are counted too.
    """
    protocol: ProtocolConfig = preset.protocol
    num_seeds = EXPERIMENTS["cifar10h"].num_seeds["paper"]
    runs = sum(num_seeds if variant in REPEATED else 1 for variant in preset.variants)
    # Recalibration fine-tunes once more for each fold.
    finetunings = 1 + protocol.num_folds if method.is_pair_model else 1
    steps = runs * (recipe.pretraining.num_steps + finetunings * recipe.finetuning.num_steps)
    if tuned and method.tuned_as is None:
        trials = protocol.num_trials
        steps += (trials + 1) * protocol.short_pretraining + protocol.long_pretraining
        steps += 2 * trials * round(np.mean(protocol.finetuning_lengths))
    return steps * protocol.batch_size


def projection(accelerator: Accelerator | None = None) -> dict[str, Any]:
    """Operations and hours of each method of the preset `paper`, in JSON types."""
    accelerator = accelerator or Accelerator()
    preset = PRESETS["paper"]
    recipes: Mapping[str, Recipe] = preset.recipes or {}
    rows = []
    for name in preset.methods:
        method = METHODS[name]
        cost = step_cost(method, depth=preset.depth, width=preset.width)
        recipe = recipes[method.tuned_as or name]
        final, tuned = (
            cost.flops_per_image
            * num_images(method, recipe, preset, tuned=tuned)
            / accelerator.operations_per_second
            / 3600
            for tuned in (False, True)
        )
        rows.append(
            {
                "method": method.title,
                "parameters": cost.parameters,
                "gigaflops_per_image": round(cost.flops_per_image / 1e9, 2),
                "gigaflops_per_step": round(
                    cost.flops_per_image * preset.protocol.batch_size / 1e9
                ),
                "hours": round(final, 2),
                "hours_with_sweeps": round(tuned, 1),
            }
        )
    return {
        "command": "python docs/tables/cifar10h_cost.py",
        "accelerator": accelerator.name,
        "peak_teraflops": accelerator.peak / 1e12,
        "utilisation": accelerator.utilisation,
        "batch_size": preset.protocol.batch_size,
        "rows": rows,
    }


if __name__ == "__main__":
    write_json(DOCS / "results" / "cifar10h-cost.json", projection())
