"""The experiment in parts, one for each method and variant, in four sizes.

Tuning is done once, with seed 0, and shared by all seeds: it lies beside their directories.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from secondguess.experiments.cifar10h import data as files
from secondguess.experiments.cifar10h import paper
from secondguess.experiments.cifar10h.claims import cifar10h_claims
from secondguess.experiments.cifar10h.data import AnnotatedInputs, Cifar10H
from secondguess.experiments.cifar10h.figures import draw_reliability_diagrams, draw_variants
from secondguess.experiments.cifar10h.fitting import predict
from secondguess.experiments.cifar10h.methods import METHODS, Method
from secondguess.experiments.cifar10h.page import cifar10h_section
from secondguess.experiments.cifar10h.protocol import (
    ProtocolConfig,
    Recipe,
    final_model,
    out_of_fold_recalibration,
    recalibrated_prediction,
    tune,
)
from secondguess.experiments.cifar10h.tables import RECALIBRATED
from secondguess.experiments.cifar10h.task import Task, frozen_task, image_task
from secondguess.experiments.cifar10h.variants import NUM_SUBCLASSES, VARIANTS, Variant
from secondguess.experiments.runner import Part, PartResult, run_experiment
from secondguess.theory.metrics import accuracy, annotator_kl, grouping_error, mean_variance
from secondguess.theory.records import Prediction
from secondguess.theory.reliability import (
    first_order_ece,
    second_order_ece,
    second_order_ece_floor,
    second_order_ece_standard_error,
)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The size of a run.

    >>> PRESETS["paper"].depth, PRESETS["paper"].width, PRESETS["cpu"].protocol.num_trials
    (28, 10, 12)

    Attributes:
        backbone: `frozen` features, or `wide-resnet`.
        protocol: lengths and trials.
        recipes: hyper-parameters by method, in place of a search; None to search.
        methods: keys of `METHODS`.
        variants: keys of `VARIANTS`.
        num_seeds: seeds of the variants `original` and `extra-scrambled`; the others have one.
        num_pretraining: pretraining images, the first ones.
        depth: of the wide ResNet.
        width: of the wide ResNet.
    """

    backbone: Literal["frozen", "wide-resnet"]
    protocol: ProtocolConfig
    recipes: Mapping[str, Recipe] | None = None
    methods: tuple[str, ...] = tuple(METHODS)
    variants: tuple[str, ...] = tuple(VARIANTS)
    num_seeds: int = 8
    num_pretraining: int = 50_000
    depth: int = 28
    width: int = 10


PRESETS = {
    "quick": Preset(
        backbone="frozen",
        protocol=ProtocolConfig(
            batch_size=256,
            short_pretraining=60,
            long_pretraining=180,
            finetuning_lengths=(20, 60),
            num_trials=3,
        ),
        variants=("original",),
        num_seeds=2,
        num_pretraining=6000,
    ),
    "cpu": Preset(
        backbone="frozen",
        protocol=ProtocolConfig(
            short_pretraining=150,
            long_pretraining=600,
            finetuning_lengths=(15, 30, 60, 120),
            num_trials=12,
        ),
    ),
    "cpu-wrn": Preset(
        backbone="wide-resnet",
        protocol=ProtocolConfig(batch_size=128),
        recipes={
            # 15 epochs of each, at the paper's rates
            name: paper.shortened(paper.RECIPES[name], num_epochs=15, batch_size=128)
            for name in ("naive", "cheat")
        },
        methods=("naive", "cheat"),
        variants=("original",),
        num_seeds=1,
        depth=16,
        width=2,
    ),
    "paper": Preset(
        backbone="wide-resnet",
        protocol=ProtocolConfig(batch_size=paper.BATCH_SIZE),
        recipes=paper.RECIPES,
        methods=("naive", "ensemble", "evidential", "sngp", "epinet", "cheat", "cheat-sngp"),
    ),
}
NUM_SEEDS = {name: preset.num_seeds for name, preset in PRESETS.items()}


def run_cifar10h(
    *,
    preset: str,
    out: Path,
    data_dir: Path | None = None,
    seed: int = 0,
    methods: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
) -> Path:
    """Run, or go on with, one seed; returns the directory of its results.

    Args:
        preset: a key of `PRESETS`.
        out: where results of all experiments are.
        data_dir: see `data.find_data_dir`; features are cached in it too.
        seed: of weights and batches; 0 also tunes.
        methods: some of the preset's, or None for all.
        variants: some of the preset's, or None for all. Seeds above 0 have only two of them.
    """
    _check_known("preset", [preset], PRESETS)
    _check_known("methods", methods or (), METHODS)
    _check_known("variants", variants or (), VARIANTS)
    size = PRESETS[preset]
    folder = files.find_data_dir(data_dir)
    loaded = files.load(folder)
    loaded = Cifar10H(loaded.pretraining[: size.num_pretraining], loaded.annotated)
    repeated = ("original", "extra-scrambled")
    wanted = [variant for variant in variants or size.variants if seed == 0 or variant in repeated]
    tuning = out / "cifar10h" / preset / "tuning"
    parts = [
        part
        for variant in wanted
        for part in variant_parts(
            size, loaded, variant, methods or size.methods, folder, tuning, seed
        )
    ]
    return run_experiment(
        experiment="cifar10h",
        preset=preset,
        seed=seed,
        config=asdict(size),
        parts=parts,
        claims=cifar10h_claims,
        draw=partial(draw_figures, loaded),
        describe=cifar10h_section,
        out=out,
    )


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
            subclass_probs=VARIANTS[variant].subclass_probs(),
        )


def make_task(size: Preset, loaded: Cifar10H, variant: Variant, cache_dir: Path) -> Task:
    """The data of a variant for the backbone of a preset."""
    if size.backbone == "frozen":
        return frozen_task(loaded, variant, cache_dir=cache_dir)
    return image_task(loaded, variant, depth=size.depth, width=size.width)


def variant_parts(
    size: Preset,
    loaded: Cifar10H,
    variant: str,
    methods: Sequence[str],
    data_dir: Path,
    tuning: Path,
    seed: int,
) -> list[Part]:
    """A part for each method on one variant."""
    tasks: dict[str, Task] = {}

    def task_of(name: str) -> Task:
        # Made when a part needs it: a run whose parts are finished computes no features.
        if name not in tasks:
            tasks[name] = make_task(size, loaded, VARIANTS[name], data_dir / "features")
        return tasks[name]

    def compute(name: str, directory: Path, done: Mapping[str, PartResult]) -> PartResult:
        method = METHODS[name]
        tuned_as = method.tuned_as or name
        if size.recipes is not None:
            recipe = size.recipes[tuned_as]
        else:
            # Hyper-parameters are those of the original data and of seed 0.
            recipe = tune(
                task_of("original"),
                METHODS[tuned_as],
                size.protocol,
                directory=tuning / tuned_as,
                seed=0,
            )
        result = final_result(
            task_of(variant), method, name, recipe, size.protocol, directory=directory, seed=seed
        )
        # The final model is kept; what led to it is gigabytes over all parts.
        for pattern in ("pretrained-*", "fold-*"):
            for leftover in directory.glob(pattern):
                shutil.rmtree(leftover)
        return result

    settings = asdict(size.protocol) | {
        "variant": variant,
        "num_pretraining": size.num_pretraining,
        "backbone": size.backbone,
        "depth": size.depth,
        "width": size.width,
    }
    return [
        Part(
            name=f"{variant}/{name}",
            config=settings | {"method": name, "seed": seed},
            compute=partial(compute, name),
        )
        for name in methods
    ]


def final_result(
    task: Task,
    method: Method,
    name: str,
    recipe: Recipe,
    config: ProtocolConfig,
    *,
    directory: Path,
    seed: int,
) -> PartResult:
    """Phases 2, 4 and 5: the rows of one method, recalibrated too where it is a pair model."""
    settings: dict[str, Any] = {"directory": directory, "seed": seed}
    model = final_model(task, method, recipe, config, **settings)
    trained_on, examples = task.data.all_finetuning, task.data.test
    rows = {name: predict(task, method, model, examples, trained_on=trained_on, seed=seed)}
    metrics: dict[str, Any] = {"recipe": asdict(recipe)}
    if method.is_pair_model:
        recalibration = out_of_fold_recalibration(task, method, recipe, config, **settings)
        rows[name + RECALIBRATED] = recalibrated_prediction(task, model, examples, recalibration)
        metrics["recalibration"] = asdict(recalibration)
    metrics["rows"] = {
        row: measure(prediction, examples, task.variant) for row, prediction in rows.items()
    }
    arrays = {
        f"{row}/{field}": getattr(prediction, field).astype(np.float32)
        for row, prediction in rows.items()
        for field in ("probs", "variance")
    }
    return PartResult(metrics, arrays)


def measure(
    prediction: Prediction, examples: AnnotatedInputs, variant: Variant
) -> dict[str, float]:
    """The metrics of appendix F.2.4, with the floor and the standard error of ECE-2.

    Args:
        prediction: for the split.
        examples: the split.
        variant: of the data. With extra classes, accuracy is that of the sum over sub-classes, and
            the floor is for annotators who choose sub-classes, which is a little more noise than
            the estimate with known p(sub-class|class) has.
    """
    probs, variance = prediction.probs, prediction.variance
    counts = examples.responses.counts()
    truth: dict[str, Any] = {"counts": counts, "subclass_probs": variant.subclass_probs()}
    rng = np.random.default_rng(0)
    width = NUM_SUBCLASSES if variant.extra_classes else 1
    ece = second_order_ece(probs, variance, **truth)
    floor = second_order_ece_floor(
        probs, variance, examples.responses.num_annotations, rng=rng, num_simulations=20
    )
    error = grouping_error(probs, **truth)
    return {
        "second_order_ece": ece,
        "second_order_ece_standard_error": second_order_ece_standard_error(
            probs, variance, rng=rng, num_resamples=50, **truth
        ),
        "second_order_ece_floor": floor,
        "relative_ece": ece / error,
        "relative_floor": floor / error,
        "mean_variance": mean_variance(variance),
        "grouping_error": error,
        "first_order_ece": first_order_ece(probs, **truth),
        "accuracy": 100
        * accuracy(probs.reshape(len(probs), -1, width).sum(axis=2).clip(0, 1), examples.labels),
        "kl": annotator_kl(probs, **truth),
    }


def _check_known(name: str, given: Sequence[str], known: Mapping[str, object]) -> None:
    for value in given:
        if value not in known:
            raise ValueError(f"{name} has {value!r}; expected one of {', '.join(known)}.")
