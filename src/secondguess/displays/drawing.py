"""What all displays share: axes, a line with its legend, a diagonal, and questions to an estimator.

Nothing here knows what is drawn. matplotlib is imported when something is drawn, never before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, IntArray, as_counts
from secondguess.classification.pairs import PairData
from secondguess.classification.pipelines import last_step
from secondguess.theory.records import Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_REFERENCE_STYLE: dict[str, Any] = {"color": "#9a9a9a", "linewidth": 1}


def new_axes() -> Axes:
    """Axes of a new figure, which `pyplot.show` will show."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "displays draw with matplotlib, which is not installed; install it with "
            "pip install 'secondguess[displays]'."
        ) from error
    return plt.subplots()[1]


def draw_line(
    ax: Axes, x: FloatArray, y: FloatArray, name: str | None, style: dict[str, Any]
) -> tuple[Axes, Figure, Line2D]:
    """One line, and where it is drawn; with a name it stands in the legend."""
    if name is not None:
        style = {"label": name} | style
    [line] = ax.plot(x, y, **style)
    if name is not None:
        ax.legend()
    return ax, line.get_figure(root=True), line  # pyright: ignore[reportReturnType]


def draw_diagonal(ax: Axes, label: str, *ends: FloatArray) -> None:
    """The line y = x, from 0 or below to the largest of these values; one line for all series."""
    values = np.concatenate([*ends, [0.0]])
    found = [line for line in ax.get_lines() if line.get_label() == label]
    if found:
        values = np.concatenate([values, np.asarray(found[0].get_xdata())])
    span = [values.min(), values.max()]
    if found:
        found[0].set_data(span, span)
    else:
        ax.plot(span, span, label=label, **_REFERENCE_STYLE)


class Asked(NamedTuple):
    """What an estimator says of rows, and what their annotators said.

    Attributes:
        estimator: the pair classifier itself, where it was the end of a pipeline.
        inputs: as it takes them.
        prediction: `(n, num_classes)`.
        counts: `(n, num_classes)`, in the order of the estimator's classes.
        name: of the estimator, for the legend.
    """

    estimator: Any
    inputs: Any
    prediction: Prediction
    counts: IntArray
    name: str

    @property
    def called(self) -> IntArray:
        """The most probable class of each row, `(n,)`."""
        return self.prediction.probs.argmax(axis=1)

    def of_called(self, table: np.ndarray) -> np.ndarray:
        """The entry of a `(n, num_classes)` table at each row's most probable class."""
        return np.take_along_axis(table, self.called[:, None], axis=1)[:, 0]


def ask(estimator: Any, X: Any, y: ArrayLike | PairData, *methods: str) -> Asked:
    """Predictions of a fitted pair classifier, beside its annotators' counts.

    Args:
        estimator: has `classes_`, `predict_moments`, and the other methods named; or a pipeline
            that ends with such a one.
        X: inputs.
        y: `(n, num_classes)` counts, or a `PairData`.
        methods: further methods that the display will call.
    """
    last, inputs = last_step(estimator, X)
    name = type(last).__name__
    for method in ("predict_moments", *methods):
        if not hasattr(last, method):
            raise TypeError(
                f"{name} has no {method}; expected a pair classifier. With predictions of another "
                f"kind, use from_predictions."
            )
    counts = _counts(y, last.classes_)
    return Asked(last, inputs, last.predict_moments(inputs), counts, name)


def _counts(y: ArrayLike | PairData, classes: np.ndarray) -> IntArray:
    if isinstance(y, PairData):
        if not np.array_equal(y.classes, classes):
            raise ValueError(
                f"y has the classes {y.classes.tolist()}; expected those of the estimator, in "
                f"their order: {classes.tolist()}. Pass them as `classes=` to the PairData."
            )
        return y.counts()
    counts = as_counts("y", y)
    if counts.shape[1] != len(classes):
        raise ValueError(
            f"y has {counts.shape[1]} columns; expected annotator counts, one column for each "
            f"of the {len(classes)} classes. Wrap responses in PairData.from_responses."
        )
    return counts
