"""The heads on a world whose truth is known: `python examples/heads/compare.py`.

First, every head with endless data, beside the naive variance p (1 - p) and an ensemble of plain
classifiers: who knows what it does not know? Second, the mixture head against the symmetric one
where rows are few, where classes are many, and for several numbers of components. The results go to
--out as `heads.json`; with --docs the page docs/heads.md is renewed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hidden_world import HiddenWorld
from page import write_page
from torch import Tensor, nn

import secondguess as sg
from secondguess.classification.batches import PairBatch, pair_batches
from secondguess.classification.heads import HeadName, PairModel, build_head
from secondguess.classification.losses import pair_model_loss
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import held_out_loss, joint_of
from secondguess.classification.recalibration import fit_recalibration
from secondguess.models.residual_mlp import ResidualMLP
from secondguess.training.loop import TrainingConfig, train

NUM_TEST = 200_000
NUM_MEMBERS = 8
NUM_SEEDS = 3
DOCS = Path(__file__).parents[2] / "docs"
CLASSES = (5,)
LIMITED: list[tuple[int, int, HeadName, int | None]] = [
    (10, 1000, "symmetric", None),
    (10, 1000, "mixture", 10),
    (10, 20_000, "symmetric", None),
    (10, 20_000, "mixture", 3),
    (10, 20_000, "mixture", 10),
    (10, 20_000, "mixture", 20),
    (50, 5000, "symmetric", None),
    (50, 5000, "mixture", 10),
    (50, 5000, "mixture", 50),
]
HEAD_NAMES: tuple[HeadName, ...] = ("mixture", "symmetric", "binary")


def train_pair_head(
    world: HiddenWorld,
    head: HeadName,
    batch_at: Callable[[int], PairBatch],
    *,
    seed: int,
    num_steps: int,
    num_components: int | None = None,
    validation: tuple[Tensor, PairData] | None = None,
) -> PairModel:
    """A small residual MLP with this head."""
    generator = torch.Generator().manual_seed(seed)
    backbone = _backbone(generator)
    num_classes = len(world.phases)
    model = PairModel(
        backbone, build_head(head, 128, num_classes, num_components, generator=generator)
    )
    train(
        model,
        loss=pair_model_loss,
        batch_at=batch_at,
        config=_config(num_steps, seed),
        validate=validation
        and (lambda model: held_out_loss(joint_of(model, validation[0]), validation[1])),
    )
    return model


def train_plain(world: HiddenWorld, *, seed: int, num_steps: int, batch_size: int) -> nn.Module:
    """The same backbone with a softmax, trained by cross-entropy on both responses."""
    generator = torch.Generator().manual_seed(seed)
    backbone = _backbone(generator)
    model = nn.Sequential(backbone, nn.Linear(128, len(world.phases)))

    def loss(model: nn.Module, batch: PairBatch) -> Tensor:
        logits = model(batch.inputs)
        entropy = nn.functional.cross_entropy
        return (entropy(logits, batch.y1) + entropy(logits, batch.y2)) / 2

    train(
        model,
        loss=loss,
        batch_at=lambda step: world.batch_at(step, batch_size=batch_size, seed=seed),
        config=_config(num_steps, seed),
    )
    return model


def measure(prediction: sg.Prediction, true_probs: np.ndarray) -> dict[str, float]:
    """Mean variance and ECE-2 against the true grouping error."""
    truth = sg.Annotations.known(true_probs)
    error = sg.grouping_error(prediction, truth)
    return {
        "grouping_error": error,
        "mean_variance": sg.mean_variance(prediction),
        "second_order_ece": sg.second_order_ece(prediction, truth),
        "first_order_ece": sg.first_order_ece(prediction, truth),
        "negative_variances": float(np.mean(prediction.variance < 0)),
    }


def known_head(num_classes: int, head: HeadName, seed: int) -> dict[str, float]:
    """A pair head with endless data."""
    world, inputs, true_probs = _test_world(num_classes, seed)
    model = train_pair_head(
        world,
        head,
        lambda step: world.batch_at(step, batch_size=1024, seed=seed),
        seed=seed,
        num_steps=600,
    )
    return measure(joint_of(model, inputs).prediction(), true_probs)


def known_plain(num_classes: int) -> dict[str, dict[str, float]]:
    """The naive variance of a plain classifier, and the variance of an ensemble of them."""
    world, inputs, true_probs = _test_world(num_classes, seed=0)
    members = []
    for member in range(NUM_MEMBERS):
        model = train_plain(world, seed=100 + member, num_steps=400, batch_size=512)
        with torch.no_grad():
            members.append(model(inputs).double().softmax(1).numpy())
    naive = sg.Prediction(members[0], members[0] * (1 - members[0]))
    together = sg.Prediction(np.mean(members, axis=0), np.var(members, axis=0))
    return {
        "naive p(1-p)": measure(naive, true_probs),
        f"ensemble of {NUM_MEMBERS}": measure(together, true_probs),
    }


def _test_world(num_classes: int, seed: int) -> tuple[HiddenWorld, Tensor, np.ndarray]:
    world = HiddenWorld.random(num_classes)
    points, true_probs = world.sample(NUM_TEST, np.random.default_rng(10_000 + seed))
    return world, torch.from_numpy(points.astype(np.float32)), true_probs


def few_rows(
    num_classes: int, num_rows: int, head: HeadName, num_components: int | None
) -> dict[str, Any]:
    """A head on limited data, raw and recalibrated."""
    world = HiddenWorld.random(num_classes)
    inputs, data, _ = _rows(world, num_rows, seed=1)
    held_inputs, held_data, _ = _rows(world, max(num_rows // 5, 100), seed=2)
    test_inputs, test_data, true_probs = _rows(world, 20_000, seed=3)
    model = train_pair_head(
        world,
        head,
        pair_batches(inputs, data, batch_size=min(256, num_rows), seed=0),
        seed=0,
        num_steps=400,
        num_components=num_components,
        validation=(held_inputs, held_data),
    )
    joint = joint_of(model, test_inputs)
    recalibrated = fit_recalibration(joint_of(model, held_inputs), held_data)(joint.double())
    return {
        "pair_loss": held_out_loss(joint, test_data),
        "pair_loss_recalibrated": held_out_loss(recalibrated, test_data),
        "raw": measure(joint.prediction(), true_probs),
        "recalibrated": measure(recalibrated.prediction(), true_probs),
    }


def _rows(world: HiddenWorld, num_rows: int, seed: int) -> tuple[Tensor, PairData, np.ndarray]:
    rng = np.random.default_rng([77, seed])
    points, probs = world.sample(num_rows, rng)
    ends = probs.cumsum(axis=1)[:, None, :-1]
    responses = (rng.random((num_rows, 2, 1)) > ends).sum(axis=2)
    data = PairData.from_responses(responses, classes=range(probs.shape[1]))
    return torch.from_numpy(points.astype(np.float32)), data, probs


def _backbone(generator: torch.Generator) -> ResidualMLP:
    return ResidualMLP(2, num_blocks=2, width=64, hidden_width=128, generator=generator)


def _config(num_steps: int, seed: int) -> TrainingConfig:
    return TrainingConfig(
        num_steps=num_steps, learning_rate=3e-3, warmup_steps=50, validate_every=25, seed=seed
    )


def _cached(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` gave the first time, so that a run that was cut short resumes."""
    if not path.exists():
        partial_path = path.with_suffix(".partial")
        partial_path.write_text(json.dumps(make()))
        os.replace(partial_path, path)
        print(f"measured {path.stem}", flush=True)
    return json.loads(path.read_text())


def main() -> None:
    """Run everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/heads"))
    parser.add_argument("--docs", action="store_true", help="renew the page in docs/")
    arguments = parser.parse_args()
    pieces = arguments.out / "pieces"
    pieces.mkdir(parents=True, exist_ok=True)
    known: list[dict[str, Any]] = []
    for num_classes in CLASSES:
        for seed in range(NUM_SEEDS):
            for head in HEAD_NAMES:
                path = pieces / f"known-{num_classes}-{head}-{seed}.json"
                row = _cached(path, partial(known_head, num_classes, head, seed))
                known.append({"num_classes": num_classes, "seed": seed, "method": head, **row})
        plain = _cached(pieces / f"plain-{num_classes}.json", partial(known_plain, num_classes))
        for name, row in plain.items():
            known.append({"num_classes": num_classes, "seed": 0, "method": name, **row})
    limited = []
    for num_classes, num_rows, head, number in LIMITED:
        path = pieces / f"limited-{num_classes}-{num_rows}-{head}-{number}.json"
        row = _cached(path, partial(few_rows, num_classes, num_rows, head, number))
        limited.append(
            {
                "num_classes": num_classes,
                "num_rows": num_rows,
                "head": head,
                "num_components": number,
                **row,
            }
        )
    result = {
        "experiment": "heads",
        "command": "python examples/heads/compare.py --docs",
        "num_test": NUM_TEST,
        "known": known,
        "limited": limited,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "machine": platform.machine(),
    }
    path = arguments.out / "heads.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {path}")
    if arguments.docs:
        (DOCS / "results").mkdir(exist_ok=True)
        (DOCS / "results" / "heads.json").write_text(path.read_text())
        write_page(result, DOCS / "heads.md")


if __name__ == "__main__":
    main()
