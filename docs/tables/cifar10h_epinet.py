"""Why the epinet states more variance than its error here, where the paper's states less.

    python docs/tables/cifar10h_epinet.py DATA && python docs/tables/cifar10h.py

Its prior is random and fixed, and a trained part has to cancel it where data speak. So it is
trained longer here, and its prior is made weaker, each alone, on frozen features of the original
data.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cifar10h_sngp import PROTOCOL, frozen_original, keep_rows, kept_recipe, longer
from torch import nn

from secondguess.experiments.cifar10h.evaluation import measure
from secondguess.experiments.cifar10h.fitting import predict
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.protocol import Recipe, final_model
from secondguess.experiments.cifar10h.task import MakeBackbone, Task
from secondguess.models.epinet import Epinet

SEEDS = (0, 1)
COMMAND = "python docs/tables/cifar10h_epinet.py DATA"


def build(
    make_backbone: MakeBackbone,
    num_classes: int,
    generator: torch.Generator,
    *,
    prior_scale: float = 4.0,
) -> nn.Module:
    """An epinet with a prior of this weight."""
    backbone = make_backbone(None, generator)
    num_features = backbone.num_features
    assert isinstance(num_features, int)
    return Epinet(backbone, num_features, num_classes, prior_scale=prior_scale, generator=generator)


def measured(task: Task, prior_scale: float, recipe: Recipe, seed: int) -> dict[str, float]:
    """The test measures of one network."""
    method = replace(METHODS["epinet"], build=partial(build, prior_scale=prior_scale))
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"directory": Path(folder), "seed": seed}
        model = final_model(task, method, recipe, PROTOCOL, **settings)
    examples, trained_on = task.data.test, task.data.all_finetuning
    found = predict(task, method, model, examples, trained_on=trained_on, seed=seed)
    return measure(found, examples, task.variant)


def main(folder: Path) -> None:
    """Train and measure all rows."""
    task = frozen_original(folder)
    recipe = kept_recipe("epinet")
    settings = {
        "Epinet": (4.0, recipe),
        "pretrained four times as long": (4.0, longer(recipe, 4)),
        "pretrained sixteen times as long": (4.0, longer(recipe, 16)),
        "prior of weight 1": (1.0, recipe),
        "prior of weight 0.25": (0.25, recipe),
    }
    measures = {
        title: partial(measured, task, prior_scale, used)
        for title, (prior_scale, used) in settings.items()
    }
    keep_rows("cifar10h-epinet", COMMAND, SEEDS, measures)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
