"""Items by what is uncertain about them: how much people disagree, how little the model knows.

The numbers and the three lists are those of `Triage`; this module only draws them.

Axes: rows (n).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from secondguess._arrays import FloatArray
from secondguess.classification.pipelines import last_step
from secondguess.displays.drawing import draw_diagonal, draw_line, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from secondguess.classification.triage import Triage

Unit = Literal["variance", "nats"]

_AXES = {
    "variance": ("people disagree (variance)", "not learned (epistemic variance)"),
    "nats": ("people disagree (nats, at most)", "not learned (nats, at least)"),
}
_POINTS: dict[str, Any] = {"linestyle": "none", "marker": ".", "markersize": 3, "alpha": 0.5}
_MARKED: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none"}
_LISTS: dict[str, dict[str, Any]] = {
    "people disagree": {"marker": "s", "color": "#0072B2"},
    "not learned": {"marker": "^", "color": "#D55E00"},
    "label next": {"marker": "o", "color": "#222222", "markersize": 9},
}
_EVEN = "as much of both"


@dataclass(kw_only=True)
class TriageDisplay:
    """Every item by disagreement between people and ignorance of the model, and the three lists.

    >>> from secondguess import Triage
    >>> split, unknown = np.array([0.5, 0.1, 0.2]), np.array([0.0, 0.4, 0.1])
    >>> nats = {"disagreement_nats": split, "ignorance_nats": unknown}
    >>> parts = Triage(disagreement=split, ignorance=unknown, **nats)
    >>> display = TriageDisplay.from_predictions(parts, num_rows=1)
    >>> {name: line.get_xdata().tolist() for name, line in display.lists_.items()}
    {'people disagree': [0.5], 'not learned': [0.1], 'label next': [0.1]}

    Above the diagonal the model's ignorance is the larger part, below it people's disagreement is.
    In nats the mutual information of two responses stands for ignorance. It is a lower bound, so
    that every item belongs as high as it is drawn or higher, and as far left or further.

    Attributes:
        triage: what is drawn.
        unit: `variance` or `nats`.
        num_rows: how many items each list has at most; 0 leaves the lists out.
        name: of the items, in the legend; None for none.
        ax_, figure_, line_: what was drawn last, and where.
        lists_: the marked items, by the name of their list.
    """

    triage: Triage
    unit: Unit = "variance"
    num_rows: int = 10
    name: str | None = None
    ax_: Axes = field(init=False, repr=False)
    figure_: Figure = field(init=False, repr=False)
    line_: Line2D = field(init=False, repr=False)
    lists_: dict[str, Line2D] = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        triage: Triage,
        *,
        unit: Unit = "variance",
        num_rows: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        ref_line: bool = True,
        **style: Any,
    ) -> Self:
        """Draw what `triage` said of items.

        Args:
            triage: the parts of their uncertainty.
            unit: `variance`, where the two parts add up exactly, or `nats`.
            num_rows: how many items of each list to mark; 0 for none. The lists go by variance.
            name: of the items, in the legend.
            ax: axes to draw on; new ones by default.
            ref_line: whether to draw the diagonal.
            style: of the items, passed to `Axes.plot`.
        """
        if unit not in get_args(Unit):
            raise ValueError(f"unit is {unit!r}; expected one of {', '.join(get_args(Unit))}.")
        if unit == "nats" and np.isnan(triage.ignorance_nats).any():
            raise ValueError(
                "the joints have no table, and so no nats (a binary head with more than two "
                "classes); use unit='variance'."
            )
        display = cls(triage=triage, unit=unit, num_rows=num_rows, name=name)
        return display.plot(ax=ax, ref_line=ref_line, **style)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, name: str | None = None, **options: Any
    ) -> Self:
        """Draw what a fitted pair classifier says of items; no labels are needed.

        Args:
            estimator: such as a `PairClassifier`.
            X: inputs.
            name: in the legend; that of the estimator's class by default.
            options: of `from_predictions`.
        """
        from secondguess.classification.triage import triage  # torch, only where it is needed

        last, inputs = last_step(estimator, X)
        if not hasattr(last, "joints"):
            raise TypeError(
                f"{type(last).__name__} has no joints; expected a pair classifier. Parts that were "
                f"found in another way go to from_predictions."
            )
        parts = triage(last, inputs)
        return cls.from_predictions(parts, name=name or type(last).__name__, **options)

    def plot(
        self,
        *,
        ax: Axes | None = None,
        name: str | None = None,
        ref_line: bool = True,
        **style: Any,
    ) -> Self:
        """Draw it again, on given axes or on new ones."""
        ax = new_axes() if ax is None else ax
        x, y = self._places()
        if ref_line:
            draw_diagonal(ax, _EVEN, np.minimum(x, y))
        self.ax_, self.figure_, self.line_ = draw_line(ax, x, y, name or self.name, _POINTS | style)
        self.lists_ = {}
        for title, rows in self._listed().items():
            look = _MARKED | _LISTS[title]
            [self.lists_[title]] = ax.plot(x[rows], y[rows], label=title, **look)
        if self.lists_:
            ax.legend()
        across, up = _AXES[self.unit]
        ax.set(xlabel=across, ylabel=up)
        return self

    def _places(self) -> tuple[FloatArray, FloatArray]:
        if self.unit == "nats":
            return self.triage.disagreement_nats, self.triage.ignorance_nats
        return self.triage.disagreement, self.triage.ignorance

    def _listed(self) -> dict[str, Any]:
        if self.num_rows == 0:
            return {}
        found = self.triage
        return {
            "people disagree": found.people_disagree(self.num_rows),
            "not learned": found.not_learned(self.num_rows),
            "label next": found.label_next(self.num_rows),
        }
