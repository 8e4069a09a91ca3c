"""Every parametrisation against plain definitions on a full table; the mixture's promises."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn.functional import logsigmoid

from secondguess.classification.binary_joint import BinaryJoint, ClasswiseJoint
from secondguess.classification.correlation_joint import CorrelationJoint
from secondguess.classification.heads import CorrelationPairHead, MixturePairHead
from secondguess.classification.joint import PairJoint, TabularJoint
from secondguess.classification.log_space import log_softmax_table
from secondguess.classification.mixture_joint import MixtureJoint
from secondguess.classification.table_joint import TableJoint

ROWS = 7

JointT = TypeVar("JointT", bound=PairJoint)


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(*shape, generator=generator, dtype=torch.float64)


def _table() -> TableJoint:
    logits = _random(ROWS, 4, 4)
    return TableJoint(log_softmax_table(logits + logits.mT))


def _mixture() -> MixtureJoint:
    return MixtureJoint(
        _random(ROWS, 3).log_softmax(-1), _random(ROWS, 3, 4, seed=1).log_softmax(-1)
    )


def _correlation() -> CorrelationJoint:
    log_means, log_shares = _random(ROWS, 4).log_softmax(-1), logsigmoid(_random(ROWS, 4, seed=1))
    return CorrelationJoint(log_means, log_shares, logsigmoid(_random(ROWS, seed=2)))


def _binary() -> BinaryJoint:
    return BinaryJoint(_random(ROWS), _random(ROWS, seed=1))


TABULAR = {
    "table": _table,
    "mixture": _mixture,
    "correlation": _correlation,
    "binary": _binary,
}
SCALARS = [(1.0, 0.3), (1.7, 0.0), (0.6, -0.4), (2.5, 0.9)]


def _recalibrated(joint: JointT, temperature: float, correlation: float) -> JointT:
    dtype = joint.log_marginal.dtype
    return joint.recalibrated(
        torch.tensor(temperature, dtype=dtype), torch.tensor(correlation, dtype=dtype)
    )


def _all_forms() -> list:
    forms = [pytest.param(make(), id=name) for name, make in TABULAR.items()]
    return forms + [
        pytest.param(_recalibrated(make(), *scalars), id=f"{name}-{scalars[0]}-{scalars[1]}")
        for name, make in TABULAR.items()
        for scalars in SCALARS
    ]


@pytest.mark.parametrize("joint", _all_forms())
def test_everything_follows_from_the_table(joint: TabularJoint) -> None:
    table = joint.log_joint.exp()
    torch.testing.assert_close(table, table.mT)
    torch.testing.assert_close(table.sum((1, 2)), torch.ones(ROWS, dtype=torch.float64))
    marginal = table.sum(2)
    torch.testing.assert_close(joint.marginal, marginal)
    torch.testing.assert_close(joint.conditional, table / marginal.unsqueeze(2))
    covariance = table - marginal.unsqueeze(2) * marginal.unsqueeze(1)
    torch.testing.assert_close(joint.pair_covariance, covariance)
    variance = covariance.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(joint.epistemic_variance, variance)
    confidence = marginal.square() / table.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(joint.epistemic_confidence, confidence)

    num_classes = joint.num_classes
    y1, y2 = (
        index.expand(ROWS, -1, -1)
        for index in torch.meshgrid(*[torch.arange(num_classes)] * 2, indexing="ij")
    )
    torch.testing.assert_close(joint.log_prob(y1, y2), joint.log_joint)
    torch.testing.assert_close(joint.log_prob(y1[:, 1, 0], y2[:, 1, 0]), joint.log_joint[:, 1, 0])


@pytest.mark.parametrize("joint", _all_forms())
def test_scores_and_prediction_carry_the_same_numbers_in_float64(joint: PairJoint) -> None:
    scores, prediction = joint.scores(), joint.prediction()
    assert scores.log_marginal.dtype == np.float64
    np.testing.assert_allclose(scores.epistemic_variance, joint.epistemic_variance, atol=1e-12)
    np.testing.assert_allclose(scores.epistemic_confidence, joint.epistemic_confidence, rtol=1e-12)
    np.testing.assert_allclose(prediction.probs, joint.marginal)
    np.testing.assert_allclose(prediction.variance, joint.epistemic_variance)


@pytest.mark.parametrize("scalars", SCALARS)
@pytest.mark.parametrize("make", TABULAR.values(), ids=TABULAR.keys())
def test_recalibration_moves_the_table_as_stated(make, scalars) -> None:
    temperature, correlation = scalars
    tempered = _recalibrated(make(), temperature, 0.0)
    table, marginal = tempered.log_joint.exp(), tempered.marginal
    if correlation >= 0:
        target = torch.diag_embed(marginal)
    else:
        target = marginal.unsqueeze(2) * marginal.unsqueeze(1)
    expected = (1 - abs(correlation)) * table + abs(correlation) * target
    torch.testing.assert_close(_recalibrated(make(), *scalars).log_joint.exp(), expected)


@pytest.mark.parametrize("scalars", [None, *SCALARS])
def test_classwise_joint_is_one_binary_joint_a_class(scalars) -> None:
    log_means, correlations = _random(ROWS, 5).log_softmax(-1), _random(ROWS, 5, seed=1)
    joint = ClasswiseJoint(log_means, correlations)
    if scalars is not None:
        joint = _recalibrated(joint, *scalars)
    generator = torch.Generator().manual_seed(3)
    y1, y2 = torch.randint(5, (2, ROWS, 3), generator=generator)
    total = torch.zeros(ROWS, 3, dtype=torch.float64)
    for c in range(5):
        mean = joint.marginal[:, c]
        binary = BinaryJoint(mean.logit(), joint.correlation_logits[:, c])
        torch.testing.assert_close(binary.log_marginal[:, 1], joint.log_marginal[:, c])
        torch.testing.assert_close(
            binary.log_self_conditional[:, 1], joint.log_self_conditional[:, c]
        )
        torch.testing.assert_close(binary.epistemic_variance[:, 1], joint.epistemic_variance[:, c])
        total += binary.log_prob((y1 == c).long(), (y2 == c).long())
    torch.testing.assert_close(joint.log_prob(y1, y2), total)
    assert not {"log_joint", "conditional", "pair_covariance"} & set(dir(joint))


def test_classwise_joint_is_exact_for_a_class_that_is_nearly_certain() -> None:
    joint = ClasswiseJoint(torch.tensor([[40.0, 0.0, 0.0]]).log_softmax(-1), torch.zeros(1, 3))
    assert joint.marginal[0, 0] == 1
    expected = torch.tensor(0.5 * 2 * np.exp(-40.0), dtype=torch.float32)
    torch.testing.assert_close(joint.epistemic_variance[0, 0], expected)
    assert joint.log_prob(torch.tensor([1]), torch.tensor([2])).isfinite().all()


logits = st.one_of(
    st.floats(-5, 5, width=32),
    st.sampled_from([0.0, 1e-30, 88.0, -88.0, 104.0, 1e4, -1e4, 1e30, -1e30, 3e38, -3e38]),
)


def _as_asked(joint, double: bool, correlation: float | None):
    """In double precision, and recalibrated, or as it is."""
    joint = joint.double() if double else joint
    return joint if correlation is None else _recalibrated(joint, 1.5, correlation)


def assert_valid(joint) -> None:
    """Within its limits to the last bit, as the bounds demand."""
    assert (joint.epistemic_variance >= 0).all()
    assert (joint.epistemic_confidence <= 1).all()
    assert (joint.epistemic_confidence >= 0).all()
    assert (joint.log_self_conditional >= joint.log_marginal).all()
    scores = joint.scores()
    assert (scores.epistemic_variance >= 0).all()
    assert (scores.epistemic_confidence <= 1).all()


@given(
    weights=hnp.arrays(np.float32, (3, 4), elements=logits),
    components=hnp.arrays(np.float32, (3, 4, 5), elements=logits),
    equal=st.booleans(),
    correlation=st.sampled_from([None, 0.0, 0.2, -0.2, 0.99, -0.99]),
    double=st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_mixture_is_valid_whatever_its_parameters(
    weights, components, equal, correlation, double
) -> None:
    if equal:
        components = np.repeat(components[:, :1], 4, axis=1)
    joint = MixtureJoint(
        torch.from_numpy(weights).log_softmax(-1), torch.from_numpy(components).log_softmax(-1)
    )
    joint = _as_asked(joint, double, correlation)
    assert_valid(joint)
    if equal and correlation is None:
        assert (joint.epistemic_variance <= 1e-12).all()


@given(
    outputs=hnp.arrays(np.float32, (3, 6), elements=logits),
    rate=st.sampled_from([0.0, 5.0, -5.0, -80.0]),
    correlation=st.sampled_from([None, 0.0, 0.2, -0.2, 0.99, -0.99]),
    double=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_correlation_head_is_valid_whatever_its_outputs(outputs, rate, correlation, double) -> None:
    head = CorrelationPairHead(in_features=6, num_classes=5)
    with torch.no_grad():
        head.outputs.weight.copy_(torch.eye(6))
        head.log_rate.fill_(rate)
        joint = head(torch.from_numpy(outputs))
    assert_valid(_as_asked(joint, double, correlation))


def test_correlation_joint_is_the_mixture_that_it_says_it_is() -> None:
    joint = _correlation()
    means, doubtful = joint.log_means.exp(), (joint.log_means + joint.log_shares).exp()
    total, r = doubtful.sum(1, keepdim=True), joint.log_correlation.exp().unsqueeze(1)
    settled = (means - doubtful).unsqueeze(1) + total.unsqueeze(2) * torch.eye(4).double()
    mixture = MixtureJoint(
        torch.cat([1 - r, r * doubtful / total], 1).log(),
        torch.cat([means.unsqueeze(1), settled], 1).log(),
    )
    torch.testing.assert_close(joint.log_joint, mixture.log_joint)


@given(
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e6]),
    shift=st.sampled_from([0.0, 50.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_mixture_head_gives_valid_joints_whatever_its_weights(scale, shift, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    head = MixturePairHead(in_features=3, num_classes=6, num_components=5, generator=generator)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(scale).add_(shift)
        joint = head(torch.randn(20, 3, generator=generator))
    assert (joint.epistemic_variance >= 0).all()
    assert (joint.epistemic_confidence <= 1).all()


def test_mixture_tables_are_positive_semidefinite() -> None:
    joint = _mixture()
    assert torch.linalg.eigvalsh(joint.log_joint.exp()).min() > -1e-15
    assert torch.linalg.eigvalsh(joint.pair_covariance).min() > -1e-15


def test_mixture_variance_survives_a_marginal_that_underflows() -> None:
    # Class 2 has probability e^-200 or e^-400 by component: both underflow in float32.
    components = torch.tensor([[[0.0, -1.0, -200.0], [0.0, -1.0, -400.0]]]).log_softmax(-1)
    joint = MixtureJoint(torch.tensor([[0.5, 0.5]]).log(), components)
    assert joint.marginal[0, 2] == 0
    # C = m^2 / mean(q^2) = (1/2)^2 / (1/2): half of the components know the class, half do not.
    torch.testing.assert_close(joint.epistemic_confidence[0, 2], torch.tensor(0.5))
    np.testing.assert_allclose(joint.scores().epistemic_confidence[0, 2], 0.5, rtol=1e-5)


def test_a_sure_mixture_in_float32_is_a_prediction() -> None:
    # Weights normalised in float32 sum to a little more than one in float64 for some rows.
    weights = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    sure = torch.tensor([0.0, -torch.inf]).expand(1000, 3, 2)
    joint = MixtureJoint(weights, sure)
    assert joint.double().marginal.max() > 1
    assert joint.prediction().probs.max() == 1
