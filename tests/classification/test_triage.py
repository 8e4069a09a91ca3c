"""Uncertainty in two parts: exact in variance, a lower bound in nats, and the three lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from secondguess import triage
from secondguess.classification.binary_joint import ClasswiseJoint
from secondguess.classification.joint import PairJoint
from secondguess.classification.joint_predictions import JointPredictions
from secondguess.classification.table_joint import TableJoint


class Says(JointPredictions):
    """An estimator that gives the joint it was made of, whatever the rows."""

    def __init__(self, joint: PairJoint) -> None:
        self.joint = joint

    def joints(self, X: Any, values_per_row: int = 0) -> Iterator[tuple[slice, PairJoint]]:
        yield slice(0, len(X)), self.joint


def _entropy(probs: np.ndarray) -> np.ndarray:
    return -(probs * np.log(probs)).sum(axis=-1)


def test_parts_of_a_known_world_are_exact_in_variance_and_bounded_in_nats() -> None:
    # p(.|x) is one of three laws with equal chances, for each of 50 rows.
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.ones(4) / 2, size=(50, 3)) + 1e-9
    laws /= laws.sum(axis=2, keepdims=True)
    table = np.einsum("nri,nrj->nij", laws, laws) / 3
    found = triage(Says(TableJoint(torch.from_numpy(table).log())), np.zeros(50))
    mean = laws.mean(axis=1)
    np.testing.assert_allclose(found.ignorance, ((laws - mean[:, None]) ** 2).mean(1).sum(1))
    np.testing.assert_allclose(found.disagreement, (laws * (1 - laws)).mean(1).sum(1))
    true_disagreement = _entropy(laws).mean(axis=1)
    true_ignorance = _entropy(mean) - true_disagreement
    np.testing.assert_allclose(found.ignorance_nats + found.disagreement_nats, _entropy(mean))
    assert (found.ignorance_nats <= true_ignorance + 1e-12).all()
    assert (found.disagreement_nats >= true_disagreement - 1e-12).all()
    assert (found.ignorance_nats > 0.2 * true_ignorance).mean() > 0.5  # and it says something


def test_the_lists_are_ordered_and_do_not_mix_the_kinds() -> None:
    split = np.full((2, 2), 0.25)  # everybody is torn
    unknown = np.array([[0.48, 0.02], [0.02, 0.48]])  # people agree, the model does not know
    known = np.outer([0.98, 0.02], [0.98, 0.02])  # nearly everybody says the same
    table = torch.from_numpy(np.stack([known, split, unknown])).log()
    found = triage(Says(TableJoint(table)), np.zeros(3))
    assert found.people_disagree(1).tolist() == [1]
    assert found.not_learned().tolist() == [2]
    assert found.label_next(1).tolist() == [2]
    assert found.people_disagree().tolist() == [1, 0]
    with pytest.raises(ValueError, match="num_rows"):
        found.label_next(0)


def test_what_is_impossible_counts_as_nothing_and_what_has_no_table_has_no_nats() -> None:
    never = TableJoint(torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]).double().log())
    found = triage(Says(never), np.zeros(1))
    assert found.ignorance_nats == found.disagreement_nats == found.ignorance == 0
    classwise = ClasswiseJoint(torch.zeros(2, 3).log_softmax(1), torch.zeros(2, 3))
    found = triage(Says(classwise), np.zeros(2))
    assert np.isnan(found.ignorance_nats).all()
    np.testing.assert_allclose(found.ignorance, 3 * 0.5 * 2 / 9, rtol=1e-6)
