"""Every baseline goes through the same tests; what only one of them promises follows."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

from secondguess.baselines import (
    ensemble,
    epinet,
    evidential,
    forest,
    gaussian_process,
    naive,
    sngp,
)
from secondguess.classification.batches import PairBatch
from secondguess.models.epinet import Epinet
from secondguess.models.random_features import OrthogonalRandomFeatures, RandomFeatureNetwork
from secondguess.models.residual_mlp import ResidualMLP
from secondguess.theory.records import Prediction
from secondguess.training.ensembles import MemberStack
from secondguess.training.loop import TrainingConfig, train

INPUTS = torch.tensor([[-1.0], [0.0], [1.0]])
TRUE_PROBS = np.array([0.1, 0.5, 0.8])
NUM_ROWS = 3000
CONFIG = TrainingConfig(num_steps=300, learning_rate=0.01, warmup_steps=20)


def world() -> tuple[Tensor, Tensor]:
    """Inputs -1, 0 and 1, each 1,000 times, with responses in the exact shares of the truth."""
    ones = (NUM_ROWS // 3 * TRUE_PROBS).astype(int)
    columns = [torch.arange(NUM_ROWS // 3) < count for count in ones]
    first = torch.cat(columns).long()
    # The second response pairs up at random, so that the two are independent in each group.
    generator = torch.Generator().manual_seed(0)
    second = torch.cat(
        [column[torch.randperm(len(column), generator=generator)] for column in columns]
    ).long()
    return INPUTS.repeat_interleave(NUM_ROWS // 3, dim=0), torch.stack([first, second], dim=1)


def batches(seed: int = 0) -> Callable[[int], PairBatch]:
    inputs, responses = world()

    def batch_at(step: int) -> PairBatch:
        generator = torch.Generator().manual_seed(1000 * seed + step)
        rows = torch.randint(NUM_ROWS, (256,), generator=generator)
        return PairBatch(inputs[rows], responses[rows, 0], responses[rows, 1])

    return batch_at


def network(num_outputs: int, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    return ResidualMLP(1, num_outputs, num_blocks=1, width=8, hidden_width=32, generator=generator)


def fitted_naive() -> Callable[[Tensor], Prediction]:
    model = network(2)
    train(model, loss=naive.loss, batch_at=batches(), config=CONFIG)
    return lambda inputs: naive.predict(model, inputs)


def fitted_log_odds() -> Callable[[Tensor], Prediction]:
    model = network(1)
    train(model, loss=naive.loss, batch_at=batches(), config=CONFIG)
    return lambda inputs: naive.predict(model, inputs)


def fitted_ensemble() -> Callable[[Tensor], Prediction]:
    stack = MemberStack([network(1, seed) for seed in range(4)])
    batch_at = ensemble.member_batches([batches(seed) for seed in range(4)])
    train(stack, loss=ensemble.loss, batch_at=batch_at, config=CONFIG)
    return lambda inputs: ensemble.predict(stack, inputs)


def fitted_evidential() -> Callable[[Tensor], Prediction]:
    model = network(2)
    batch_at = evidential.regularised_batches(batches(), final_weight=0.0, ramp_steps=100)
    train(model, loss=evidential.loss, batch_at=batch_at, config=CONFIG)
    return lambda inputs: evidential.predict(model, inputs)


def fitted_gaussian_process() -> Callable[[Tensor], Prediction]:
    settings = gaussian_process.GaussianProcessConfig(length_scale=0.5, num_inducing=17)
    fitted = gaussian_process.fit(*world(), settings)
    return lambda inputs: gaussian_process.predict(fitted, inputs)


def fitted_sngp() -> Callable[[Tensor], Prediction]:
    generator = torch.Generator().manual_seed(0)
    features = OrthogonalRandomFeatures(1, 256, length_scale=1.0, generator=generator)
    model = RandomFeatureNetwork(nn.Identity(), features, 2, generator=generator)
    train(model, loss=sngp.loss, batch_at=batches(), config=CONFIG)
    fitted = sngp.fit(model, world()[0].split(500))
    return lambda inputs: sngp.predict(fitted, inputs, generator=torch.Generator().manual_seed(0))


def fitted_epinet() -> Callable[[Tensor], Prediction]:
    generator = torch.Generator().manual_seed(0)
    model = Epinet(network(32), 32, 2, prior_scale=0.1, generator=generator)
    train(model, loss=epinet.loss, batch_at=batches(), config=CONFIG)
    return lambda inputs: epinet.predict(model, inputs, generator=torch.Generator().manual_seed(0))


FITTED = [
    fitted_naive,
    fitted_log_odds,
    fitted_ensemble,
    fitted_evidential,
    fitted_gaussian_process,
    fitted_sngp,
    fitted_epinet,
]


@pytest.mark.parametrize("fit", FITTED)
def test_a_method_learns_what_it_can_see(fit: Callable[[], Callable[[Tensor], Prediction]]) -> None:
    prediction = fit()(INPUTS)
    assert prediction.probs.shape == (3, 2)
    np.testing.assert_allclose(prediction.probs[:, 1], TRUE_PROBS, atol=0.06)
    limit = prediction.probs * (1 - prediction.probs)
    assert (prediction.variance >= 0).all()
    assert (prediction.variance <= limit + 1e-12).all()
    np.testing.assert_allclose(prediction.variance[:, 0], prediction.variance[:, 1], atol=1e-12)


def test_the_naive_variance_is_all_of_the_noise() -> None:
    prediction = fitted_naive()(INPUTS)
    np.testing.assert_allclose(prediction.variance, prediction.probs * (1 - prediction.probs))


def test_the_ensemble_variance_divides_by_one_less_than_its_members() -> None:
    stack = MemberStack([network(1, seed) for seed in range(4)])
    members = [naive.predict(stack.member(i), INPUTS).probs for i in range(4)]
    prediction = ensemble.predict(stack, INPUTS)
    np.testing.assert_allclose(prediction.probs, np.mean(members, axis=0), rtol=1e-5)
    np.testing.assert_allclose(prediction.variance, np.var(members, axis=0, ddof=1), rtol=1e-4)


def test_the_forest_variance_is_that_of_its_trees() -> None:
    fitted = forest.fit(*world(), forest.ForestConfig(num_trees=20))
    trees = np.stack([tree.predict(INPUTS.numpy()) for tree in fitted.forest.estimators_])
    found = forest.predict(fitted, INPUTS)
    np.testing.assert_allclose(found.variance[:, 1], trees.var(axis=0, ddof=1))
    assert fitted.forest.min_samples_leaf in fitted.out_of_bag_errors


def test_a_forest_whose_rows_may_be_in_every_bag_is_refused() -> None:
    with pytest.raises(ValueError, match="num_trees is 19; expected 20 or more"):
        forest.fit(*world(), forest.ForestConfig(num_trees=19))


def test_an_ensemble_of_one_has_no_variance_and_says_so() -> None:
    with pytest.raises(ValueError, match="1 member; expected 2 or more"):
        ensemble.predict(MemberStack([network(1)]), INPUTS)


@pytest.mark.parametrize("label", [0, 1])
def test_evidential_losses_are_the_expectations_they_stand_for(label: int) -> None:
    alpha = np.array([1.7, 3.2])

    def expected(of_probs: Callable[[np.ndarray], float]) -> float:
        value, _ = integrate.quad(
            lambda q: stats.beta.pdf(q, *alpha) * of_probs(np.array([q, 1 - q])), 0, 1, epsabs=1e-12
        )
        return value

    one_hot = np.eye(2)[label]
    tensor = torch.from_numpy(alpha)
    cross_entropy = evidential.label_losses(tensor, 0.0, "cross_entropy")[label].item()
    squared_error = evidential.label_losses(tensor, 0.0, "squared_error")[label].item()
    assert cross_entropy == pytest.approx(expected(lambda q: -np.log(q[label])), abs=1e-8)
    assert squared_error == pytest.approx(
        expected(lambda q: float(np.sum((one_hot - q) ** 2))), abs=1e-8
    )


def test_the_evidential_regulariser_is_the_divergence_without_the_label() -> None:
    alpha = torch.tensor([1.5, 4.0, 2.5], dtype=torch.float64)
    penalty = evidential.label_losses(alpha, 1.0) - evidential.label_losses(alpha, 0.0)
    for label in range(3):
        without = alpha.clone()
        without[label] = 1.0
        uniform = torch.distributions.Dirichlet(torch.ones(3, dtype=torch.float64))
        expected = torch.distributions.kl_divergence(
            torch.distributions.Dirichlet(without), uniform
        )
        torch.testing.assert_close(penalty[label], expected)


def test_the_evidential_optimum_is_one_and_overrates_classes_that_never_occur() -> None:
    truth = torch.zeros(1, 10, dtype=torch.float64)
    truth[0, :2] = 0.5
    alpha = evidential.optimal_concentration(truth).requires_grad_()
    (truth * evidential.label_losses(alpha, 1.0)).sum().backward()
    assert alpha.grad is not None
    # Stationary for the two labels, held back by the least concentration for the others.
    assert alpha.grad[0, :2].abs().max() < 1e-5
    assert alpha.detach()[0, 2:].max() < 1.05
    assert alpha.grad[0, 2:].min() > 0
    probs = (alpha / alpha.sum()).detach()
    assert probs[0, 2:].min() > 0.05  # the truth is 0: the bias that appendix F.2.2 shows


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="form is 'mse'"):
        evidential.label_losses(torch.ones(2), 0.0, "mse")  # pyright: ignore[reportArgumentType]


def test_the_gaussian_process_bound_is_below_the_evidence_and_close() -> None:
    """With all observations at one input, the evidence and the posterior are integrals over f."""
    num_ones, num_zeros = 7, 3
    responses = torch.tensor([[1]] * num_ones + [[0]] * num_zeros)
    inputs = torch.zeros(10, 1)
    settings = gaussian_process.GaussianProcessConfig(num_inducing=3, jitter=1e-8, tolerance=1e-10)
    fitted = gaussian_process.fit(inputs, responses, settings)

    def posterior(f: float, power: int = 0) -> float:
        probability = 1 / (1 + np.exp(-f))
        likelihood = probability**num_ones * (1 - probability) ** num_zeros
        return stats.norm.pdf(f, 0, 2) * likelihood * probability**power

    moments = [integrate.quad(posterior, -15, 15, args=(power,))[0] for power in range(3)]
    evidence = np.log(moments[0])
    assert evidence - 0.02 < fitted.evidence_bounds[-1] <= evidence
    mean = moments[1] / moments[0]
    variance = moments[2] / moments[0] - mean**2
    prediction = gaussian_process.predict(fitted, torch.zeros(1, 1))
    assert prediction.probs[0, 1] == pytest.approx(mean, abs=0.01)
    assert prediction.variance[0, 1] == pytest.approx(variance, rel=0.1)


def test_the_gaussian_process_reaches_the_same_optimum_by_other_steps() -> None:
    config = {"length_scale": 0.5, "num_inducing": 17, "tolerance": 1e-8}
    bounds = [
        gaussian_process.fit(
            *world(), gaussian_process.GaussianProcessConfig(**config, step_size=step_size)
        ).evidence_bounds
        for step_size in (0.3, 0.7)
    ]
    assert bounds[0][-1] == pytest.approx(bounds[1][-1], abs=1e-5)
    assert bounds[0][-1] == max(bounds[0])


def test_the_gaussian_process_is_the_same_to_the_byte_whatever_torch_drew_before() -> None:
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        settings = gaussian_process.GaussianProcessConfig(length_scale=0.5, num_inducing=17)
        fitted = gaussian_process.fit(*world(), settings)
        prediction = gaussian_process.predict(fitted, world()[0])
        found.append([fitted.evidence_bounds, prediction.probs, prediction.variance])
    assert [array.tobytes() for array in found[0]] == [array.tobytes() for array in found[1]]


def test_a_gaussian_process_that_has_not_converged_says_so() -> None:
    settings = gaussian_process.GaussianProcessConfig(num_inducing=5, max_steps=2)
    with pytest.raises(RuntimeError, match="still moved by"):
        gaussian_process.fit(*world(), settings)
