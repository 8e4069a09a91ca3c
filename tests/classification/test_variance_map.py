"""The monotone map of the variance: valid joints, exact worlds, few rows, the choice of a map."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secondguess.classification.binary_joint import BinaryJoint, ClasswiseJoint
from secondguess.classification.correlation_joint import CorrelationJoint
from secondguess.classification.joint import PairJoint, TabularJoint
from secondguess.classification.mixture_joint import MixtureJoint
from secondguess.classification.pairs import PairData
from secondguess.classification.table_joint import TableJoint
from secondguess.classification.variance_map import VarianceMap, fit_variance_map
from secondguess.theory.records import Prediction


def _mixture(num_rows: int = 6, seed: int = 0) -> MixtureJoint:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(num_rows, 3, generator=generator).double().log_softmax(-1)
    components = 2 * torch.randn(num_rows, 3, 4, generator=generator).double()
    return MixtureJoint(weights, components.log_softmax(-1))


def _joints() -> dict[str, PairJoint]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 6, 4, generator=generator).double()
    mixture = _mixture()
    shares, correlations = -logits[1].exp(), -logits[0, :, 0].exp()
    correlation = CorrelationJoint(logits[0].log_softmax(-1), shares, correlations)
    one = torch.ones((), dtype=torch.float64)
    return {
        "mixture": mixture,
        "mixture with a copy": mixture.recalibrated(one, 0.2 * one),
        "correlation": correlation,
        "correlation with a copy": correlation.recalibrated(one, 0.2 * one),
        "table": TableJoint(mixture.log_joint),
        "binary": BinaryJoint(logits[0, :, 0], logits[1, :, 0]),
        "classwise": ClasswiseJoint(logits[0].log_softmax(-1), logits[1]),
    }


@pytest.mark.parametrize("name", list(_joints()))
def test_each_row_is_mixed_as_stated_and_stays_valid(name) -> None:
    joint = _joints()[name]
    s = torch.tensor([-0.9, -0.4, 0.0, 0.3, 0.8, 1e-12], dtype=torch.float64)
    moved = joint.correlated(s)
    marginal, variance = joint.marginal, joint.epistemic_variance
    up, down = s.clamp_min(0).unsqueeze(1), (-s).clamp_min(0).unsqueeze(1)
    expected = (1 - up - down) * variance + up * marginal * (1 - marginal)
    torch.testing.assert_close(moved.marginal, marginal)
    torch.testing.assert_close(moved.epistemic_variance, expected)
    if name == "classwise":  # no table; the scalar formula, row by row
        y1, y2 = torch.tensor([[0, 1, 1]] * 6), torch.tensor([[1, 1, 0]] * 6)
        for row in range(6):
            alone = joint.recalibrated(torch.ones((), dtype=torch.float64), s[row])
            torch.testing.assert_close(moved.log_prob(y1, y2)[row], alone.log_prob(y1, y2)[row])
        return
    assert isinstance(joint, TabularJoint)
    assert isinstance(moved, TabularJoint)
    up, down = up.unsqueeze(2), down.unsqueeze(2)
    table = (1 - up - down) * joint.log_joint.exp() + up * torch.diag_embed(marginal)
    table += down * marginal.unsqueeze(2) * marginal.unsqueeze(1)
    torch.testing.assert_close(moved.log_joint.exp(), table)
    index = torch.arange(marginal.shape[1])
    y1, y2 = (y.flatten().expand(6, -1) for y in torch.meshgrid(index, index, indexing="ij"))
    torch.testing.assert_close(moved.log_prob(y1, y2).exp(), table.flatten(1))


@pytest.mark.parametrize("name", list(_joints()))
def test_a_mapped_joint_has_the_mapped_variance_where_the_marginal_allows_it(name) -> None:
    joint = _joints()[name]
    total = joint.epistemic_variance.sum(-1).numpy()
    most = (joint.marginal * (1 - joint.marginal)).sum(-1).numpy()
    for found in ((0.0, 0.5), (0.0, 3.0), (0.2, 0.2), (5.0, 5.0), (0.0, 0.0)):
        mapped = VarianceMap(kind="isotonic", stated=(0.0, 1.0), found=found)(joint)
        wanted = np.minimum(np.interp(total, (0, 1), found), most)
        got = mapped.epistemic_variance
        np.testing.assert_allclose(got.sum(-1).numpy(), wanted, atol=1e-8)
        assert (got >= 0).all()
        assert (got <= joint.marginal * (1 - joint.marginal) + 1e-12).all()
        torch.testing.assert_close(mapped.marginal, joint.marginal)
        assert (mapped.epistemic_confidence <= 1 + 1e-12).all()


def _world(num_rows: int, num_responses: int, rng: np.random.Generator, bend):
    """Binary items of mean 1/2 whose p is 1/2 +- sqrt(v), and a model that states bend(v)."""
    v = rng.uniform(0.01, 0.2, size=num_rows)
    p = 0.5 + np.sqrt(v) * rng.choice([-1, 1], size=num_rows)
    data = PairData.from_responses((rng.random((num_rows, num_responses)) < p[:, None]).astype(int))
    correlation = torch.from_numpy(4 * bend(v)).logit()
    return v, BinaryJoint(torch.zeros_like(correlation), correlation), data


@pytest.mark.statistical
@pytest.mark.parametrize("bend", [lambda v: v / 4, lambda v: 4 * v**2, lambda v: 0.1 + v / 4])
def test_an_exact_world_is_repaired(bend) -> None:
    # 20,000 rows in 10 bins: a bin's mean error has a standard error below 0.009 for two responses;
    # the bound of 0.04 is 4.4 of them, a false alarm below 3e-4 for 30 bins.
    rng = np.random.default_rng(0)
    v, joint, data = _world(20_000, 2, rng, bend)
    mapped = (
        fit_variance_map(joint.prediction(), data, rng=rng)(joint)
        .epistemic_variance.sum(-1)
        .numpy()
    )
    for part in np.array_split(np.argsort(v), 10):
        assert abs(mapped[part].mean() - 2 * v[part].mean()) < 0.04


@pytest.mark.statistical
def test_a_calibrated_model_is_hardly_moved() -> None:
    # The factor's standard error is 0.02 here: 5 of them, a false alarm below 1e-6.
    rng = np.random.default_rng(1)
    v, joint, data = _world(10_000, 3, rng, lambda v: v)
    found = fit_variance_map(joint.prediction(), data, rng=rng)
    assert abs(found.of(2 * v).mean() / (2 * v).mean() - 1) < 0.1


def test_copies_do_not_choose_a_map_that_fits_their_noise() -> None:
    # Sixty items, twenty copies of each: in other folds, copies confirm whatever was fitted.
    rng = np.random.default_rng(0)
    _, joint, data = _world(60, 2, rng, lambda v: v)
    prediction, rows = joint.prediction(), np.repeat(np.arange(60), 20)
    copies = Prediction(prediction.probs[rows], prediction.variance[rows])

    def kind(groups: np.ndarray | None) -> str:
        rng = np.random.default_rng(0)
        return fit_variance_map(copies, data[rows], rng=rng, groups=groups).kind

    assert kind(None) == "isotonic"
    assert kind(rows) == "identity"
    assert kind(rows // 10) == "identity"  # six groups are too few to leave some out


def test_few_rows_get_one_factor_or_nothing() -> None:
    rng = np.random.default_rng(2)
    _, joint, data = _world(150, 5, rng, lambda v: v / 10)
    assert fit_variance_map(joint.prediction(), data, rng=rng).kind == "scale"
    _, joint, data = _world(30, 5, rng, lambda v: v / 10)
    assert fit_variance_map(joint.prediction(), data, rng=rng).kind == "identity"
