"""Reliability diagrams: what was predicted, in bins, against what was observed there.

Calibrated predictions lie on the diagonal. Bins hold equally many rows and come from
`theory.reliability`; rows are (input, class) pairs for probabilities and variances, and responses
for confidences.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import as_floats, fail_at, same_shape
from secondguess.classification.pairs import PairData
from secondguess.displays.drawing import ask, draw_diagonal, draw_line, new_axes
from secondguess.theory.annotations import Annotations, as_annotations
from secondguess.theory.metrics import squared_error_estimate
from secondguess.theory.records import Prediction, SelfCheatScores
from secondguess.theory.reliability import NUM_BINS, ReliabilityBins, reliability_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_MARKS: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linewidth": 0.9}
_CALIBRATED = "calibrated"
_AXES = {
    "first": ("predicted probability", "observed share"),
    "second": ("predicted variance", "squared error"),
}

Order = Literal["first", "second"]


@dataclass(kw_only=True)
class ReliabilityDisplay:
    """Squared error against predicted variance: second-order calibration (ECE-2) to look at.

    With `order="first"`, annotators' shares against predicted probability: ECE-1.

    >>> prediction = Prediction(np.full((4, 2), 0.5), np.full((4, 2), 0.05))
    >>> counts = [[4, 0], [3, 1], [1, 3], [0, 4]]
    >>> display = ReliabilityDisplay.from_predictions(prediction, counts, num_bins=1)
    >>> display.bins.predicted, display.bins.observed.round(3)
    (array([0.05]), array([0.125]))
    >>> display.ax_.get_xlabel()
    'predicted variance'
    >>> first = ReliabilityDisplay.from_predictions(prediction, counts, order="first", num_bins=1)
    >>> first.bins.predicted, first.bins.observed
    (array([0.5]), array([0.5]))

    Of the second order, points above the diagonal say that predictions are further off than the
    model believes. Squared errors are unbiased estimates from annotators, so the mean of a bin may
    be below zero.

    Attributes:
        bins: what is drawn.
        order: `second` for variances, `first` for probabilities.
        name: in the legend; None for none.
        ax_, figure_, line_: what was drawn last, and where.
    """

    bins: ReliabilityBins
    order: Order = "second"
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    line_: Line2D = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        prediction: Prediction,
        truth: Annotations | ArrayLike,
        *,
        order: Order = "second",
        num_bins: int = NUM_BINS,
        name: str | None = None,
        ax: Axes | None = None,
        ref_line: bool = True,
        **style: Any,
    ) -> Self:
        """Draw what a method predicts against annotators, or against a known truth.

        Args:
            prediction: of any method.
            truth: `(n, num_classes)`, how many annotations of a row chose each class; or an
                `Annotations`, where the truth is known.
            order: `second` for variances, `first` for probabilities.
            num_bins: bins of equally many (input, class) pairs.
            name: in the legend.
            ax: axes to draw on; new ones by default.
            ref_line: whether to draw the diagonal.
            style: passed to `Axes.plot`.
        """
        match order:
            case "second":
                predicted = prediction.variance
                observed = squared_error_estimate(prediction, truth)
            case "first":
                predicted = prediction.probs
                observed = as_annotations(truth).of(predicted).shares
            case _:
                raise ValueError(f"order is {order!r}; expected first or second.")
        bins = reliability_bins(predicted, observed, num_bins=num_bins)
        return cls(bins=bins, order=order, name=name).plot(ax=ax, ref_line=ref_line, **style)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | PairData,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Draw a fitted pair classifier on rows with annotations.

        Args:
            estimator: such as a `PairClassifier`.
            X: inputs that it was not trained on.
            y: `(n, num_classes)` counts, or a `PairData`.
            name: in the legend; that of the estimator's class by default.
            options: of `from_predictions`.
        """
        asked = ask(estimator, X, y)
        return cls.from_predictions(
            asked.prediction, asked.counts, name=name or asked.name, **options
        )

    def plot(
        self,
        *,
        ax: Axes | None = None,
        name: str | None = None,
        ref_line: bool = True,
        **style: Any,
    ) -> Self:
        """Draw it again, on given axes or on new ones."""
        self.ax_, self.figure_, self.line_ = _draw_bins(
            self.bins, name or self.name, ax, ref_line, style
        )
        predicted, observed = _AXES[self.order]
        self.ax_.set(xlabel=predicted, ylabel=observed)
        return self


@dataclass(kw_only=True)
class ConfidenceReliabilityDisplay:
    """The share of responses that are not made up, by deciles of the epistemic confidence C.

    >>> confidence, is_true = [0.1, 0.3, 0.8, 1.1], [False, True, True, True]
    >>> display = ConfidenceReliabilityDisplay.from_predictions(confidence, is_true, num_bins=2)
    >>> display.bins.predicted, display.bins.observed
    (array([0.2, 0.9]), array([0.5, 1. ]))
    >>> display.share_above_one
    0.25

    Theorem 4.5 bounds the chance of a hallucination by 1 - C, so a model that is calibrated on
    pairs lies on the diagonal or above it. A confidence above 1 is outside the theorem: it is drawn
    at 1, and the legend says how many there are.

    Attributes:
        bins: what is drawn; confidences count as at most 1.
        share_above_one: how many confidences are above 1.
        name: in the legend; None for none.
        ax_, figure_, line_: what was drawn last, and where.
    """

    bins: ReliabilityBins
    share_above_one: float = 0.0
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    line_: Line2D = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        confidence: ArrayLike | SelfCheatScores,
        is_true: ArrayLike,
        *,
        num_bins: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        ref_line: bool = True,
        **style: Any,
    ) -> Self:
        """Draw confidences against what turned out to be true.

        Args:
            confidence: `(n,)`, one per response, or the scores of the responses.
            is_true: `(n,)`, whether each response is right, or at least not made up.
            num_bins: bins of equally many responses.
            name: in the legend.
            ax: axes to draw on; new ones by default.
            ref_line: whether to draw the diagonal.
            style: passed to `Axes.plot`.
        """
        if isinstance(confidence, SelfCheatScores):
            confidence = confidence.epistemic_confidence
        values = as_floats("confidence", confidence, allow_infinite=True)
        truth = as_floats("is_true", is_true)
        same_shape(confidence=values, is_true=truth)
        fail_at("is_true", (truth != 0) & (truth != 1), truth, "True or False")
        bins = reliability_bins(np.minimum(values, 1.0), truth, num_bins=num_bins)
        above = float((values > 1).mean())
        display = cls(bins=bins, share_above_one=above, name=name)
        return display.plot(ax=ax, ref_line=ref_line, **style)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | PairData,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Draw a fitted pair classifier: the confidence in its most probable label.

        A label counts as made up if no annotator of the row chose it. With few annotators that
        happens to labels that some would choose, so the truth is no lower than what is drawn.

        Args:
            estimator: such as a `PairClassifier`.
            X: inputs that it was not trained on.
            y: `(n, num_classes)` counts, or a `PairData`.
            name: in the legend; that of the estimator's class by default.
            options: of `from_predictions`.
        """
        asked = ask(estimator, X, y, "predict_confidence")
        confidence = asked.of_called(asked.estimator.predict_confidence(asked.inputs))
        is_true = asked.of_called(asked.counts) > 0
        return cls.from_predictions(confidence, is_true, name=name or asked.name, **options)

    def plot(
        self,
        *,
        ax: Axes | None = None,
        name: str | None = None,
        ref_line: bool = True,
        **style: Any,
    ) -> Self:
        """Draw it again, on given axes or on new ones."""
        name = name or self.name
        if name is not None and self.share_above_one > 0:
            name += f" ({100 * self.share_above_one:.2g} % of C above 1, drawn at 1)"
        self.ax_, self.figure_, self.line_ = _draw_bins(self.bins, name, ax, ref_line, style)
        self.ax_.set(xlabel="epistemic confidence C", ylabel="share not made up")
        return self


def _draw_bins(
    bins: ReliabilityBins,
    name: str | None,
    ax: Axes | None,
    ref_line: bool,
    style: dict[str, Any],
) -> tuple[Axes, Figure, Line2D]:
    ax = new_axes() if ax is None else ax
    if ref_line:
        draw_diagonal(ax, _CALIBRATED, bins.predicted, bins.observed)
    return draw_line(ax, bins.predicted, bins.observed, name, _MARKS | style)
