"""The presets of the experiment, and its parts: one per method and variant, for one seed.

Tuning is done once, with seed 0, and shared by all seeds: it lies beside their directories.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from secondguess._files import read_document, write_document
from secondguess.experiments.cifar10h import data as files
from secondguess.experiments.cifar10h.data import Cifar10H
from secondguess.experiments.cifar10h.evaluation import final_result
from secondguess.experiments.cifar10h.frozen import frozen_task
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.page import (
    cifar10h_section,
    draw_reliability_diagrams,
    draw_variants,
)
from secondguess.experiments.cifar10h.protocol import (
    PAPER_RECIPES,
    PIXEL_RECIPE,
    QUICK_RECIPE,
    ProtocolConfig,
    Recipe,
    tune,
)
from secondguess.experiments.cifar10h.summary import summarise
from secondguess.experiments.cifar10h.task import REPEATED, VARIANTS, Task, image_task
from secondguess.experiments.runner import Part, PartResult, check_known, run_experiment
from secondguess.models.whitened_resnet import WhitenedResNet
from secondguess.models.wide_resnet import WideResNet


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The size of a run.

    >>> PRESETS["paper"].depth, PRESETS["paper"].width, PRESETS["cpu"].protocol.num_trials
    (28, 10, 12)

    Attributes:
        backbone: `frozen` features, or `whitened-resnet` or `wide-resnet` on images.
        protocol: lengths and trials.
        longer: the protocols of methods that are not at their best with its lengths, by method.
        recipes: hyper-parameters by method, in place of a search; None to search.
        methods: keys of `METHODS`.
        variants: keys of `VARIANTS`.
        num_pretraining: pretraining images, the first ones.
        num_copies: augmented copies of each image, for frozen features; images are augmented afresh
            in each batch.
        depth: of the wide ResNet.
        width: of the wide ResNet (a factor), or of the networks on features (their hidden units).
    """

    backbone: Literal["frozen", "whitened-resnet", "wide-resnet"]
    protocol: ProtocolConfig
    longer: Mapping[str, ProtocolConfig] = field(default_factory=dict)
    recipes: Mapping[str, Recipe] | None = None
    methods: tuple[str, ...] = tuple(METHODS)
    variants: tuple[str, ...] = tuple(VARIANTS)
    num_pretraining: int = 50_000
    num_copies: int = 0
    depth: int = 28
    width: int = 10

    def make_network(self, examples: Tensor, **settings: Any) -> nn.Module:
        """A network on images, see `image_task`."""
        if self.backbone == "whitened-resnet":
            return WhitenedResNet(examples, **settings)
        return WideResNet(depth=self.depth, width=self.width, **settings)

    def protocol_of(self, name: str) -> ProtocolConfig:
        """The lengths and trials of a method, or of the one whose hyper-parameters it takes over.

        >>> cpu = PRESETS["cpu"]
        >>> cpu.protocol_of("ensemble") == cpu.protocol_of("naive") == cpu.protocol
        True
        """
        return self.longer.get(METHODS[name].tuned_as or name, self.protocol)


_TUNING, _FORMAT = "secondguess tuning", 1

_ON_FEATURES = ProtocolConfig(
    batch_size=256,
    short_pretraining=100,
    long_pretraining=400,
    finetuning_lengths=(15, 30, 60, 120),
    num_trials=12,
)
_LONGER_ON_FEATURES = replace(
    _ON_FEATURES,
    short_pretraining=400,
    long_pretraining=1600,
    finetuning_lengths=(15, 30, 60, 120, 240, 480),
    num_trials=48,
)
"""Of the two methods that still gain from the longest trainings of the others, with more trials
because there are more lengths (docs/cifar10h.md)."""

PRESETS = {
    "quick": Preset(
        backbone="frozen",
        protocol=ProtocolConfig(batch_size=256),
        recipes=dict.fromkeys(("naive", "cheat", "cheat-all-pairs"), QUICK_RECIPE),
        methods=("naive", "ensemble", "cheat", "cheat-all-pairs"),
        variants=("original",),
        num_pretraining=6000,
        width=128,
    ),
    "cpu": Preset(
        backbone="frozen",
        protocol=_ON_FEATURES,
        longer={"evidential": _LONGER_ON_FEATURES, "epinet": _LONGER_ON_FEATURES},
        width=128,
    ),
    "cpu-pixels": Preset(
        backbone="whitened-resnet",
        protocol=ProtocolConfig(batch_size=256, num_folds=0),
        recipes=dict.fromkeys(("naive", "cheat", "cheat-sngp"), PIXEL_RECIPE),
        methods=("naive", "cheat", "cheat-sngp"),
        variants=("original",),
    ),
    "paper": Preset(
        backbone="wide-resnet",
        protocol=ProtocolConfig(),
        recipes=PAPER_RECIPES,
        methods=("naive", "ensemble", "evidential", "sngp", "epinet", "cheat", "cheat-sngp"),
    ),
}


def run_cifar10h(
    *,
    preset: str,
    out: Path,
    data_dir: Path | None = None,
    seed: int = 0,
    methods: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    num_copies: int | None = None,
) -> Path:
    """Run or resume one seed; returns the directory of the summary of all finished seeds.

    A seed's own `result.json` has no claims: they are about all seeds (see `summary.py`).

    Args:
        preset: a key of `PRESETS`.
        out: where results of all experiments are.
        data_dir: see `data.find_data_dir`; features are cached in it too.
        seed: of weights and batches; 0 also tunes.
        methods: some of the preset's, or None for all.
        variants: some of the preset's, or None for all. Seeds above 0 have only two of them.
        num_copies: augmented copies of each image for frozen features; None for the preset's.
    """
    check_known("preset", [preset], PRESETS)
    check_known("method", methods or (), METHODS)
    check_known("variant", variants or (), VARIANTS)
    size = PRESETS[preset]
    if num_copies is not None:
        size = replace(size, num_copies=num_copies)
    folder = files.find_data_dir(data_dir)
    loaded = files.load(folder)
    loaded = Cifar10H(loaded.pretraining[: size.num_pretraining], loaded.annotated)
    tasks = Tasks(size, loaded, folder / "features")
    wanted = [variant for variant in variants or size.variants if seed == 0 or variant in REPEATED]
    tuning = out / "cifar10h" / preset / "tuning"
    directory = run_experiment(
        experiment="cifar10h",
        preset=preset,
        seed=seed,
        config=asdict(size),
        parts=[
            method_part(tasks, variant, name, tuning=tuning, seed=seed)
            for variant in wanted
            for name in methods or size.methods
        ],
        claims=lambda done: [],
        draw=partial(draw_figures, loaded),
        describe=cifar10h_section,
        out=out,
    )
    return summarise(directory.parent, loaded.test)


class Tasks:
    """The variants as tensors, made when a part needs them: a finished run computes no features.

    Variants with the same pixels share them.
    """

    def __init__(self, size: Preset, data: Cifar10H, cache_dir: Path) -> None:
        self.size, self._data, self._cache_dir = size, data, cache_dir
        self._made: dict[bool, Task] = {}

    def __getitem__(self, name: str) -> Task:
        variant = VARIANTS[name]
        if variant.scrambled not in self._made:
            size = self.size
            self._made[variant.scrambled] = (
                frozen_task(
                    self._data,
                    variant,
                    cache_dir=self._cache_dir,
                    width=size.width,
                    num_copies=size.num_copies,
                    report=print,
                )
                if size.backbone == "frozen"
                else image_task(self._data, variant, size.make_network)
            )
        return replace(self._made[variant.scrambled], variant=variant)


def method_part(tasks: Tasks, variant: str, name: str, *, tuning: Path, seed: int) -> Part:
    """One method on one variant: tuned on the original where that is not done yet, then final.

    Args:
        tasks: the data.
        variant: a key of `VARIANTS`.
        name: a key of `METHODS`.
        tuning: directory of all tuning.
        seed: of the final training runs.
    """
    size, method = tasks.size, METHODS[name]
    protocol = size.protocol_of(name)
    settings = asdict(protocol) | {
        "num_pretraining": size.num_pretraining,
        "num_copies": size.num_copies,
        "backbone": size.backbone,
        "depth": size.depth,
        "width": size.width,
    }

    def compute(directory: Path, done: Mapping[str, PartResult]) -> PartResult:
        tuned_as = method.tuned_as or name
        if size.recipes is not None:
            recipe = size.recipes[tuned_as]
        else:
            # Hyper-parameters are those of the original data and of seed 0.
            _check_same_settings(tuning / tuned_as, {"method": tuned_as, **settings})
            recipe = tune(
                tasks["original"],
                METHODS[tuned_as],
                protocol,
                directory=tuning / tuned_as,
                seed=0,
            )
        result = final_result(
            tasks[variant],
            method,
            name,
            recipe,
            protocol,
            directory=directory,
            seed=seed,
            watched=size.backbone == "whitened-resnet",
        )
        # The final model is kept; what led to it is gigabytes over all parts.
        for pattern in ("pretrained-*", "fold-*"):
            for leftover in directory.glob(pattern):
                shutil.rmtree(leftover)
        return result

    config = settings | {"variant": variant, "method": name, "seed": seed}
    if size.recipes is not None:
        config["recipe"] = asdict(size.recipes[method.tuned_as or name])
    return Part(name=f"{variant}/{name}", config=config, compute=compute)


def draw_figures(loaded: Cifar10H, done: Mapping[str, PartResult], directory: Path) -> None:
    """The variants, and a figure of reliability diagrams for each variant that was run."""
    draw_variants(loaded.validation, directory / "variants.png")
    for variant in dict.fromkeys(name.split("/")[0] for name in done):
        rows = {
            row: (part.arrays[f"{row}/probs"].astype(float), part.arrays[f"{row}/variance"])
            for name, part in done.items()
            if name.split("/")[0] == variant
            for row in part.metrics["rows"]
        }
        # Rows of float32 probabilities sum to one to seven digits only.
        rows = {
            row: (probs / probs.sum(axis=1, keepdims=True), variance)
            for row, (probs, variance) in rows.items()
        }
        draw_reliability_diagrams(
            rows,
            loaded.test,
            directory / f"reliability-{variant}.png",
            variant=VARIANTS[variant],
        )


def _check_same_settings(directory: Path, settings: Mapping[str, Any]) -> None:
    """Trials of other settings must not be taken for finished ones."""
    path = directory / "settings.json"
    wanted = json.loads(json.dumps({"settings": settings}))
    what = "the settings of a tuning; remove its folder"
    found = read_document(path, _TUNING, _FORMAT, what=what) if path.exists() else wanted
    if found != wanted:
        raise ValueError(
            f"{directory} holds tuning with the settings {found}; now they are {wanted}. Name "
            f"another --out, or remove it."
        )
    directory.mkdir(parents=True, exist_ok=True)
    write_document(path, _TUNING, _FORMAT, wanted)
