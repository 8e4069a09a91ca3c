import pytest
import torch
from torch import nn
from training.training_world import batch_at, loss, make_model

from secondguess.training.loop import TrainingConfig, learning_rate_at, train
from secondguess.training.muon import Muon, orthogonalised


@pytest.mark.parametrize("shape", [(64, 64), (192, 64), (64, 256), (5, 1)])
def test_singular_values_go_through_the_quintic_and_singular_vectors_stay(
    shape: tuple[int, int],
) -> None:
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(7, *shape, generator=generator, dtype=torch.float64)
    outputs, values, inputs = torch.linalg.svd(matrices, full_matrices=False)
    values = values / values.norm(dim=1, keepdim=True)
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    expected = outputs @ torch.diag_embed(values) @ inputs
    torch.testing.assert_close(orthogonalised(matrices), expected, rtol=0, atol=1e-9)
    assert (values > 0.6).double().mean() > 0.95, "not near 1"
    assert values.max() < 1.25


def test_its_steps_are_those_of_torch_but_for_bfloat16() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(64, 64), (192, 64), (64, 256), (64, 64)]
    first = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    second = [nn.Parameter(weight.detach().clone()) for weight in first]
    start = [weight.detach().clone() for weight in first]
    ours, peer = Muon(first, lr=0.02), torch.optim.Muon(second, lr=0.02, weight_decay=0.0)
    for _ in range(5):
        for one, other in zip(first, second, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        ours.step()
        peer.step()
    for one, other, origin in zip(first, second, start, strict=True):
        moved, expected = one - origin, other - origin
        # bfloat16 has 8 bits, and five iterations carry its rounding on.
        assert (moved - expected).norm() < 0.03 * expected.norm()


def test_only_matrices_are_taken_and_a_zero_gradient_moves_nothing() -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\).*another optimizer"):
        Muon([nn.Parameter(torch.zeros(3))])
    weight = nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.zeros(2, 3)
    Muon([weight]).step()
    assert torch.equal(weight, torch.ones(2, 3))


def test_a_kernel_moves_as_the_matrix_of_its_patches() -> None:
    generator = torch.Generator().manual_seed(0)
    kernel = nn.Parameter(torch.randn(4, 2, 3, 3, generator=generator))
    matrix = nn.Parameter(kernel.detach().flatten(1).clone())
    kernel.grad = torch.randn(kernel.shape, generator=generator)
    matrix.grad = kernel.grad.flatten(1)
    Muon([kernel]).step()
    Muon([matrix]).step()
    torch.testing.assert_close(kernel.flatten(1), matrix)


def test_a_training_gives_matrices_to_muon_and_the_rest_to_adamw() -> None:
    config = TrainingConfig(
        num_steps=20, learning_rate=0.01, matrix_learning_rate=0.05, warmup_steps=5
    )
    model, expected = make_model(), make_model()
    train(model, loss=loss, batch_at=batch_at, config=config)

    matrices = expected.hidden_matrices()  # pyright: ignore[reportCallIssue]
    others = [
        weight
        for weight in expected.parameters()
        if not any(weight is matrix for matrix in matrices)
    ]
    assert matrices
    adamw = torch.optim.AdamW(others, weight_decay=config.weight_decay)
    muon = Muon(matrices)
    for step in range(20):
        expected.zero_grad()
        loss(expected, batch_at(step)).backward()
        adamw.param_groups[0]["lr"] = learning_rate_at(config, step)
        muon.param_groups[0]["lr"] = 5 * learning_rate_at(config, step)
        adamw.step()
        muon.step()
    for (name, got), want in zip(model.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, msg=name)


def test_a_model_that_does_not_name_its_matrices_is_refused() -> None:
    config = TrainingConfig(num_steps=1, matrix_learning_rate=0.02)
    with pytest.raises(ValueError, match=r"matrix_learning_rate is 0.02, and Linear has no module"):
        train(nn.Linear(1, 1), loss=loss, batch_at=batch_at, config=config)
