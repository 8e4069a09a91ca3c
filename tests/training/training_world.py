"""A small training, run by the tests here and, as a program, by those that kill it or launch two:
`python training_world.py CHECKPOINTS OUT [OPTION=VALUE ...]`.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from accelerate import PartialState
from safetensors.torch import save_file
from torch import nn

from secondguess.models.residual_mlp import ResidualMLP
from secondguess.training.loop import TrainingConfig, TrainingHistory, train

CONFIG = {
    "num_steps": 60,
    "learning_rate": 0.01,
    "warmup_steps": 5,
    "clip_norm": 1.0,
    "accumulation_steps": 2,
    "average_decay": 0.9,
    "validate_every": 10,
    "seed": 3,
}


class World(nn.Sequential):
    def hidden_matrices(self) -> list[nn.Parameter]:
        return [weight for weight in self[0].blocks.parameters() if weight.ndim == 2]  # pyright: ignore


def make_model() -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    network = ResidualMLP(2, 1, num_blocks=1, width=8, hidden_width=16, generator=generator)
    return World(network, nn.Dropout(0.0))


def batch_at(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    inputs = torch.randn(32, 2, generator=generator)
    return {"inputs": inputs, "targets": inputs.prod(dim=1, keepdim=True)}


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return (model(batch["inputs"]) - batch["targets"]).square().mean()


def run(
    checkpoint_dir: Path | None = None,
    *,
    dropout: float = 0.0,
    before_step: Callable[[int], None] = lambda step: None,
    **changes,
) -> tuple[nn.Module, TrainingHistory]:
    model = make_model()
    model[1].p = dropout  # pyright: ignore[reportIndexIssue]

    def next_batch(step: int) -> dict[str, torch.Tensor]:
        before_step(step)
        return batch_at(step)

    history = train(
        model,
        loss=loss,
        batch_at=next_batch,
        config=TrainingConfig(**(CONFIG | changes)),
        validate=lambda model: float(loss(model, batch_at(-1))),
        checkpoint_dir=checkpoint_dir,
        checkpoint_every=4,
    )
    return model, history


if __name__ == "__main__":
    torch.set_num_threads(1)
    checkpoints, out, *options = sys.argv[1:]
    chosen = {name: float(value) for name, value in (option.split("=") for option in options)}
    expected_processes = int(chosen.pop("num_processes", 1))
    if "num_steps" in chosen:
        chosen["num_steps"] = int(chosen["num_steps"])
    pause = chosen.pop("pause", 0.0)
    trained, record = run(Path(checkpoints), before_step=lambda step: time.sleep(pause), **chosen)
    assert PartialState().num_processes == expected_processes
    tensors = {name: tensor.contiguous() for name, tensor in trained.state_dict().items()}
    save_file(tensors | {"losses": torch.from_numpy(record.losses)}, out)
