"""What to do about each item: its uncertainty split into disagreement and ignorance.

Where people disagree, more labels and better models leave the disagreement as it is; where the
model has not learned, they help. A joint tells the two apart, in variance and in nats.

Axes: rows (n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from secondguess._arrays import FloatArray, IntArray, check_at_least
from secondguess.classification.inputs import num_rows_of
from secondguess.classification.joint import PairJoint, TabularJoint
from secondguess.classification.joint_predictions import JointPredictions
from secondguess.classification.pipelines import last_step
from secondguess.classification.predicting import read_joints


@dataclass(frozen=True, kw_only=True)
class Triage:
    """The uncertainty of each row in two parts, and the rows to look at first.

    >>> split, unknown = np.array([0.5, 0.1]), np.array([0.0, 0.4])
    >>> parts = {"disagreement_nats": split, "ignorance_nats": unknown}
    >>> found = Triage(disagreement=split, ignorance=unknown, **parts)
    >>> found.people_disagree(), found.not_learned(), found.label_next(1)
    (array([0]), array([1]), array([1]))

    In variance, summed over classes, `sum p (1 - p)` is disagreement plus ignorance, exactly, for a
    model that is calibrated on pairs: ignorance is the epistemic variance.

    In nats, the entropy of a response is `disagreement_nats + ignorance_nats`, where
    `ignorance_nats` is the mutual information of two responses. That is only a lower bound on what
    the model does not know about a response, because the second response shows the law of the first
    through a single draw; and `disagreement_nats` is an upper bound on the disagreement.

    Attributes:
        disagreement: `(n,)`, expected variance of a response once p(y|x) is known.
        ignorance: `(n,)`, epistemic variance.
        disagreement_nats: `(n,)`; NaN where the joint has no table.
        ignorance_nats: `(n,)`; NaN where the joint has no table.
    """

    disagreement: FloatArray
    ignorance: FloatArray
    disagreement_nats: FloatArray
    ignorance_nats: FloatArray

    def people_disagree(self, num_rows: int = 10) -> IntArray:
        """Rows on which disagreement is the larger part, the most disputed first.

        These need another question, or an answer that is a share; more labels do not settle them.
        """
        return self._first(self.disagreement, self.disagreement >= self.ignorance, num_rows)

    def not_learned(self, num_rows: int = 10) -> IntArray:
        """Rows on which ignorance is the larger part, the least known first.

        People agree about them more than the model can tell: features are missing, or items like
        them were not in the training.
        """
        return self._first(self.ignorance, self.ignorance > self.disagreement, num_rows)

    def label_next(self, num_rows: int = 10) -> IntArray:
        """Rows of the largest ignorance, however much people disagree on them as well."""
        return self._first(self.ignorance, np.ones(len(self.ignorance), dtype=bool), num_rows)

    def _first(self, key: FloatArray, among: np.ndarray, num_rows: int) -> IntArray:
        check_at_least("num_rows", num_rows, 1)
        rows = np.flatnonzero(among)
        return rows[np.argsort(-key[rows], kind="stable")][:num_rows]


def triage(estimator: JointPredictions | Pipeline, X: Any) -> Triage:
    """Split the uncertainty about each row of X.

    >>> from secondguess import PairClassifier
    >>> rng = np.random.default_rng(0)
    >>> split = rng.random(1000) < 0.5  # half of the items split people evenly
    >>> hidden = np.where(rng.random(1000) < 0.5, 0.95, 0.05)  # on the others they agree
    >>> y = rng.random((1000, 3)) < np.where(split, 0.5, hidden)[:, None]
    >>> X = np.stack([split, ~split], axis=1).astype(float)
    >>> found = triage(PairClassifier("responses").fit(X, y.astype(int)), X)
    >>> bool(split[found.people_disagree()].all()), bool(split[found.label_next()].any())
    (True, False)

    Args:
        estimator: a fitted `PairClassifier` or `PairMetaClassifier`, or a pipeline that ends with
            one.
        X: inputs.
    """
    last, inputs = last_step(estimator, X)
    parts = read_joints(last.joints(inputs), num_rows_of(inputs), _parts)
    return Triage(
        disagreement=parts[:, 0],
        ignorance=parts[:, 1],
        disagreement_nats=parts[:, 2],
        ignorance_nats=parts[:, 3],
    )


def _parts(joint: PairJoint) -> FloatArray:
    marginal, variance = joint.marginal, joint.epistemic_variance.sum(-1)
    naive = (marginal * (1 - marginal)).sum(-1)
    entropy = -(marginal * joint.log_marginal).nan_to_num(0.0).sum(-1)
    shared = variance * np.nan
    if isinstance(joint, TabularJoint):
        log_joint, log_marginal = joint.log_joint, joint.log_marginal
        gain = log_joint - log_marginal.unsqueeze(-1) - log_marginal.unsqueeze(-2)
        # An impossible pair is 0 times -inf, which counts as nothing.
        shared = (log_joint.exp() * gain).nan_to_num(0.0).sum((-1, -2)).clamp_min(0)
    columns = (naive - variance, variance, entropy - shared, shared)
    return np.stack([column.double().cpu().numpy() for column in columns], axis=1)
