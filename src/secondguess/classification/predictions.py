"""What a classifier of pairs offers once it predicts moments: labels, probabilities, intervals.

`PairPredictions` is a mixin in the manner of scikit-learn's: an estimator brings `predict_moments`,
`classes_` and `targets`, and gets the rest. Algorithm 1 itself is in `theory/calibration`.

Axes: rows (n), then classes (K) in the order of `classes_`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from secondguess._arrays import FloatArray
from secondguess.classification.conditions import check_conditions
from secondguess.classification.inflation import fit_class_intervals, fit_inflations
from secondguess.classification.labels import Targets
from secondguess.classification.pairs import PairData
from secondguess.theory.calibration.families import ClassInflations
from secondguess.theory.calibration.fitted_intervals import FittedIntervals
from secondguess.theory.calibration.interval_plan import IntervalMethod
from secondguess.theory.records import Interval, Prediction


class PairPredictions(ABC):
    """Predictions and guaranteed intervals of an estimator that predicts moments.

    >>> import numpy as np
    >>> class Coin(PairPredictions):
    ...     targets, classes_ = "responses", np.array(["heads", "tails"])
    ...     def predict_moments(self, X):
    ...         return Prediction(np.full((len(X), 2), 0.5), np.full((len(X), 2), 0.01))
    >>> Coin().predict_proba([[0], [1]])
    array([[0.5, 0.5],
           [0.5, 0.5]])

    Attributes:
        classes_: `(K,)` labels.
        class_weight_: `(K,)`, what `predict` multiplies probabilities by, or None.
        inflations_: after `calibrate` by pairs, the variance inflation of each class.
        intervals_: after `calibrate` by counts, what was certified.
        calibration_conditions_: what the guarantee of `predict_interval` rests on, in words.
    """

    targets: Targets | None
    classes_: NDArray[Any]
    class_weight_: FloatArray | None
    inflations_: ClassInflations
    intervals_: FittedIntervals
    calibration_conditions_: tuple[str, ...]

    @abstractmethod
    def predict_moments(self, X: Any) -> Prediction:
        """Probabilities and variances as the record that metrics and figures take."""

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row, `(n,)`; after `class_weight`, where there is one."""
        probs = self.predict_proba(X)
        if (weights := getattr(self, "class_weight_", None)) is not None:
            probs = probs * weights
        return self.classes_[probs.argmax(axis=1)]

    def predict_proba(self, X: Any) -> FloatArray:
        """p(y|x), `(n, K)`, in the order of `classes_`."""
        return self.predict_moments(X).probs

    def predict_variance(self, X: Any) -> FloatArray:
        """The epistemic variance of each probability, `(n, K)`."""
        return self.predict_moments(X).variance

    def calibrate(
        self,
        X: Any,
        y: ArrayLike | PairData,
        *,
        groups: ArrayLike | None = None,
        failure_rate: float = 0.05,
        min_variance: float | None = None,
        method: IntervalMethod | None = None,
        miss_rate: float | None = None,
        jointly: bool = False,
    ) -> Self:
        """Certify intervals on rows that the training never saw, for `predict_interval`.

        Name the miss rate to get the narrowest intervals for it: counts of all responses to an
        input, where they are better, else pairs of them (`auto`, see `fit_intervals`). Without it,
        Algorithm 1 on pairs certifies every miss rate at once.

        The order of the rows does not matter. What the guarantee rests on is checked where it can
        be seen, and stated in `calibration_conditions_`.

        Args:
            X: inputs of the calibration set.
            y: their responses or counts, matched with `classes_` by label. Where rows have
                different numbers of annotations, each row gives as many as the poorest one has to
                `pairs`, and all of them to `counts` and `auto`. If every column is a person, or
                raters are few, say who answered
                (`PairData.from_responses(..., annotators=...)`).
            groups: `(n,)` labels; rows that are not independent of each other (near-duplicates,
                items of one source) share one. Each group is one unit of the guarantee.
            failure_rate: how often, over calibration sets, the guarantee may not hold.
            min_variance: the least variance of an interval; by default a fifth of the rows is set
                aside to choose it. Only for `pairs`.
            method: `pairs`, `counts` or `auto`; by default `auto` where `miss_rate` is named and
                nothing asks for pairs (named annotators, `min_variance`), else `pairs`.
            miss_rate: the one to certify; by default every one by pairs, 0.1 by counts and `auto`.
            jointly: whether to certify all classes of an input together, for `counts` and `auto`.

        Raises:
            UnequalRatersError: the columns of y are people who lean differently.
            ValueError: the responses to an input repel each other more than chance allows, so that
                they cannot be independent draws.
        """
        prediction = self.predict_moments(X)
        data = self.read_targets(y)
        check_consistent_length(prediction.probs, data, groups)
        conditions = check_conditions(X, data, groups)
        if method is None:
            by_pairs = miss_rate is None or min_variance is not None or data.annotators is not None
            method = "pairs" if by_pairs else "auto"
        if method != "pairs" and min_variance is not None:
            raise ValueError(
                f"min_variance is {min_variance!r} and method {method!r}; expected method='pairs' "
                f"with it: counts choose a cut-off of their own."
            )
        if not (paired := data.has_pair).all():  # check_conditions has said so
            prediction = Prediction(prediction.probs[paired], prediction.variance[paired])
            data = data[paired]
            groups = None if groups is None else np.asarray(groups)[paired]
        self._forget_calibration()
        if method == "pairs":
            self.inflations_ = fit_inflations(
                prediction,
                data,
                failure_rate=failure_rate,
                min_variance=min_variance,
                groups=groups,
            )
        else:
            self.intervals_ = fit_class_intervals(
                prediction,
                data,
                method=method,
                miss_rate=0.1 if miss_rate is None else miss_rate,
                failure_rate=failure_rate,
                jointly=jointly,
                groups=groups,
            )
        self.calibration_conditions_ = conditions
        return self

    def predict_interval(
        self, X: Any, miss_rate: float | None = None, *, jointly: bool = False
    ) -> Interval:
        """Intervals for p(y|x), `(n, K)`, guaranteed by the calibration set.

        Args:
            X: inputs.
            miss_rate: the share of new inputs whose p(y|x) may lie outside; by default the one that
                was certified, or 0.1 where every one was.
            jointly: whether that share is for all classes at once rather than for each.
        """
        if (fitted := getattr(self, "intervals_", None)) is not None:
            if jointly != fitted.jointly:
                raise ValueError(
                    f"jointly={jointly} was asked for, but jointly={fitted.jointly} was certified; "
                    f"calibrate for it, or with method='pairs', which certifies both."
                )
            prediction = self.predict_moments(X)
            return fitted.interval(prediction.probs, prediction.variance, miss_rate)
        check_is_fitted(
            self,
            "inflations_",
            msg="This %(name)s is not calibrated: call calibrate(X, y) with rows that the training "
            "never saw. (chebyshev_interval(probs, variance, miss_rate) needs none, but rests on "
            "the model being calibrated on pairs.)",
        )
        prediction = self.predict_moments(X)
        rate = 0.1 if miss_rate is None else miss_rate
        return self.inflations_.interval(
            prediction.probs, prediction.variance, rate, jointly=jointly
        )

    def _forget_calibration(self) -> None:
        """Drop what an earlier `calibrate` found: it may speak of another model."""
        for name in ("inflations_", "intervals_", "calibration_conditions_"):
            vars(self).pop(name, None)

    def read_targets(self, y: ArrayLike | PairData) -> PairData:
        """Responses or counts as pair data with the classes of the fitted estimator."""
        return PairData.from_targets(y, self.targets, classes=self.classes_.tolist())
