"""Pair classifiers at the end of a pipeline.

scikit-learn's `Pipeline` passes on `predict` and `predict_proba`, and knows nothing of variances,
intervals or joints. Functions that take a fitted pair classifier take such a pipeline too, by
`last_step`. It goes by the looks of a pipeline, so that displays need no scikit-learn.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class LastStep(NamedTuple):
    """A fitted estimator, and inputs as it takes them."""

    estimator: Any
    inputs: Any


def last_step(estimator: Any, X: Any) -> LastStep:
    """What a fitted pipeline ends with, and what that step sees of X; others as they are.

    >>> from sklearn.pipeline import Pipeline
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> double = FunctionTransformer(lambda x: [2 * each for each in x]).fit([1])
    >>> last_step(Pipeline([("double", double), ("model", "passthrough")]), [3])
    LastStep(estimator='passthrough', inputs=[6])
    >>> last_step("passthrough", [3])
    LastStep(estimator='passthrough', inputs=[3])

    Args:
        estimator: fitted; a pipeline, or anything else.
        X: inputs of the estimator.
    """
    steps = getattr(estimator, "steps", None)
    if steps is None:
        return LastStep(estimator, X)
    return LastStep(steps[-1][1], estimator[:-1].transform(X) if len(steps) > 1 else X)
