"""Losses against enumeration, the penalty's sign, and recalibration against its optimum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from secondguess.classification.batches import AnnotationBatch, PairBatch
from secondguess.classification.heads import (
    BinaryPairHead,
    ClasswisePairHead,
    MixturePairHead,
    PairModel,
    SymmetricPairHead,
)
from secondguess.classification.losses import (
    all_pairs_log_prob,
    all_pairs_loss,
    negative_eigenvalue_penalty,
    pair_loss,
    pair_model_loss,
    response_loss,
)
from secondguess.classification.mixture_joint import MixtureJoint
from secondguess.classification.pairs import PairData
from secondguess.classification.recalibration import PairRecalibration, fit_recalibration
from secondguess.classification.table_joint import TableJoint

HEADS = {
    "binary": lambda generator: BinaryPairHead(6, generator=generator),
    "classwise": lambda generator: ClasswisePairHead(6, 3, generator=generator),
    "symmetric": lambda generator: SymmetricPairHead(6, 3, generator=generator),
    "mixture": lambda generator: MixturePairHead(6, 3, generator=generator),
}


@pytest.mark.parametrize("make_head", HEADS.values(), ids=HEADS.keys())
def test_all_pairs_loss_is_the_mean_over_every_ordered_pair(make_head) -> None:
    generator = torch.Generator().manual_seed(0)
    joint = make_head(generator)(torch.randn(4, 6, generator=generator)).double()
    responses = [[0, 1, 1], [1, 1], [0, 0, 0, 1, 1], [1, 0]]
    data = PairData.from_ragged(responses, classes=range(joint.num_classes))
    counted = PairData.from_counts(data.counts())
    expected = []
    for row, labels in enumerate(responses):
        pairs = torch.tensor(list(itertools.permutations(labels, 2)))
        index = pairs.expand(4, *pairs.shape)
        expected.append(joint.log_prob(index[..., 0], index[..., 1])[row].mean())
    for form in (data, counted):
        result = all_pairs_log_prob(
            joint, torch.from_numpy(form.labels), torch.from_numpy(form.multiplicity)
        )
        torch.testing.assert_close(result, torch.stack(expected))


@pytest.mark.statistical
def test_pair_loss_has_the_expectation_of_all_pairs_loss_and_more_noise() -> None:
    # 20,000 draws of four rows' pairs; a difference of 5 standard errors has chance below 1e-6.
    generator = torch.Generator().manual_seed(1)
    head = SymmetricPairHead(6, 3, generator=generator)
    with torch.no_grad():
        joint = head(torch.randn(4, 6, generator=generator)).double()
    data = PairData.from_responses([[0, 1, 2], [1, 1, 0], [2, 2, 2], [0, 2, 2]])
    exact = all_pairs_loss(
        joint, torch.from_numpy(data.labels), torch.from_numpy(data.multiplicity)
    )
    repeated = data[np.repeat(np.arange(4), 20_000)]
    draws = torch.from_numpy(repeated.draw(np.random.default_rng(0))).reshape(4, 20_000, 2)
    sampled = -joint.log_prob(draws[..., 0], draws[..., 1]).mean(0)
    error = sampled.std() / len(sampled) ** 0.5
    assert error > 0
    assert (sampled.mean() - exact).abs() < 5 * error


def test_pair_loss_of_impossible_unused_places_is_finite() -> None:
    joint = TableJoint(torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]).log())
    loss = all_pairs_loss(joint, torch.tensor([[0, 1]]), torch.tensor([[2, 0]]))
    assert loss == 0


def test_penalty_punishes_negative_eigenvalues_only() -> None:
    valid = MixturePairHead(6, 4)(torch.randn(8, 6)).log_joint
    # Rounding of float32 leaves eigenvalues of about -1e-8, whose squares do not matter.
    assert negative_eigenvalue_penalty(TableJoint(valid)) < 1e-12
    avoids_itself = torch.full((1, 3, 3), 1 / 6)
    avoids_itself[0].fill_diagonal_(0)
    eigenvalues = torch.linalg.eigvalsh(avoids_itself[0])
    torch.testing.assert_close(eigenvalues, torch.tensor([-1 / 6, -1 / 6, 1 / 3]))
    penalty = negative_eigenvalue_penalty(TableJoint(avoids_itself.log()))
    torch.testing.assert_close(penalty, torch.tensor(2 / 36))


def test_model_loss_adds_the_penalty_to_either_kind_of_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    head = SymmetricPairHead(6, 3, generator=generator)
    with torch.no_grad():
        head.outputs.weight.mul_(5)
    model = PairModel(nn.Identity(), head)
    inputs = torch.randn(4, 6, generator=generator)
    y1, y2 = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 0, 0])
    joint = model(inputs)
    penalty = negative_eigenvalue_penalty(joint)
    assert penalty > 1e-4
    expected = pair_loss(joint, y1, y2) + 7 * penalty
    pair = PairBatch(inputs, y1, y2)
    both = AnnotationBatch(inputs, torch.stack([y1, y2], 1), torch.ones(4, 2, dtype=torch.int64))
    for batch in (pair, both):
        torch.testing.assert_close(pair_model_loss(model, batch, eigenvalue_weight=7.0), expected)


@pytest.mark.parametrize("make_head", HEADS.values(), ids=HEADS.keys())
def test_the_first_guess_can_have_a_weight_of_its_own(make_head) -> None:
    generator = torch.Generator().manual_seed(2)
    model = PairModel(nn.Identity(), make_head(generator))
    inputs = torch.randn(3, 6, generator=generator)
    responses = [[0, 1, 1, 1], [1, 1], [0, 0, 1]]
    log_probs = model(inputs).log_marginal
    expected = -torch.stack([log_probs[i, row].mean() for i, row in enumerate(responses)]).mean()
    data = PairData.from_ragged(responses, classes=range(log_probs.shape[1]))
    batch = AnnotationBatch(
        inputs, torch.from_numpy(data.labels), torch.from_numpy(data.multiplicity)
    )
    pairs = PairBatch(inputs, torch.tensor([0, 1, 0]), torch.tensor([1, 1, 1]))
    torch.testing.assert_close(response_loss(log_probs, batch), expected)
    for each in (batch, pairs):
        added = pair_model_loss(model, each, marginal_weight=3.0) - pair_model_loss(model, each)
        torch.testing.assert_close(added, 3 * response_loss(log_probs, each))


def test_a_first_guess_that_nobody_made_may_be_impossible() -> None:
    batch = AnnotationBatch(torch.zeros(1, 1), torch.tensor([[0, 1]]), torch.tensor([[2, 0]]))
    assert response_loss(torch.tensor([[1.0, 0.0]]).log(), batch) == 0


MARGINAL, SHARE = np.array([0.5, 0.2, 0.3]), 0.3


def _overconfident_world(num_rows: int, head: str):
    """Inputs that look alike: a share of 0.3 has one right label, the others are ambiguous.

    The model is sharper than the true marginal, and sure that all inputs are alike.
    """
    rng = np.random.default_rng(0)
    right = np.eye(3)[rng.choice(3, size=num_rows, p=MARGINAL)]
    true = np.where(rng.random((num_rows, 1)) < SHARE, right, MARGINAL)
    responses = (rng.random((num_rows, 2, 1)) > true.cumsum(1)[:, None]).sum(2)
    sharp = torch.from_numpy(MARGINAL**2 / np.square(MARGINAL).sum()).expand(num_rows, 3)
    if head == "mixture":
        joint = MixtureJoint(torch.zeros(num_rows, 1), sharp.log().unsqueeze(1))
    else:
        joint = TableJoint((sharp.unsqueeze(2) * sharp.unsqueeze(1)).log())
    return joint, PairData.from_responses(responses)


@pytest.mark.statistical
@pytest.mark.parametrize("head", ["mixture", "table"])
def test_recalibration_repairs_an_overconfident_model(head) -> None:
    # The standard errors on 4,000 rows are below 0.015 (correlation), 0.07 (temperature), 0.006
    # (probabilities) and 0.004 (variances): all tolerances are 5 of them, false alarms below 1e-5.
    joint, data = _overconfident_world(4000, head)
    fit = fit_recalibration(joint, data)
    assert abs(fit.correlation - SHARE) < 0.075
    assert abs(fit.temperature - 2) < 0.35
    before, after = joint.prediction(), fit(joint).prediction()
    assert before.variance.max() < 1e-12
    np.testing.assert_allclose(after.probs[0], MARGINAL, atol=0.03)
    np.testing.assert_allclose(after.variance[0], SHARE * MARGINAL * (1 - MARGINAL), atol=0.02)


def test_recalibration_finds_the_best_point_of_a_grid() -> None:
    joint, data = _overconfident_world(500, "table")
    labels, multiplicity = torch.from_numpy(data.labels), torch.from_numpy(data.multiplicity)

    def loss(recalibration: PairRecalibration) -> float:
        return all_pairs_loss(recalibration(joint.double()), labels, multiplicity).item()

    grid = [
        PairRecalibration(temperature=temperature, correlation=correlation)
        for temperature in np.linspace(0.5, 4, 8)
        for correlation in np.linspace(-0.5, 0.5, 11)
    ]
    assert loss(fit_recalibration(joint, data)) <= min(map(loss, grid))


def test_recalibration_lowers_the_variance_of_a_model_that_doubts_too_much() -> None:
    # The model holds all of p (1 - p) for ignorance, but responses are independent coins.
    rng = np.random.default_rng(0)
    data = PairData.from_responses(rng.integers(2, size=(2000, 2)))
    doubtful = TableJoint(torch.tensor([[0.4, 0.1], [0.1, 0.4]]).log().expand(2000, 2, 2))
    fit = fit_recalibration(doubtful, data)
    assert fit.correlation < -0.5
    assert fit(doubtful).prediction().variance.max() < 0.03


def test_recalibration_of_a_calibrated_model_changes_little() -> None:
    # Held-out pairs from the joint itself; the fitted scalars are off by sampling noise only.
    rng = np.random.default_rng(0)
    table = np.array([[0.4, 0.1], [0.1, 0.4]])
    pairs = np.stack(np.divmod(rng.choice(4, size=20_000, p=table.ravel()), 2), 1)
    joint = TableJoint(torch.from_numpy(table).log().expand(20_000, 2, 2))
    fit = fit_recalibration(joint, PairData.from_responses(pairs))
    variance = fit(joint).prediction().variance[0]
    np.testing.assert_allclose(variance, 0.15, atol=0.01)


def test_recalibration_refuses_what_it_cannot_use() -> None:
    joint, data = _overconfident_world(10, "table")
    with pytest.raises(ValueError, match="data has 9 rows but the joint has 10"):
        fit_recalibration(joint, data[:9])
    with pytest.raises(ValueError, match="temperature is 0"):
        PairRecalibration(temperature=0)
    with pytest.raises(ValueError, match=r"correlation is 1\.0"):
        PairRecalibration(correlation=1.0)
