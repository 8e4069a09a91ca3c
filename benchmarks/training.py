"""Training steps of pair models and of ensembles, as ratios against plain cross-entropy.

Run with `make bench`, or `python benchmarks/training.py [--seconds 4]`. A step is what the training
loop does: batch, loss, gradient, AdamW. The sides of a ratio take their steps in turn, on one
thread; each time is processor time, the least of all its steps, so that a busy machine hardly
counts. The network is the residual MLP of appendix F.1 with 32 inputs, 10 classes and batches of
512.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from timing import best_seconds
from torch import Tensor, nn

from secondguess.baselines import ensemble, naive
from secondguess.classification.batches import PairBatch, pair_batches
from secondguess.classification.heads import MixturePairHead, PairModel, SymmetricPairHead
from secondguess.classification.losses import pair_model_loss
from secondguess.classification.pairs import PairData
from secondguess.models.residual_mlp import ResidualMLP
from secondguess.training.ensembles import MemberStack

NUM_INPUTS, NUM_CLASSES, BATCH_SIZE, NUM_ROWS, NUM_MEMBERS = 32, 10, 512, 25_000, 8
Step = Callable[[], object]
fastest = partial(best_seconds, repeats=1, warm_up=True, clock=time.process_time)


def training_step(
    model: nn.Module, loss: Callable[..., Tensor], batch_at: Callable[[int], PairBatch]
) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss(model, batch_at(0)).backward()
        optimizer.step()

    return step


def pair_data(rng: np.random.Generator) -> tuple[Tensor, PairData]:
    inputs = torch.from_numpy(rng.standard_normal((NUM_ROWS, NUM_INPUTS))).float()
    counts = rng.multinomial(50, rng.dirichlet(np.ones(NUM_CLASSES), size=NUM_ROWS))
    return inputs, PairData.from_counts(counts)


def compare_heads(seconds: float) -> None:
    inputs, data = pair_data(np.random.default_rng(0))
    batch = pair_batches(inputs, data, batch_size=BATCH_SIZE, seed=0)(0)

    def fixed(step: int) -> PairBatch:
        return batch

    def with_head(head: type) -> PairModel:
        backbone = ResidualMLP(NUM_INPUTS)
        return PairModel(backbone, head(backbone.num_features, NUM_CLASSES))

    steps = [
        training_step(ResidualMLP(NUM_INPUTS, NUM_CLASSES), naive.loss, fixed),
        training_step(with_head(MixturePairHead), pair_model_loss, fixed),
        training_step(with_head(SymmetricPairHead), pair_model_loss, fixed),
    ]
    plain, mixture, symmetric = fastest(*steps, seconds=2 * seconds)
    print(f"cross-entropy step             {1e3 * plain:8.2f} ms")
    print(f"mixture head                   {mixture / plain:8.2f} x   (at most 1.2)")
    print(f"symmetric head and penalty     {symmetric / plain:8.2f} x   (at most 1.8)")

    # An epoch of batches, so that the draw of its pairs is shared as in a training.
    num_batches = NUM_ROWS // BATCH_SIZE
    epochs = iter(range(10**9))

    def draw_epoch() -> None:
        batch_at = pair_batches(inputs, data, batch_size=BATCH_SIZE, seed=next(epochs))
        for step in range(num_batches):
            batch_at(step)

    (drawing,) = fastest(draw_epoch, seconds=seconds / 2)
    share = drawing / num_batches / plain
    print(f"drawing pairs, of that step    {100 * share:8.2f} %   (at most 5)")


def compare_ensembles(seconds: float) -> None:
    print(f"\n{NUM_MEMBERS} members together, against {NUM_MEMBERS} in turn (at most 1.1 x)")
    for width in (16, 32, 64, 128, 256, 512):
        members = [
            ResidualMLP(1, 1, width=width // 4, hidden_width=width) for _ in range(NUM_MEMBERS)
        ]
        inputs = torch.randn(BATCH_SIZE, NUM_MEMBERS, 1)
        responses = torch.randint(2, (BATCH_SIZE, NUM_MEMBERS))
        batch = PairBatch(inputs, responses, responses)
        own_batches = [
            PairBatch(*(part[:, m] for part in (inputs, responses, responses)))
            for m in range(NUM_MEMBERS)
        ]
        alone = [
            training_step(member, naive.loss, lambda step, own=own: own)
            for member, own in zip(members, own_batches, strict=True)
        ]

        def in_turn(alone: list[Step] = alone) -> None:
            for step in alone:
                step()

        together = training_step(
            MemberStack(members), ensemble.loss, lambda step, batch=batch: batch
        )
        turn, stacked = fastest(in_turn, together, seconds=seconds)
        print(f"hidden width {width:4} {1e3 * turn:10.2f} ms in turn {stacked / turn:8.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each comparison")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}")
    compare_heads(arguments.seconds)
    compare_ensembles(arguments.seconds)


if __name__ == "__main__":
    main()
