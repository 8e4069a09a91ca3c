import numpy as np
import pytest
import torch
from torch import nn

from secondguess.models.residual_mlp import ResidualMLP
from secondguess.training.ensembles import MemberStack, ensemble_loss
from secondguess.training.loop import TrainingConfig, train

NUM_MEMBERS = 3
CONFIG = TrainingConfig(num_steps=40, learning_rate=0.01, warmup_steps=5, clip_norm=0.3)


def make_member(seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    return ResidualMLP(2, 1, num_blocks=1, width=8, hidden_width=16, generator=generator)


def batch_of(seed: int, step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(10_000 * seed + step)
    inputs = torch.randn(32, 2, generator=generator)
    return {
        "inputs": inputs,
        "targets": inputs.prod(dim=1, keepdim=True),
        "weight": torch.tensor(1.0 + step / 40),
    }


def stacked_batch(step: int) -> dict[str, torch.Tensor]:
    """Each member's own batch, the member axis behind the batch axis."""
    batches = [batch_of(seed, step) for seed in range(NUM_MEMBERS)]
    stacked = {
        name: torch.stack([batch[name] for batch in batches], 1) for name in ("inputs", "targets")
    }
    return stacked | {"weight": batches[0]["weight"]}


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return batch["weight"] * (model(batch["inputs"]) - batch["targets"]).square().mean()


@pytest.mark.parametrize("vectorised", [True, False])
def test_members_trained_together_equal_members_trained_alone(vectorised: bool) -> None:
    stack = MemberStack([make_member(seed) for seed in range(NUM_MEMBERS)], vectorised=vectorised)
    together = train(stack, loss=ensemble_loss(loss), batch_at=stacked_batch, config=CONFIG)
    losses = np.zeros(CONFIG.num_steps)
    for seed in range(NUM_MEMBERS):
        alone = make_member(seed)
        history = train(
            alone, loss=loss, batch_at=lambda step, seed=seed: batch_of(seed, step), config=CONFIG
        )
        losses += history.losses
        member = stack.member(seed)
        for name, expected in alone.state_dict().items():
            torch.testing.assert_close(
                member.state_dict()[name], expected, rtol=1e-3, atol=1e-5, msg=name
            )
    np.testing.assert_allclose(together.losses, losses, rtol=1e-4)


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_stack_predicts_as_its_members_do(vectorised: bool) -> None:
    members = [make_member(seed) for seed in range(NUM_MEMBERS)]
    stack = MemberStack(members, vectorised=vectorised)
    inputs = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([member(inputs) for member in members])
    torch.testing.assert_close(stack(inputs), expected)
    torch.testing.assert_close(stack.member(1)(inputs), expected[1])


def test_a_shared_batch_needs_no_member_axis() -> None:
    members = [make_member(seed) for seed in range(NUM_MEMBERS)]
    batch = batch_of(0, 0)
    value = ensemble_loss(loss, shared=True)(MemberStack(members), batch)
    torch.testing.assert_close(value, torch.stack([loss(m, batch) for m in members]).sum())


@pytest.mark.parametrize("vectorised", [True, False])
def test_members_drop_out_independently(vectorised: bool) -> None:
    member = nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))
    stack = MemberStack([member, member], vectorised=vectorised)
    first, second = stack(torch.ones(64, 1))
    assert not torch.equal(first == 0, second == 0)  # by chance: 2^-64
    stack.eval()
    assert torch.equal(*stack(torch.ones(64, 1)))


def test_no_members_are_refused() -> None:
    with pytest.raises(ValueError, match="members is empty"):
        MemberStack([])
