"""`PairMetaClassifier`: pairs on top of any classifier of scikit-learn's kind.

The classifier learns two things at once: p(y1|x), from rows in which the first response is absent,
and p(y2|x, y1), from rows in which it is a feature. Joined and made valid (`conditionals.py`) they
are a joint, and everything follows from it as for a `PairClassifier`. Each item is also predicted
by a clone that did not see it, and those predictions fit the recalibration.

Axes: rows (n), then classes (K) of y1, then classes of y2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import (
    _num_samples,
    check_consistent_length,
    check_is_fitted,
    check_random_state,
    has_fit_parameter,
    validate_data,
)
from typing_extensions import override

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.conditionals import (
    SMOOTHINGS,
    draw_responses,
    smoothed,
    smoothing_of,
    valid_joints,
    with_first_response,
)
from secondguess.classification.fit_warnings import warn_of_ignored_response, warn_of_recalibration
from secondguess.classification.fitting import Rows
from secondguess.classification.heads import ROWS_AT_ONCE
from secondguess.classification.joint_predictions import JointPredictions
from secondguess.classification.labels import Targets
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import VALUES_AT_ONCE
from secondguess.classification.recalibration import PairRecalibration, fit_recalibration
from secondguess.classification.splitting import folds_of
from secondguess.classification.table_joint import TableJoint
from secondguess.classification.variance_map import VarianceMap, fit_variance_map
from secondguess.classification.weighting import decision_weights, distinct_rows, item_weights

MOST_REPEATS = 100
"""Whole weights are repeated rows, which every estimator takes alike, unless larger on average."""


class FittedClone(NamedTuple):
    """A fitted copy of the user's estimator.

    Attributes:
        steps: the steps of a pipeline before its classifier, or None.
        classifier: takes what they give, with the first response behind it.
        seen: the class indices that it was fitted to, which it knows as 0, 1, ...
    """

    steps: Any
    classifier: Any
    seen: IntArray


class PairMetaClassifier(JointPredictions, ClassifierMixin, BaseEstimator):
    """What `PairClassifier` offers, for a classifier that you already have.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = np.where(X[:, :1] + 0.5 * rng.normal(size=(300, 3)) > 0, "yes", "no")
    >>> model = PairMetaClassifier(LogisticRegression(), targets="responses").fit(X, y)
    >>> model.predict([[-2, 0], [2, 0]])
    array(['no', 'yes'], dtype='<U3')
    >>> model.predict_variance(X).shape
    (300, 2)

    X is whatever the estimator takes, with one row per item: an array, a sparse matrix, a
    DataFrame. The first response becomes K columns of zeros and ones behind the features, all zero
    where it is absent. In a pipeline they are put behind what its last step takes, so that the
    steps before it see X and nothing else (and the most frequent label of each item as y).

    Args:
        estimator: a classifier with `predict_proba`, or a pipeline that ends with one; it is
            cloned.
        targets: `responses` or `counts`, as for `PairClassifier`.
        classes: the labels there are, in order, where not all of them occur in y.
        class_weight: what `predict` multiplies the probability of each label by: a mapping, or
            `balanced` for the inverse of how often it was given. The fit takes no notice of it, so
            that probabilities and variances stay calibrated (see `decision_weights`).
        num_folds: clones that are fitted without a part of the items, for the recalibration.
        recalibrate: whether to recalibrate by what those clones say; without it none are fitted.
        random_state: seed of folds and of the responses that are drawn; the estimator has its own.

    Attributes:
        classes_: `(K,)` labels.
        fitted_: the clone that was fitted to all items; it knows the classes by their numbers.
        smoothing_: the share of equal chances that is mixed in, so that nothing is impossible.
        recalibration_: the fitted `PairRecalibration`; the identity where there was none.
        variance_map_: the fitted `VarianceMap`; the identity where there was none.
        inflations_, intervals_, calibration_conditions_: see `PairPredictions`.
    """

    targets: Targets | None
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def __init__(
        self,
        estimator: Any,
        targets: Targets | None = None,
        *,
        classes: Sequence[Any] | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        num_folds: int = 5,
        recalibrate: bool = True,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.estimator = estimator
        self.targets = targets
        self.classes = classes
        self.class_weight = class_weight
        self.num_folds = num_folds
        self.recalibrate = recalibrate
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: ArrayLike | PairData,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the estimator to responses with and without a first one.

        Args:
            X: inputs, one row per item.
            y: their responses or counts.
            sample_weight: `(n,)`, how often each item counts, as for `PairClassifier`; where they
                are not whole numbers, the estimator must take a `sample_weight` itself, and earlier
                steps of a pipeline take no notice of them.
            groups: `(n,)` labels; near-duplicates share one, and are held out together.
        """
        if not hasattr(self.estimator, "predict_proba"):
            raise TypeError(
                f"estimator is {type(self.estimator).__name__}, which has no predict_proba; "
                f"expected a classifier that gives probabilities (or CalibratedClassifierCV of it)."
            )
        data = self._targets_to_fit(y, self.classes)
        inputs = self._inputs(X, fitting=True)
        check_consistent_length(inputs, data)
        weights = item_weights(data, sample_weight)
        self.class_weight_ = decision_weights(self.class_weight, data, weights)
        chosen, weights, keys = distinct_rows(inputs, data, groups, weights)
        inputs, data = _safe_indexing(inputs, chosen), data[chosen]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rng = np.random.default_rng(seed)
        self.recalibration_, self.variance_map_ = PairRecalibration(), VarianceMap()
        self.smoothing_ = SMOOTHINGS[0]
        folds = folds_of(len(data), self.num_folds, rng=rng, groups=keys)
        items = Rows(inputs, data, keys, weights)
        self.fitted_ = self._fitted_clone(items, rng)
        if self.recalibrate and folds.max() > 0:
            self._recalibrate(items, folds, rng)
        self._forget_calibration()
        return self

    @override
    def joints(self, X: Any, values_per_row: int = 0) -> Iterator[tuple[slice, TableJoint]]:
        """The joints of all rows in float64, some rows at a time, each with the rows it is of."""
        check_is_fitted(self)
        inputs = self._inputs(X)
        num_rows, num_classes = _num_samples(inputs), len(self.classes_)
        step = max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // max(num_classes**2, values_per_row)))
        for start in range(0, num_rows, step):
            rows = slice(start, min(start + step, num_rows))
            part = _safe_indexing(inputs, np.arange(rows.start, rows.stop))
            tables = valid_joints(*smoothed(*self._probs(self.fitted_, part), self.smoothing_))
            yield rows, self._recalibrated(_joint(tables))

    def predict_joint(self, X: Any) -> TableJoint:
        """The joints of all rows."""
        return TableJoint(torch.cat([joint.log_table for _, joint in self.joints(X)]))

    def save(self, directory: str | Path) -> NoReturn:
        """Refuse: the estimator belongs to another library, which knows how to keep it.

        `joblib.dump(model, path)` keeps the whole, as for all of scikit-learn. Loading such a file
        runs code that is in it, so load none that you do not trust.
        """
        raise TypeError(
            f"PairMetaClassifier holds a {type(self.estimator).__name__}, which has no place in "
            f"{directory}: that format is of weights and JSON. Use joblib.dump(model, path) and "
            f"joblib.load(path), as for other estimators of scikit-learn."
        )

    def _recalibrate(self, items: Rows, folds: IntArray, rng: np.random.Generator) -> None:
        """Learn from clones that did not see a row how the estimator is off."""
        data, weights = items.data, items.weights
        num_rows, num_classes = len(data), len(self.classes_)
        marginal = np.empty((num_rows, num_classes))
        conditional = np.empty((num_rows, num_classes, num_classes))
        for fold in range(int(folds.max()) + 1):
            train, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            fitted = self._fitted_clone(_take(items, train), rng)
            marginal[held], conditional[held] = self._probs(fitted, _take(items, held).inputs)
        warn_of_ignored_response(conditional)
        self.smoothing_ = smoothing_of(marginal, data, weights)
        joint = _joint(valid_joints(*smoothed(marginal, conditional, self.smoothing_)))
        self.recalibration_ = fit_recalibration(joint, data, weights=weights)
        prediction = self.recalibration_(joint).prediction()
        self.variance_map_ = fit_variance_map(
            prediction, data, rng=rng, groups=items.groups, weights=weights
        )
        raw = joint.prediction().variance
        warn_of_recalibration(prediction, data, self.variance_map_, raw, weights)

    def _fitted_clone(self, items: Rows, rng: np.random.Generator) -> FittedClone:
        """A clone fitted to responses with and without a first one."""
        estimator: Any = clone(self.estimator)
        steps, features = None, items.inputs
        if isinstance(estimator, Pipeline):
            steps, estimator = estimator[:-1], estimator[-1]
            # Steps need not know weights: they see an item as often as it counts, if that is whole.
            copies = None if items.weights is None else _copies(items.weights)
            seen = items if copies is None else _take(items, copies)
            features = steps.fit_transform(seen.inputs, seen.data.counts().argmax(axis=1))
            if copies is not None:
                features = _safe_indexing(features, np.unique(copies, return_index=True)[1])
        rows, first, response = draw_responses(items.data, rng)
        fit_params: dict[str, Any] = {}
        if items.weights is not None and (again := _copies(items.weights[rows])) is not None:
            rows, first, response = rows[again], first[again], response[again]
        elif items.weights is not None and has_fit_parameter(estimator, "sample_weight"):
            fit_params["sample_weight"] = items.weights[rows]
        elif items.weights is not None:
            raise TypeError(
                f"{type(estimator).__name__} takes no sample_weight; expected whole numbers as "
                f"weights, {MOST_REPEATS} on average at most, or an estimator that takes weights."
            )
        table = with_first_response(_safe_indexing(features, rows), first, self.classes_)
        # A clone may see fewer classes than there are, and some classifiers take no gaps.
        seen, codes = np.unique(response, return_inverse=True)
        return FittedClone(steps, estimator.fit(table, codes, **fit_params), seen)

    def _probs(self, fitted: FittedClone, inputs: Any) -> tuple[FloatArray, FloatArray]:
        """p(y1|x), `(n, K)`, and p(y2|x, y1), `(n, K, K)`."""
        features = inputs if fitted.steps is None else fitted.steps.transform(inputs)
        num_rows, num_classes = _num_samples(inputs), len(self.classes_)
        found = np.zeros((num_classes + 1, num_rows, num_classes))
        for first in range(-1, num_classes):
            table = with_first_response(features, np.full(num_rows, first), self.classes_)
            found[first + 1][:, fitted.seen] = fitted.classifier.predict_proba(table)
        return found[0], found[1:].transpose(1, 0, 2)

    def _inputs(self, X: Any, *, fitting: bool = False) -> Any:
        """DataFrames, and what a pipeline takes, as they are; else an array for the estimator."""
        if hasattr(X, "columns"):
            validate_data(self, X, reset=fitting, skip_check_array=True)
            return X
        if isinstance(self.estimator, Pipeline):
            return X
        kind = {"dtype": None, "accept_sparse": "csr", "ensure_all_finite": False}
        return validate_data(self, X, reset=fitting, **kind)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def _take(items: Rows, rows: IntArray) -> Rows:
    """Some of the items, whose inputs may be a table."""
    groups, weights = (None if a is None else a[rows] for a in (items.groups, items.weights))
    return Rows(_safe_indexing(items.inputs, rows), items.data[rows], groups, weights)


def _copies(weights: FloatArray) -> IntArray | None:
    """Each row as often as it counts, or None where weights are not whole, or large."""
    if not np.equal(np.mod(weights, 1), 0).all() or weights.mean() > MOST_REPEATS:
        return None
    return np.repeat(np.arange(len(weights)), weights.astype(np.int64))


def _joint(tables: FloatArray) -> TableJoint:
    return TableJoint(torch.from_numpy(tables).log())
