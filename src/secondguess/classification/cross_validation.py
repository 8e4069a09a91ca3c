"""Out-of-fold predictions of a pair classifier, with their variances."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_consistent_length

from secondguess.classification.estimators import PairClassifier
from secondguess.classification.meta import PairMetaClassifier
from secondguess.classification.pairs import PairData
from secondguess.classification.pipelines import last_step
from secondguess.theory.records import Prediction


def cross_predict(
    estimator: PairClassifier | PairMetaClassifier | Pipeline,
    X: Any,
    Y: ArrayLike | PairData,
    *,
    cv: Any = 5,
    groups: ArrayLike | None = None,
) -> Prediction:
    """Probabilities and variances of every row, from a model that was fitted without it.

    scikit-learn's `cross_val_predict(..., method="predict_proba")` must not be used here: it
    re-encodes every column of a two-dimensional Y by itself, so that one class gets different
    numbers in different columns. This function names the classes once, for all folds.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> Y = (X[:, :1] + rng.normal(size=(60, 2)) > 0).astype(int)
    >>> model = PairClassifier(targets="responses", backbone="linear")
    >>> cross_predict(model, X, Y, cv=3).variance.shape
    (60, 2)

    Args:
        estimator: a `PairClassifier` or `PairMetaClassifier`, or a pipeline that ends with one; it
            is cloned.
        X: inputs: an array, a DataFrame, or whatever the pipeline takes.
        Y: responses, counts, or pair data.
        cv: number of folds, or a splitter of scikit-learn.
        groups: `(n,)` labels, handed to the splitter and to `fit`: rows of one group are not
            trained on and validated on together. Give a splitter such as `GroupKFold` with it.

    Returns:
        Columns in the order of the sorted labels, or of the estimator's `classes`.
    """
    prefix, last = "", cast(Any, estimator)
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        prefix = f"{name}__"
    if not isinstance(last, PairClassifier | PairMetaClassifier):
        raise TypeError(
            f"estimator is {type(last).__name__}; expected a PairClassifier or PairMetaClassifier, "
            f"or a pipeline that ends with one."
        )
    data = PairData.from_targets(Y, last.targets, classes=last.classes)
    probs, variance = (np.full((len(data), data.num_classes), np.nan) for _ in range(2))
    check_consistent_length(X, data, groups)
    splitter: Any = check_cv(cv)
    for train, test in splitter.split(X, groups=groups):
        fold: Any = clone(estimator)
        fold.set_params(**{f"{prefix}classes": data.classes.tolist()})
        fit_params = {} if groups is None else {f"{prefix}groups": np.asarray(groups)[train]}
        fold.fit(_safe_indexing(X, train), data[train], **fit_params)
        fitted = last_step(fold, _safe_indexing(X, test))
        prediction = fitted.estimator.predict_moments(fitted.inputs)
        probs[test], variance[test] = prediction.probs, prediction.variance
    return Prediction(probs, variance)
