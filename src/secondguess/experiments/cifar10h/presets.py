"""The sizes in which the experiment is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from secondguess.experiments.cifar10h import paper
from secondguess.experiments.cifar10h.methods import METHODS
from secondguess.experiments.cifar10h.protocol import ProtocolConfig, Recipe
from secondguess.experiments.cifar10h.variants import VARIANTS

REPEATED = ("original", "extra-scrambled")
"""Variants that all seeds of a preset have; the others have seed 0 alone, as in the paper."""


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
        num_pretraining: pretraining images, the first ones.
        num_copies: augmented copies of each image, for frozen features; wide ResNets augment each
            batch afresh.
        depth: of the wide ResNet.
        width: of the wide ResNet (a factor), or of the networks on features (their hidden units).
    """

    backbone: Literal["frozen", "wide-resnet"]
    protocol: ProtocolConfig
    recipes: Mapping[str, Recipe] | None = None
    methods: tuple[str, ...] = tuple(METHODS)
    variants: tuple[str, ...] = tuple(VARIANTS)
    num_pretraining: int = 50_000
    num_copies: int = 0
    depth: int = 28
    width: int = 10


PRESETS = {
    "quick": Preset(
        backbone="frozen",
        protocol=ProtocolConfig(
            batch_size=256,
            short_pretraining=60,
            long_pretraining=150,
            finetuning_lengths=(20, 60),
            num_trials=3,
        ),
        variants=("original",),
        num_pretraining=6000,
        width=128,
    ),
    "cpu": Preset(
        backbone="frozen",
        protocol=ProtocolConfig(
            batch_size=256,
            short_pretraining=100,
            long_pretraining=400,
            finetuning_lengths=(15, 30, 60, 120),
            num_trials=12,
        ),
        width=128,
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
