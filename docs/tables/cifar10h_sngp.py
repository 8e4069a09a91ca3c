"""Why Cheat SNGP is worse than Cheat NN on frozen features: what sets them apart, one by one.

    python docs/tables/cifar10h_sngp.py DATA && python docs/tables/cifar10h.py

Rows that docs/results/cifar10h-sngp.json holds are not measured again; remove it to start anew.

Cheat SNGP is Cheat NN with three changes: a bound on the spectral norm of every layer, random
features in front of the output layer, and an output layer that starts as SNGP's does. Besides, the
search of `cpu` found another recipe for it. Each is changed back alone here, on the original data.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pages import DOCS, keep
from torch import Tensor, nn

from secondguess.classification.heads import PairModel, SymmetricPairHead
from secondguess.experiments.cifar10h import data
from secondguess.experiments.cifar10h.evaluation import measure
from secondguess.experiments.cifar10h.fitting import Stage, predict, validation_kl
from secondguess.experiments.cifar10h.frozen import FeatureMLP, frozen_task
from secondguess.experiments.cifar10h.methods import (
    METHODS,
    NUM_RANDOM_FEATURES,
    OUTPUT_SCALE,
    SPECTRAL_BOUND,
)
from secondguess.experiments.cifar10h.protocol import Recipe, final_model, pretrain
from secondguess.experiments.cifar10h.run import PRESETS
from secondguess.experiments.cifar10h.task import VARIANTS, MakeBackbone, Task
from secondguess.models.random_features import OrthogonalRandomFeatures

NUM_PRETRAINING, SEEDS = 20_000, (0, 1, 2)
PROTOCOL = PRESETS["cpu"].protocol
COMMAND = "python docs/tables/cifar10h_sngp.py DATA"


def build(
    make_backbone: MakeBackbone,
    num_classes: int,
    generator: torch.Generator,
    *,
    bound: float | None = SPECTRAL_BOUND,
    length_scale: float | None = 20.0,
    output_scale: float = 1.0,
) -> nn.Module:
    """A pair model with some of Cheat SNGP's changes; no length scale for no random features."""
    backbone = make_backbone(bound, generator)
    num_features = backbone.num_features
    assert isinstance(num_features, int)
    if length_scale is not None:
        features = OrthogonalRandomFeatures(
            num_features, NUM_RANDOM_FEATURES, length_scale=length_scale, generator=generator
        )
        backbone, num_features = nn.Sequential(backbone, features), NUM_RANDOM_FEATURES
    head = SymmetricPairHead(num_features, num_classes, generator=generator)
    with torch.no_grad():
        for layer in head.children():
            assert isinstance(layer, nn.Linear)
            layer.weight *= output_scale
    return PairModel(backbone, head)


def kept_recipe(method: str) -> Recipe:
    """What the search of `cpu` found."""
    run = json.loads((DOCS / "results" / "cifar10h-cpu.json").read_text())
    found = run["recipes"][method]
    return Recipe(
        pretraining=Stage(**found["pretraining"]), finetuning=Stage(**found["finetuning"])
    )


def measured(
    task: Task, make: Callable[..., nn.Module], recipe: Recipe, seed: int
) -> dict[str, Any]:
    """The test measures of one network, and its divergence on the validation images."""
    method = replace(METHODS["cheat-sngp"], build=make)
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"directory": Path(folder), "seed": seed}
        pretrained = pretrain(task, method, recipe.pretraining, PROTOCOL, **settings)
        model = final_model(task, method, recipe, PROTOCOL, **settings)
    examples, trained_on = task.data.test, task.data.all_finetuning
    found = predict(task, method, model, examples, trained_on=trained_on, seed=seed)
    return measure(found, examples, task.variant) | {
        "pretrained_kl": validation_kl(
            task, method, pretrained, trained_on=task.data.pretraining, seed=seed
        ),
        "largest_norm": largest_norm(model),
    }


def largest_norm(model: nn.Module) -> float:
    """Of the layers that Cheat SNGP bounds, before the bound."""
    (network,) = (each for each in model.modules() if isinstance(each, FeatureMLP))
    layers = (network.first, network.second)
    weights = (
        weight for layer in layers for weight in [layer.weight] if isinstance(weight, Tensor)
    )
    return max(torch.linalg.matrix_norm(weight, 2).item() for weight in weights)


def longer(recipe: Recipe, factor: int) -> Recipe:
    """The same with a longer pretraining."""
    stage = recipe.pretraining
    return replace(recipe, pretraining=replace(stage, num_steps=factor * stage.num_steps))


def frozen_original(folder: Path) -> Task:
    """The original data on frozen features, with fewer images for pretraining."""
    loaded = data.load(folder)
    loaded = data.Cifar10H(loaded.pretraining[:NUM_PRETRAINING], loaded.annotated)
    return frozen_task(
        loaded,
        VARIANTS["original"],
        cache_dir=folder / "features",
        width=PRESETS["cpu"].width,
        report=print,
    )


def keep_rows(
    name: str,
    command: str,
    seeds: Sequence[int],
    measures: Mapping[str, Callable[[int], dict[str, float]]],
) -> None:
    """Measure the rows that the file of results does not hold yet, and write it after each."""
    path = DOCS / "results" / f"{name}.json"
    kept = json.loads(path.read_text()) if path.exists() else {"seconds": 0.0, "rows": {}}
    seconds, rows = kept["seconds"], kept["rows"].get("methods", {})
    for title, measure_seed in measures.items():
        if title in rows:
            continue
        start = time.process_time()
        found = [measure_seed(seed) for seed in seeds]
        rows[title] = {key: [round(each[key], 6) for each in found] for key in found[0]}
        seconds += time.process_time() - start
        ordered = {title: rows[title] for title in measures if title in rows}
        record = {"num_pretraining": NUM_PRETRAINING, "seeds": seeds, "methods": ordered}
        keep(name, command=command, seconds=seconds, rows=record)
        print(title, rows[title])


def main(folder: Path) -> None:
    """Train and measure all rows."""
    task = frozen_original(folder)
    ours, theirs = kept_recipe("cheat"), kept_recipe("cheat-sngp")
    plain = partial(build, bound=None, length_scale=None, output_scale=OUTPUT_SCALE)
    settings = {
        "Cheat NN": (plain, ours),
        "Cheat NN, recipe of Cheat SNGP": (plain, theirs),
        "Cheat NN, spectral bound 1": (partial(plain, bound=1.0), ours),
        "Cheat NN, pretrained four times as long": (plain, longer(ours, 4)),
        "Cheat SNGP": (build, theirs),
        "Cheat SNGP, pretrained four times as long": (build, longer(theirs, 4)),
        "Cheat SNGP, recipe of Cheat NN": (build, ours),
        "the same, no spectral bound": (partial(build, bound=None), ours),
        "the same, spectral bound 1": (partial(build, bound=1.0), ours),
        "the same, small first outputs": (partial(build, output_scale=OUTPUT_SCALE), ours),
        "the same, length scale 5": (partial(build, length_scale=5.0), ours),
        "the same, length scale 80": (partial(build, length_scale=80.0), ours),
        "the same, no random features": (partial(plain, bound=SPECTRAL_BOUND), ours),
    }
    measures = {
        title: partial(measured, task, make, recipe) for title, (make, recipe) in settings.items()
    }
    keep_rows("cifar10h-sngp", COMMAND, SEEDS, measures)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
