"""Curves over the share of responses that are given, the most trusted ones first.

A ranking is a gap, one number per response, smaller for responses to trust more. Rankings of the
same responses are compared by drawing them on the same axes (`ax=display.ax_`). The numbers come
from `theory.metrics`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray
from secondguess.classification.pairs import PairData
from secondguess.displays.drawing import Asked, ask, draw_line, new_axes
from secondguess.theory.metrics import (
    HallucinationCurve,
    RiskCoverageCurve,
    hallucination_curve,
    risk_coverage_curve,
    squared_error_estimate,
)
from secondguess.theory.records import SelfCheatScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

RankedBy = Literal["probability", "variance"]
Loss = Literal["disagreement", "majority", "squared_error"]

_MOST_POINTS = 1000
"""A thousand points of a curve look like a million."""
_FIRST_SHARE = 0.002
"""A longer curve begins at this share: before it, a few responses make all the noise."""


@dataclass(kw_only=True)
class RiskCoverageDisplay:
    """The mean loss of the responses that are given, against how many are given.

    >>> gap, losses = [0.1, 0.2, 0.7, 0.9], [0.0, 0.0, 0.5, 0.5]
    >>> display = RiskCoverageDisplay.from_predictions(gap, losses)
    >>> display.curve.risk.round(3)
    array([0.   , 0.   , 0.167, 0.25 ])
    >>> display.ax_.get_xlabel()
    'coverage'

    Which ranking is best depends on the loss. Where a label should agree with the annotators or
    with their majority, the largest probability ranks best: it also avoids what people disagree
    on. Where the probabilities should be right, the epistemic variance does.

    Attributes:
        curve: what is drawn.
        name: in the legend; None for none.
        loss: what the risk is a mean of, on the vertical axis.
        ax_, figure_, line_: what was drawn last, and where.
    """

    curve: RiskCoverageCurve
    name: str | None = None
    loss: str = "risk"
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    line_: Line2D = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        gap: ArrayLike,
        losses: ArrayLike,
        *,
        rng: np.random.Generator | None = None,
        name: str | None = None,
        loss: str = "risk",
        ax: Axes | None = None,
        **style: Any,
    ) -> Self:
        """Draw the losses of responses in the order of a ranking.

        Args:
            gap: `(n,)`, smaller for responses to trust more.
            losses: `(n,)`, what each response costs.
            rng: puts responses of equal gap in random order; seeded with 0 by default.
            name: in the legend.
            loss: what the losses are, for the vertical axis.
            ax: axes to draw on; new ones by default.
            style: passed to `Axes.plot`.
        """
        curve = risk_coverage_curve(gap, losses, rng=_generator(rng))
        return cls(curve=curve, name=name, loss=loss).plot(ax=ax, **style)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | PairData,
        *,
        by: RankedBy = "probability",
        loss: Loss = "disagreement",
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Draw a fitted pair classifier, by one of two rankings against one of three losses.

        Args:
            estimator: such as a `PairClassifier`.
            X: inputs that it was not trained on.
            y: `(n, num_classes)` counts, or a `PairData`.
            by: `probability` gives the labels first that are most probable. `variance` gives those
                first whose epistemic variance, summed over classes, is small: what has been
                learned.
            loss: `disagreement` is the share of annotators who chose otherwise than the most
                probable label, `majority` whether another label has more of them, and
                `squared_error` how far the probabilities are off, summed over classes. That is
                estimated without bias from two annotations per row or more, so that single rows
                may be below zero.
            name: in the legend; that of the estimator's class by default.
            options: of `from_predictions`.
        """
        asked = ask(estimator, X, y)
        match by:
            case "variance":
                gap = asked.prediction.variance.sum(axis=1)
            case "probability":
                gap = 1 - asked.of_called(asked.prediction.probs)
            case _:
                raise ValueError(f"by is {by!r}; expected one of {', '.join(get_args(RankedBy))}.")
        losses, title = _losses(asked, loss)
        return cls.from_predictions(gap, losses, name=name or asked.name, loss=title, **options)

    def plot(self, *, ax: Axes | None = None, name: str | None = None, **style: Any) -> Self:
        """Draw it again, on given axes or on new ones."""
        self.ax_, self.figure_, self.line_ = _draw_curve(
            self.curve.coverage, self.curve.risk, name or self.name, ax, style
        )
        self.ax_.set(xlabel="coverage", ylabel=self.loss)
        return self


@dataclass(kw_only=True)
class HallucinationCurveDisplay:
    """The share of answers that are made up, against how many are given.

    >>> gap, is_hallucination = [0.1, 0.2, 0.7, 0.9], [False, False, True, True]
    >>> ours = HallucinationCurveDisplay.from_predictions(gap, is_hallucination, name="1 - C")
    >>> rival = [0.6, 0.1, 0.2, 0.3]
    >>> both = HallucinationCurveDisplay.from_predictions(
    ...     rival, is_hallucination, name="length", ax=ours.ax_
    ... )
    >>> ours.curve.hallucination_rate.round(3), both.curve.hallucination_rate.round(3)
    (array([0.   , 0.   , 0.333, 0.5  ]), array([0.   , 0.5  , 0.667, 0.5  ]))

    The lower the curve, the better the ranking; all rankings end at the same point.

    Attributes:
        curve: what is drawn.
        name: in the legend; None for none.
        ax_, figure_, line_: what was drawn last, and where.
    """

    curve: HallucinationCurve
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    line_: Line2D = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        gap: ArrayLike | SelfCheatScores,
        is_hallucination: ArrayLike,
        *,
        rng: np.random.Generator | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **style: Any,
    ) -> Self:
        """Draw how often answers are made up, in the order of a ranking.

        Args:
            gap: `(n,)`, smaller for answers to trust more; or the scores of the answers, which are
                ranked by their confidence gap.
            is_hallucination: `(n,)`, whether each answer is made up.
            rng: puts answers of equal gap in random order; seeded with 0 by default.
            name: in the legend.
            ax: axes to draw on; new ones by default.
            style: passed to `Axes.plot`.
        """
        if isinstance(gap, SelfCheatScores):
            gap = gap.confidence_gap()
        curve = hallucination_curve(gap, is_hallucination, rng=_generator(rng))
        return cls(curve=curve, name=name).plot(ax=ax, **style)

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
        """Draw a fitted pair classifier: its most probable labels, by their confidence gap.

        A label counts as made up if no annotator of the row chose it.

        Args:
            estimator: such as a `PairClassifier`.
            X: inputs that it was not trained on.
            y: `(n, num_classes)` counts, or a `PairData`.
            name: in the legend; that of the estimator's class by default.
            options: of `from_predictions`.
        """
        asked = ask(estimator, X, y, "predict_confidence")
        gap = np.abs(1 - asked.of_called(asked.estimator.predict_confidence(asked.inputs)))
        made_up = asked.of_called(asked.counts) == 0
        return cls.from_predictions(gap, made_up, name=name or asked.name, **options)

    def plot(self, *, ax: Axes | None = None, name: str | None = None, **style: Any) -> Self:
        """Draw it again, on given axes or on new ones."""
        self.ax_, self.figure_, self.line_ = _draw_curve(
            self.curve.response_rate, self.curve.hallucination_rate, name or self.name, ax, style
        )
        self.ax_.set(xlabel="response rate", ylabel="hallucination rate")
        return self


def _losses(asked: Asked, loss: Loss) -> tuple[FloatArray, str]:
    """What each row costs, and what that is called."""
    match loss:
        case "disagreement":
            said = asked.of_called(asked.counts) / asked.counts.sum(axis=1)
            return 1 - said, "annotators who chose otherwise"
        case "majority":
            outnumbered = asked.of_called(asked.counts) < asked.counts.max(axis=1)
            return outnumbered.astype(float), "labels against the majority"
        case "squared_error":
            errors = squared_error_estimate(asked.prediction, asked.counts)
            return errors.sum(axis=1), "squared error of probabilities"
        case _:
            raise ValueError(f"loss is {loss!r}; expected one of {', '.join(get_args(Loss))}.")


def _generator(rng: np.random.Generator | None) -> np.random.Generator:
    return np.random.default_rng(0) if rng is None else rng


def _draw_curve(
    x: FloatArray, y: FloatArray, name: str | None, ax: Axes | None, style: dict[str, Any]
) -> tuple[Axes, Figure, Line2D]:
    ax = new_axes() if ax is None else ax
    if len(x) > _MOST_POINTS:
        shares = np.linspace(_FIRST_SHARE, 1, _MOST_POINTS)
        shown = np.unique(shares * (len(x) - 1)).astype(int)
        x, y = x[shown], y[shown]
    return draw_line(ax, x, y, name, style)
