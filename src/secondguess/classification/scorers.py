"""Scorers for `cross_val_score` and `GridSearchCV`, where y holds several labels per row.

Each is called as scikit-learn calls a scorer, with a fitted estimator, X and y, and larger is
better. The estimator is a pair classifier, or a pipeline that ends with one; y is whatever its
`fit` takes. (An estimator's own `score` is `pair_log_likelihood`.)

Axes: rows (n), classes (K).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from secondguess._arrays import FloatArray, IntArray

_LEAST = 1e-15
"""A probability of zero, where an annotator chose the class, counts as this."""


def majority_accuracy(estimator: Any, X: Any, y: Any) -> float:
    """The share of rows whose most probable label no other label outnumbers.

    >>> from sklearn.model_selection import cross_val_score
    >>> from secondguess import PairClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 2))
    >>> y = (X[:, :1] + 0.1 * rng.normal(size=(90, 3)) > 0).astype(int)
    >>> model = PairClassifier("responses", backbone="linear")
    >>> bool((cross_val_score(model, X, y, scoring=majority_accuracy, cv=3) > 0.8).all())
    True
    """
    probs, counts = _probs_and_counts(estimator, X, y)
    chosen = counts[np.arange(len(counts)), probs.argmax(axis=1)]
    return float((chosen == counts.max(axis=1)).mean())


def counts_log_likelihood(estimator: Any, X: Any, y: Any) -> float:
    """The mean log-probability of a response: minus the log-loss against the shares of each row."""
    probs, counts = _probs_and_counts(estimator, X, y)
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float((shares * np.log(np.maximum(probs, _LEAST))).sum(axis=1).mean())


def pair_log_likelihood(estimator: Any, X: Any, y: Any) -> float:
    """The mean log-likelihood of pairs of responses; see `JointPredictions.score`."""
    return float(estimator.score(X, y))


def _probs_and_counts(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, IntArray]:
    last: Any = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    return estimator.predict_proba(X), last.read_targets(y).counts()
