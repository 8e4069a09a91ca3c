"""More than two responses: the likelihood of all annotations, and the distribution it trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secondguess.classification.distributions import predicted_distribution
from secondguess.classification.estimators import PairClassifier
from secondguess.classification.losses import pair_loss, snapshot_loss
from secondguess.classification.mixture_joint import MixtureJoint
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import held_out_loss, mean_loss
from secondguess.classification.recalibration import fit_recalibration
from secondguess.theory.records import RestsOn


def mixture(n=5, num_components=4, num_classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(n, num_components, generator=generator, dtype=torch.float64)
    components = torch.randn(n, num_components, num_classes, generator=generator).double()
    return MixtureJoint(weights.log_softmax(-1), components.log_softmax(-1))


@pytest.mark.parametrize("correlation", [None, 0.2, -0.2])
def test_two_responses_are_a_pair(correlation):
    joint = mixture()
    if correlation is not None:
        one = torch.tensor(1.3, dtype=torch.float64)
        joint = joint.recalibrated(one, torch.tensor(correlation, dtype=torch.float64))
    for first in range(3):
        for second in range(3):
            y1, y2 = torch.full((5,), first), torch.full((5,), second)
            counts = torch.zeros(5, 3, dtype=torch.int64)
            counts[:, first] += 1
            counts[:, second] += 1
            got = joint.log_prob_of_all(torch.arange(3).expand(5, 3), counts)
            torch.testing.assert_close(got, joint.log_prob(y1, y2), rtol=0, atol=1e-12)
            loss = snapshot_loss(joint, torch.arange(3).expand(5, 3), counts)
            torch.testing.assert_close(2 * loss, pair_loss(joint, y1, y2), rtol=0, atol=1e-12)


def test_four_responses_sum_to_one():
    joint = mixture()
    joint = joint.recalibrated(torch.tensor(1.0).double(), torch.tensor(0.1).double())
    total = torch.zeros(5, dtype=torch.float64)
    for code in range(3**4):
        sequence = [code // 3**place % 3 for place in range(4)]
        counts = torch.bincount(torch.tensor(sequence), minlength=3).expand(5, 3)
        total += joint.log_prob_of_all(torch.arange(3).expand(5, 3), counts).exp()
    torch.testing.assert_close(total, torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_distribution_has_the_moments_of_the_joint():
    joint = mixture().recalibrated(torch.tensor(0.8).double(), torch.tensor(0.15).double())
    prediction = predicted_distribution(joint).prediction()
    np.testing.assert_allclose(prediction.probs, joint.log_marginal.exp().numpy(), atol=1e-12)
    np.testing.assert_allclose(prediction.variance, joint.epistemic_variance.numpy(), atol=1e-12)


def test_snapshots_learn_a_law_that_pairs_cannot_tell():
    """p is 0, 1/2 or 1 with weights 1/6, 2/3, 1/6, or 1/2 ± 0.289: the same two moments."""
    rng = np.random.default_rng(0)
    n, k = 1000, 12
    three_points = rng.choice([0.0, 0.5, 1.0], p=[1 / 6, 2 / 3, 1 / 6], size=n)
    ones = rng.binomial(k, three_points)
    inputs, counts = np.zeros((n, 1)), np.stack([k - ones, ones], axis=1)
    settings = {
        "backbone": "mlp",
        "num_components": 3,
        "width": 8,
        "num_steps": 400,
        "learning_rate": 0.02,
    }
    model = PairClassifier(
        "counts", loss="snapshot", recalibrate=False, validation_fraction=0, **settings
    ).fit(inputs, counts)
    distribution = model.predict_distribution(inputs[:1])
    order = np.argsort(distribution.components[0, :, 1])
    np.testing.assert_allclose(distribution.components[0, order, 1], [0, 0.5, 1], atol=0.05)
    np.testing.assert_allclose(distribution.weights[0, order], [1 / 6, 2 / 3, 1 / 6], atol=0.05)
    interval = distribution.interval(0.5)
    assert interval.rests_on is RestsOn.CALIBRATED_RESPONSES
    assert interval.width.max() < 0.1


def test_other_heads_have_no_distribution():
    rng = np.random.default_rng(0)
    inputs, y = rng.normal(size=(60, 2)), rng.integers(2, size=(60, 3))
    model = PairClassifier("responses", head="binary").fit(inputs, y)
    with pytest.raises(ValueError, match="expected head='mixture'"):
        model.predict_distribution(inputs)
    with pytest.raises(ValueError, match="expected a mixture head"):
        PairClassifier("responses", head="binary", loss="snapshot").fit(inputs, y)


def test_recalibration_by_all_annotations_repairs_what_was_spoilt():
    """Responses drawn from a mixture; a sharper one without the copies is put right."""
    rng = np.random.default_rng(0)
    truth = mixture(n=4000, seed=1).recalibrated(
        torch.tensor(1.0).double(), torch.tensor(0.2).double()
    )
    weights, components = (part.numpy() for part in truth.distribution())
    at = (rng.random((4000, 1)) > weights.cumsum(axis=1)).sum(axis=1).clip(max=weights.shape[1] - 1)
    truths = components[np.arange(4000), at]
    data = PairData.from_counts(rng.multinomial(7, truths / truths.sum(axis=1, keepdims=True)))
    plain = mixture(n=4000, seed=1)
    sharp = MixtureJoint(plain.log_weights, (plain.log_components * 1.7).log_softmax(-1))
    found = fit_recalibration(sharp, data, snapshot=True)
    # Standard errors are about 0.02: five of them, false alarm 1e-6.
    assert found.temperature == pytest.approx(1.7, abs=0.1)
    assert found.correlation == pytest.approx(0.2, abs=0.05)
    better = held_out_loss(found(sharp), data, snapshot=True)
    assert better < held_out_loss(sharp, data, snapshot=True)
    assert better <= held_out_loss(fit_recalibration(sharp, data)(sharp), data, snapshot=True)


def test_the_loss_of_chunks_is_the_loss_of_all():
    rng = np.random.default_rng(0)
    ones = rng.binomial(6, 0.3, 50)
    counts = np.stack([rng.integers(2, 9, 50), ones], axis=1)
    inputs = rng.normal(size=(50, 2))
    model = PairClassifier("counts", classes=[0, 1], loss="snapshot")
    model.fit(inputs, counts)
    rows = model._rows(inputs, counts)
    whole = mean_loss(model.model_, rows.inputs, rows.data, snapshot=True)
    model.model_.rows_at_once = 7
    assert mean_loss(model.model_, rows.inputs, rows.data, snapshot=True) == pytest.approx(
        whole, abs=1e-12
    )
