"""The heads on a world whose truth is known: `python examples/heads/compare.py`.

First, every head with endless data, beside the naive variance p (1 - p) and an ensemble of plain
classifiers: who knows what it does not know? Second, the mixture head against the symmetric one
where rows are few, where classes are many, and for several numbers of components. The results go to
--out as `heads.json`; with --docs the page docs/heads.md is renewed.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hidden_world import HiddenWorld
from page import write_page
from torch import Tensor, nn

import secondguess as sg
from secondguess.learning.batches import PairBatch, pair_batches
from secondguess.learning.fitting import HeadName, build_head, held_out_loss, joint_of
from secondguess.learning.heads import PairModel
from secondguess.learning.losses import pair_model_loss
from secondguess.learning.pairs import PairData
from secondguess.learning.recalibration import fit_recalibration
from secondguess.learning.training import TrainingConfig, train
from secondguess.models.residual_mlp import ResidualMLP

NUM_TEST = 200_000
NUM_MEMBERS = 8
NUM_SEEDS = 3
DOCS = Path(__file__).parents[2] / "docs"
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
    probs, variance = prediction.probs, prediction.variance
    error = sg.grouping_error(probs, true_probs=true_probs)
    return {
        "grouping_error": error,
        "mean_variance": sg.mean_variance(variance),
        "second_order_ece": sg.second_order_ece(probs, variance, true_probs=true_probs),
        "first_order_ece": sg.first_order_ece(probs, true_probs=true_probs),
        "negative_variances": float(np.mean(variance < 0)),
    }


def known_world(
    num_classes: int, *, seed: int, with_plain: bool, num_steps: int = 600
) -> dict[str, Any]:
    """Every head with endless data; if asked for, the plain classifiers beside them."""
    world = HiddenWorld.random(num_classes)
    points, true_probs = world.sample(NUM_TEST, np.random.default_rng(10_000 + seed))
    inputs = torch.from_numpy(points.astype(np.float32))
    rows = {}
    for head in HEAD_NAMES:
        model = train_pair_head(
            world,
            head,
            lambda step: world.batch_at(step, batch_size=1024, seed=seed),
            seed=seed,
            num_steps=num_steps,
        )
        rows[head] = measure(joint_of(model, inputs).prediction(), true_probs)
    if not with_plain:
        return rows
    members = []
    for member in range(NUM_MEMBERS):
        model = train_plain(
            world, seed=100 * (seed + 1) + member, num_steps=num_steps, batch_size=1024
        )
        with torch.no_grad():
            members.append(model(inputs).double().softmax(1).numpy())
    plain = members[0]
    rows["naive p(1-p)"] = measure(sg.Prediction(plain, plain * (1 - plain)), true_probs)
    together = sg.Prediction(np.mean(members, axis=0), np.var(members, axis=0))
    rows[f"ensemble of {NUM_MEMBERS}"] = measure(together, true_probs)
    return rows


def few_rows(num_classes: int, num_rows: int, components: tuple[int, ...]) -> list[dict[str, Any]]:
    """The symmetric and the mixture head on limited data, raw and recalibrated."""
    world = HiddenWorld.random(num_classes)
    parts = [
        _rows(world, size, seed)
        for size, seed in ((num_rows, 1), (max(num_rows // 5, 100), 2), (20_000, 3))
    ]
    (inputs, data, _), validation, (test_inputs, test_data, true_probs) = parts
    batch_at = pair_batches(inputs, data, batch_size=min(512, num_rows), seed=0)
    settings: list[tuple[HeadName, int | None]] = [("symmetric", None)]
    for number in components:
        settings.append(("mixture", number))
    rows = []
    for head, number in settings:
        start = time.monotonic()
        model = train_pair_head(
            world,
            head,
            batch_at,
            seed=0,
            num_steps=400,
            num_components=number,
            validation=validation[:2],
        )
        seconds = time.monotonic() - start
        fit = fit_recalibration(joint_of(model, validation[0]), validation[1])
        joint = joint_of(model, test_inputs)
        recalibrated = fit(joint.double())
        rows.append(
            {
                "num_classes": num_classes,
                "num_rows": num_rows,
                "head": head,
                "num_components": number,
                "pair_loss": held_out_loss(joint, test_data),
                "pair_loss_recalibrated": held_out_loss(recalibrated, test_data),
                "raw": measure(joint.prediction(), true_probs),
                "recalibrated": measure(recalibrated.prediction(), true_probs),
                "seconds": round(seconds, 1),
            }
        )
        print(_short(rows[-1]), flush=True)
    return rows


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


def _short(row: dict[str, Any]) -> str:
    raw, better = row["raw"], row["recalibrated"]
    return (
        f"K={row['num_classes']} n={row['num_rows']} {row['head']} R={row['num_components']} "
        f"loss {row['pair_loss']:.4f} -> {row['pair_loss_recalibrated']:.4f}, ECE-2 "
        f"{raw['second_order_ece']:.4f} -> {better['second_order_ece']:.4f} of "
        f"{raw['grouping_error']:.4f}, {row['seconds']} s"
    )


def main() -> None:
    """Run everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/heads"))
    parser.add_argument("--docs", action="store_true", help="renew the page in docs/")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    known: list[dict[str, Any]] = []
    for num_classes in (2, 5):
        for seed in range(NUM_SEEDS):
            rows = known_world(num_classes, seed=seed, with_plain=seed == 0)
            known += [
                {"num_classes": num_classes, "seed": seed, "method": name, **row}
                for name, row in rows.items()
            ]
            for row in known[-len(rows) :]:
                error = row["grouping_error"]
                print(
                    f"K={num_classes} seed {seed} {row['method']:14} variance/error "
                    f"{row['mean_variance'] / error:.3f} ECE-2/error "
                    f"{row['second_order_ece'] / error:.3f}",
                    flush=True,
                )
    limited = [
        *few_rows(3, 500, (3,)),
        *few_rows(10, 1000, (2, 10, 20)),
        *few_rows(10, 20_000, (2, 5, 10, 20)),
        *few_rows(50, 5000, (5, 10, 50)),
    ]
    result = {
        "experiment": "heads",
        "command": "python examples/heads/compare.py --docs",
        "num_test": NUM_TEST,
        "known": known,
        "limited": limited,
        "seconds": round(time.monotonic() - start),
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
