"""Weights of items in a fit, copies of which count once, and of classes in a decision.

A weight of 2 is the item twice and a weight of 0 is no item. To hold that to the last digit, and
not only on average, a fit sees each distinct item once, with the weight of all its copies, in an
order that follows from what is in the rows: random folds and batches then fall the same way
whichever way the rows came, and no copy is trained on while another is held out. An input that
recurs with other responses is no copy, and its rows stay as they are. So do all rows where inputs
are categories, each of which stands for many items: as one row, a category would be held out whole.

Axes: rows (n), then features or classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.fit_warnings import PairFitWarning
from secondguess.classification.fitting import Rows
from secondguess.classification.inputs import Standardisation
from secondguess.classification.pairs import PairData
from secondguess.classification.splitting import row_keys

MOST_COPIES = 4
"""Items (groups, where there are any) per distinct input; more, on average, make it a category."""


class DistinctRows(NamedTuple):
    """One row of each kind.

    Attributes:
        rows: `(m,)` row numbers; of copies one, in an order that follows from their content.
        weights: `(m,)`, of all copies together; None where every one is 1.
        groups: `(m,)` labels, those of the user; None where there are none.
    """

    rows: IntArray
    weights: FloatArray | None
    groups: NDArray[Any] | None


def item_weights(data: PairData, sample_weight: ArrayLike | None) -> FloatArray | None:
    """The weight of each item, `(n,)`, checked; None where none are given.

    >>> item_weights(PairData.from_counts([[2, 0], [1, 1], [2, 0]]), [1, 0, 2])
    array([1., 0., 2.])
    """
    if sample_weight is None:
        return None
    weights = _check_sample_weight(
        sample_weight, np.empty((len(data), 1)), dtype=np.float64, ensure_non_negative=True
    )
    total, number = weights.sum(), np.count_nonzero(weights)
    if total < number / 2:
        warnings.warn(
            f"sample_weight sums to {total:.3g} over {number} items: weights count items, so this "
            f"is a fit to {total:.3g} of them, held close to equal chances. Where they are shares "
            f"of a whole, multiply them by {number}.",
            PairFitWarning,
            stacklevel=3,
        )
    return weights


def decision_weights(
    class_weight: Mapping[Any, float] | str | None,
    data: PairData,
    weights: FloatArray | None = None,
) -> FloatArray | None:
    """What the probability of each class is multiplied by before the largest wins, `(K,)`.

    In the fit there are none: a weight that depends on an item's own labels makes these depend on
    each other. (Take two labels, mostly 0, where the rare class 1 weighs ten times as much: an item
    with one of each then counts more often than chance would have it, and the covariance of pairs
    comes out negative, although people answered independently.) In the decision they are the costs
    of overlooking a class, and probabilities, variances and intervals stay calibrated.

    >>> data = PairData.from_counts([[3, 0], [2, 1]], classes=["no", "yes"])
    >>> decision_weights("balanced", data), decision_weights({"yes": 4}, data)
    (array([0.6, 3. ]), array([1., 4.]))

    Args:
        class_weight: a weight by label (1 where none is named), `balanced` for the inverse of how
            often a label was given (1 where it never was), or None.
        data: the responses of the fit.
        weights: `(n,)`, of the items; None for one each.
    """
    if class_weight is None:
        return None
    labels = data.classes.tolist()
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = data.counts()
        given = counts.sum(axis=0) if weights is None else weights @ counts
        return np.where(given > 0, given.sum() / (len(given) * np.where(given > 0, given, 1)), 1.0)
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"class_weight is {class_weight!r}; expected 'balanced', a weight by label or None."
        )
    if unknown := [label for label in class_weight if label not in labels]:
        raise ValueError(f"class_weight names {unknown}; expected labels of {labels}.")
    found = [class_weight.get(label, 1.0) for label in labels]
    if not all(isinstance(each, Real) and 0 <= each < np.inf for each in found) or not any(found):
        raise ValueError(
            f"class_weight is {dict(class_weight)}; expected finite weights, none below 0, not all "
            f"0."
        )
    return np.array(found, dtype=np.float64)


def distinct_rows(
    inputs: Any, data: PairData, groups: ArrayLike | None, weights: FloatArray | None
) -> DistinctRows:
    """Rows with the same inputs, counts and group as one; rows of weight 0 are left out.

    >>> data = PairData.from_responses([[0, 1], [1, 1], [1, 0]])
    >>> found = distinct_rows(np.array([[5.0], [6.0], [5.0]]), data, None, None)
    >>> sorted(zip(found.rows.tolist(), found.weights.tolist()))
    [(0, 2.0), (1, 1.0)]

    Where an input recurs with other responses, its rows are no copies:

    >>> sorted(distinct_rows(np.array([[5.0], [5.0], [5.0]]), data, None, None).rows.tolist())
    [0, 1, 2]

    Args:
        inputs: `(n, ...)`: an array, a sparse matrix or a table.
        data: the responses.
        groups: `(n,)` labels that no split may tear apart.
        weights: `(n,)`; None for one each.
    """
    labels = checked_groups(groups, len(data))
    kept = np.arange(len(data)) if weights is None else np.flatnonzero(weights > 0)
    amounts = (np.ones(len(data)) if weights is None else weights)[kept]
    units = kept * 0 if labels is None else np.unique(labels[kept], return_inverse=True)[1]
    places = np.unique(np.array(row_keys(inputs))[kept], return_inverse=True)[1]
    answers = np.array(row_keys(data.counts()))[kept]
    kinds = np.unique(np.rec.fromarrays([places, answers, units]), return_inverse=True)[1]
    num_places = int(places.max()) + 1
    # Rows of one group are one item in the words of the user.
    num_items = amounts.sum() if labels is None else len(np.unique([places, units], axis=1).T)
    order = np.lexsort([amounts, kinds])
    places, kinds = places[order], kinds[order]
    # As one row: rows of one kind, at an input that has no other.
    first = np.r_[True, kinds[1:] != kinds[:-1]]
    one_kind = np.bincount(places[first], minlength=num_places) == 1
    if num_items > MOST_COPIES * num_places:
        one_kind[:] = False
    starts = np.flatnonzero(first | ~one_kind[places])
    rows, together = kept[order][starts], np.add.reduceat(amounts[order], starts)
    return DistinctRows(
        rows,
        None if (together == 1).all() else together,
        None if labels is None else labels[rows],
    )


def checked_groups(groups: ArrayLike | None, num_rows: int) -> NDArray[Any] | None:
    """Labels `(n,)` of rows that no split may tear apart, or None."""
    labels = None if groups is None else np.asarray(groups)
    if labels is not None and labels.shape != (num_rows,):
        raise ValueError(f"groups has shape {labels.shape}; expected ({num_rows},), one per row.")
    return labels


def prepared_rows(
    array: FloatArray,
    data: PairData,
    *,
    groups: ArrayLike | None = None,
    weights: FloatArray | None = None,
) -> tuple[Rows, Standardisation]:
    """Distinct rows on one scale, as `fit_stacked` takes them, and that scale.

    >>> data = PairData.from_responses([[0, 1], [1, 1]])
    >>> rows, _ = prepared_rows(np.array([[5.0], [7.0]]), data)
    >>> sorted(rows.inputs.ravel().tolist())
    [-1.0, 1.0]

    Args:
        array: `(n, d)`.
        data: the responses.
        groups: `(n,)` labels that no split may tear apart.
        weights: `(n,)`; None for one each.
    """
    found = distinct_rows(array, data, groups, weights)
    inputs = array[found.rows]
    standardise = Standardisation.of(inputs, found.weights)
    standardised = torch.from_numpy(standardise(inputs))
    # A column that never changes says nothing about the spread of the others, and has theirs.
    spreads, varies = standardise.scale, np.ptp(inputs, axis=0) > 0
    if varies.any():
        spreads = np.where(varies, spreads, np.sqrt(np.mean(spreads[varies] ** 2)))
    rows = Rows(standardised, data[found.rows], found.groups, found.weights, spreads)
    return rows, standardise
