"""What a classifier offers once it predicts joints: moments, confidences, likelihoods.

`JointPredictions` is a mixin: an estimator brings `joints(X)` and `classes_`, and gets everything
that is a function of joints, and the two ends of a fit: reading y, and what recalibration does.
`PairPredictions` adds what follows from moments. Joints come some rows at a time, so that their
tables never exist all at once.

Axes: rows (n), then classes (K) in the order of `classes_`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length

from secondguess._arrays import FloatArray
from secondguess.classification.heads import MAX_DEFAULT_COMPONENTS
from secondguess.classification.inputs import num_rows_of
from secondguess.classification.joint import PairJoint
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import read_joints, row_log_probs
from secondguess.classification.predictions import PairPredictions
from secondguess.classification.recalibration import PairRecalibration
from secondguess.classification.variance_map import VarianceMap
from secondguess.theory.records import Prediction

JointT = TypeVar("JointT", bound=PairJoint)


class JointPredictions(PairPredictions):
    """Predictions of an estimator that predicts joints.

    >>> import torch
    >>> from secondguess.classification.table_joint import TableJoint
    >>> class Coin(JointPredictions):
    ...     targets, classes_ = "responses", np.array(["heads", "tails"])
    ...     def joints(self, X, values_per_row=0):
    ...         table = torch.tensor([[0.3, 0.2], [0.2, 0.3]]).double().log()
    ...         yield slice(0, len(X)), TableJoint(table.expand(len(X), 2, 2))
    >>> Coin().predict_variance([[0]]).round(3), Coin().predict_confidence([[0]]).round(3)
    (array([[0.05, 0.05]]), array([[0.833, 0.833]]))
    """

    recalibration_: PairRecalibration
    variance_map_: VarianceMap

    @abstractmethod
    def joints(self, X: Any, values_per_row: int = 0) -> Iterator[tuple[slice, PairJoint]]:
        """The joints of all rows in float64, some rows at a time, each with the rows it is of.

        Args:
            X: inputs.
            values_per_row: how many numbers the caller makes of each row.
        """

    def predict_confidence(self, X: Any) -> FloatArray:
        """The epistemic confidence of each class, `(n, K)`."""
        return self._read(X, lambda joint: joint.scores().epistemic_confidence)

    def predict_moments(self, X: Any) -> Prediction:
        """Probabilities and variances as the record that metrics and figures take."""

        def moments(joint: PairJoint) -> FloatArray:
            prediction = joint.prediction()
            return np.stack([prediction.probs, prediction.variance], axis=1)

        both = self._read(X, moments)
        return Prediction(both[:, 0], both[:, 1])

    def score(self, X: Any, y: ArrayLike | PairData, sample_weight: Any = None) -> float:
        """Mean log-likelihood of the pairs of responses, over all pairs of each row.

        Rows with a single response have no pair and are left out. With a `binary` head and more
        than two classes it is a sum over classes, which cannot be compared with the other heads.

        Args:
            X: inputs.
            y: their responses or counts.
            sample_weight: `(n,)`, weights of the rows in the mean; equal by default.
        """
        data = self.read_targets(y)
        check_consistent_length(range(num_rows_of(X)), data, sample_weight)
        weights = data.has_pair.astype(float)
        if sample_weight is not None:
            weights *= np.asarray(sample_weight, dtype=float)
        places = data.labels.shape[1] ** 2 * MAX_DEFAULT_COMPONENTS
        total = sum(
            float(weights[rows] @ row_log_probs(joint, data[rows]))
            for rows, joint in self.joints(X, values_per_row=places)
        )
        return total / weights.sum()

    def _targets_to_fit(self, y: ArrayLike | PairData, classes: Sequence[Any] | None) -> PairData:
        """The targets of a fit, whose classes are remembered."""
        if y is None:  # in the words that scikit-learn looks for
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        data = PairData.from_targets(y, self.targets, classes=classes)
        self.classes_ = data.classes
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class, {self.classes_.tolist()}; expected two or more.")
        return data

    def _recalibrated(self, joint: JointT) -> JointT:
        """The joint of the bare model after all that was learned from held-out rows."""
        return self.variance_map_(self.recalibration_(joint.double()))

    def _read(self, X: Any, read: Callable[[PairJoint], FloatArray]) -> FloatArray:
        return read_joints(self.joints(X), num_rows_of(X), read)
