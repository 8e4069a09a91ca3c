"""How long methods should train on frozen features of CIFAR-10H, and what parts of SNGP do there.

    python docs/tables/cifar10h_lengths.py --data-dir DATA && python docs/tables/cifar10h.py

`--methods evidential,epinet` measures these two again, and what is made from them; other rows stay.
The original variant, seed 0, rates and weight decays of the committed run of `cpu`. Everything is
measured on the validation images, after fine-tuning on the 3,000 others; the test images are not
looked at.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pages import keep, kept
from torch import nn

from secondguess.classification.heads import PairModel, SymmetricPairHead
from secondguess.experiments.cifar10h import data as files
from secondguess.experiments.cifar10h.evaluation import measure
from secondguess.experiments.cifar10h.fitting import Stage, fit, predict
from secondguess.experiments.cifar10h.methods import (
    METHODS,
    NUM_RANDOM_FEATURES,
    OUTPUT_SCALE,
    SPECTRAL_BOUND,
    Method,
)
from secondguess.experiments.cifar10h.run import PRESETS, Tasks
from secondguess.experiments.cifar10h.task import MakeBackbone, Task
from secondguess.models.epinet import Epinet
from secondguess.models.random_features import OrthogonalRandomFeatures

NAME = "cifar10h-lengths"
COMMAND = "python docs/tables/cifar10h_lengths.py --data-dir DATA"
SHORT = (100, 400, 1600), (30, 120, 480)
LONG = (400, 1600, 6400), (30, 120, 480, 1920)
STUDIED = {
    "naive": SHORT,
    "evidential": LONG,
    "sngp": SHORT,
    "epinet": LONG,
    "cheat": SHORT,
    "cheat-sngp": SHORT,
}
"""Steps of pretraining and of fine-tuning: at most four times as many as the search offers each."""
KEPT = ("kl", "accuracy", "second_order_ece", "mean_variance", "grouping_error")


def pair_network(
    make_backbone: MakeBackbone,
    num_classes: int,
    generator: torch.Generator,
    *,
    bound: float | None,
    random_features: bool,
    scale: float,
) -> nn.Module:
    """A pair model with some parts of SNGP: Cheat NN has none of them, Cheat SNGP all."""
    backbone = make_backbone(bound, generator)
    size = backbone.num_features
    assert isinstance(size, int)
    if random_features:
        features = OrthogonalRandomFeatures(size, NUM_RANDOM_FEATURES, generator=generator)
        backbone, size = nn.Sequential(backbone, features), NUM_RANDOM_FEATURES
    head = SymmetricPairHead(size, num_classes, generator=generator)
    with torch.no_grad():
        for layer in head.children():
            assert isinstance(layer, nn.Linear)
            layer.weight *= scale
    return PairModel(backbone, head)


def epinet_of(
    make_backbone: MakeBackbone, num_classes: int, generator: torch.Generator, *, scale: float
) -> nn.Module:
    """An epinet whose prior has another weight."""
    backbone = make_backbone(None, generator)
    size = backbone.num_features
    assert isinstance(size, int)
    return Epinet(backbone, size, num_classes, prior_scale=scale, generator=generator)


def changed() -> dict[str, tuple[str, Method]]:
    """Title -> the method whose rates it takes, and the method with a part changed."""
    pairs = {
        "Cheat NN": (None, False, OUTPUT_SCALE),
        "Cheat NN, first weights of usual size": (None, False, 1.0),
        "Cheat NN, spectral bound": (SPECTRAL_BOUND, False, OUTPUT_SCALE),
        "Cheat NN, random features": (None, True, OUTPUT_SCALE),
        "Cheat SNGP, small first weights": (SPECTRAL_BOUND, True, OUTPUT_SCALE),
        "Cheat SNGP": (SPECTRAL_BOUND, True, 1.0),
    }
    found: dict[str, tuple[str, Method]] = {}
    for title, (bound, random_features, scale) in pairs.items():
        build: Callable[..., nn.Module] = partial(
            pair_network, bound=bound, random_features=random_features, scale=scale
        )
        rates = "cheat-sngp" if random_features else "cheat"
        found[title] = rates, replace(METHODS[rates], build=build)
    for scale in (4.0, 1.0, 0.25):
        build = partial(epinet_of, scale=scale)
        found[f"Epinet, prior of weight {scale:g}"] = (
            "epinet",
            replace(METHODS["epinet"], build=build),
        )
    return found


def stages(name: str, lengths: tuple[int, int]) -> tuple[Stage, Stage]:
    """Pretraining and fine-tuning at the rates that were found for a method."""
    recipe = kept("cifar10h-cpu")["recipes"][name]
    first, second = (
        Stage(**(recipe[part] | {"num_steps": length}))
        for part, length in zip(("pretraining", "finetuning"), lengths, strict=True)
    )
    return first, second


def measured(task: Task, method: Method, start: nn.Module, stage: Stage) -> dict[str, float]:
    """What a method reaches on the validation images after fine-tuning."""
    examples, batch_size = task.data.finetuning, PRESETS["cpu"].protocol.batch_size
    settings: dict[str, Any] = {"batch_size": batch_size, "seed": 0, "start": start}
    model = fit(task, method, examples, stage, **settings)
    found = predict(task, method, model, task.data.validation, trained_on=examples, seed=0)
    values = measure(found, task.data.validation, task.variant)
    return {name: values[name] for name in KEPT}


def pretrained(task: Task, method: Method, stage: Stage) -> nn.Module:
    """A method after its pretraining."""
    batch_size = PRESETS["cpu"].protocol.batch_size
    return fit(task, method, task.data.pretraining, stage, batch_size=batch_size, seed=0)


def rows_by_length(task: Task, name: str) -> Iterator[dict[str, Any]]:
    """What a method reaches after each length of both trainings."""
    method, (pretrainings, finetunings) = METHODS[name], STUDIED[name]
    for pretraining in pretrainings:
        start = None
        for finetuning in finetunings:
            first, second = stages(name, (pretraining, finetuning))
            start = pretrained(task, method, first) if start is None else start
            found = measured(task, method, start, second)
            row = {"method": method.title, "pretraining": pretraining, "finetuning": finetuning}
            yield row | found


def row_of_part(task: Task, title: str, rates: str, method: Method) -> Iterator[dict[str, Any]]:
    """What a method with a part changed reaches after as many steps as `cpu` takes."""
    recipe = kept("cifar10h-cpu")["recipes"][rates]
    steps = recipe["pretraining"]["num_steps"], recipe["finetuning"]["num_steps"]
    first, second = stages(rates, steps)
    found = measured(task, method, pretrained(task, method, first), second)
    yield {"method": title} | found


def main(data_dir: Path, methods: Collection[str]) -> None:
    """Both tables, and what they took: in all calls, where some rows stay as they are."""
    torch.set_num_threads(1)
    began = time.process_time()
    size = PRESETS["cpu"]
    task = Tasks(size, files.load(data_dir), data_dir / "features")["original"]
    earlier: dict[str, Any] = {"seconds": 0.0, "rows": {}}
    if not STUDIED.keys() <= set(methods):
        earlier = kept(NAME)
    rows: dict[str, list[dict[str, Any]]] = {"lengths": [], "parts": []}

    def add(table: str, title: str, name: str, new: Iterable[dict[str, Any]]) -> None:
        stay = (row for row in earlier["rows"].get(table, ()) if row["method"] == title)
        for row in new if name in methods else stay:
            print(row, flush=True)
            rows[table].append(row)

    for name in STUDIED:
        add("lengths", METHODS[name].title, name, rows_by_length(task, name))
    for title, (name, method) in changed().items():
        add("parts", title, name, row_of_part(task, title, name, method))
    seconds = earlier["seconds"] + time.process_time() - began
    keep(NAME, command=COMMAND, seconds=seconds, rows=rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--methods", default=",".join(STUDIED))
    arguments = parser.parse_args()
    main(arguments.data_dir, arguments.methods.split(","))
