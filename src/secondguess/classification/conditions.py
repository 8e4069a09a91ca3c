"""What a guarantee of a calibration set rests on: checked where it can be seen, stated where not.

Algorithm 1 needs rows that are independent of each other and, for each row, raters drawn at random
from the population whose share p(y|x) is. `check_conditions` refuses data that contradict this,
warns of data that may, and puts what is left into words, to stand next to the intervals.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from secondguess.classification.pairs import PairData
from secondguess.classification.splitting import num_repeated_rows
from secondguess.theory.calibration.raters import LEANING_LEVEL, check_equal_leanings


def check_conditions(
    inputs: Any, data: PairData, groups: ArrayLike | None = None
) -> tuple[str, ...]:
    """The conditions under which intervals from this calibration set are guaranteed.

    >>> rng = np.random.default_rng(0)
    >>> data = PairData.from_responses(rng.integers(2, size=(50, 2)), classes=[0, 1, 2])
    >>> for condition in check_conditions(rng.normal(size=(50, 3)), data):
    ...     print(condition)  # doctest: +NORMALIZE_WHITESPACE
    The rows are independent draws of what new inputs will be, and the training saw none of them.
    The raters of a row are drawn at random from the population whose share p(y|x) is (the columns
    were tested for equal leanings, at level 0.001).
    New inputs are as in the calibration set, where no rater chose [2].

    Args:
        inputs: `(n, ...)`, the inputs of the calibration set.
        data: the responses to them.
        groups: `(n,)` labels of rows that are not independent of each other.

    Raises:
        UnequalRatersError: the columns are people who lean differently, and nobody said so.
    """
    unit = "rows" if groups is None else "groups"
    conditions = [
        f"The {unit} are independent draws of what new inputs will be, and the training saw none "
        f"of them."
    ]
    if groups is None and (repeated := num_repeated_rows(inputs)):
        warnings.warn(
            f"{repeated:,} of {len(data):,} rows of the calibration set are exact copies of an "
            f"earlier row. If they are one item several times, their errors are not independent "
            f"and the guarantee does not hold: pass groups=, one label per item. If different "
            f"items happen to look alike, groups=range({len(data)}) says so.",
            stacklevel=3,
        )
        conditions.append(
            f"The {repeated:,} rows that are copies of an earlier row are different items."
        )
    if num_single := int((~data.has_pair).sum()):
        conditions.append(
            f"Whether a row has a second response does not depend on the first: the {num_single:,} "
            f"rows with a single one are not used."
        )
    paired = data.has_pair
    totals = data.num_annotations[paired]
    if len(np.unique(totals)) > 1:
        conditions.append(
            f"How many responses a row has ({totals.min()} to {totals.max()}) does not depend on "
            f"what they were."
        )
    paired_groups = None if groups is None else np.asarray(groups)[paired]
    conditions.append(_condition_on_raters(data[paired], paired_groups))
    missing = np.setdiff1d(np.arange(data.num_classes), data.labels[data.multiplicity > 0])
    if len(missing):
        names = data.classes[missing].tolist()
        conditions.append(
            f"New inputs are as in the calibration set, where no rater chose {names}."
        )
    return tuple(conditions)


def _condition_on_raters(data: PairData, groups: ArrayLike | None) -> str:
    if data.annotators is not None:
        num_annotators = len(np.unique(data.annotators[data.multiplicity > 0]))
        return (
            f"p(y|x) is the share among the {num_annotators:,} annotators of the calibration set, "
            f"each weighted by the number of responses given, and who is asked does not depend on "
            f"the input."
        )
    drawn = "The raters of a row are drawn at random from the population whose share p(y|x) is"
    if (columns := data.columns()) is None:
        return (
            f"{drawn} (which counts do not show: give responses and annotators, if they are few)."
        )
    check_equal_leanings(columns, groups=groups)
    return f"{drawn} (the columns were tested for equal leanings, at level {LEANING_LEVEL})."
