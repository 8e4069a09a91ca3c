"""Pair data: several responses to each input, drawn two at a time.

`PairData` stores the responses of all rows in one form, whichever way they came: for each row the
class indices that were chosen (`labels`) and how often (`multiplicity`, 0 in unused places). It
says where they came from by name (`from_responses`, `from_ragged`, `from_counts`) because an
integer array of shape (n, 10) could be ten responses per row or the counts of ten classes.

Batches for training are made in `batches.py`.

Axes: rows (n), then places (d): as many as a row has distinct entries at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import IntArray, as_counts
from secondguess.classification.labels import (
    Targets,
    as_classes,
    check_targets,
    encode_labels,
    flatten_rows,
)

NEED_PAIRS = (
    "A pair model learns from two or more independent responses to the same input: that is how it "
    "tells disagreement between people from its own ignorance. Ask a second annotator for at least "
    "part of the data, or drop the rows with a single response."
)


@dataclass(frozen=True, slots=True, eq=False)
class PairData:
    """Two or more responses to each of n inputs.

    >>> data = PairData.from_responses([["cat", "cat", "dog"], ["dog", "dog", "dog"]])
    >>> data.classes, data.counts()
    (array(['cat', 'dog'], dtype='<U3'), array([[2, 1], [0, 3]]))
    >>> data.draw(np.random.default_rng(0)).shape  # two different annotations of each row
    (2, 2)
    >>> PairData.from_ragged([[1, 1, 5], [5, 1]]).num_annotations
    array([3, 2])
    >>> PairData.from_counts([[2, 1], [0, 3]], classes=["cat", "dog"]).num_classes
    2

    Attributes:
        labels: `(n, d)` class indices.
        multiplicity: `(n, d)`, how many annotations of the row stand behind each label; 0 where a
            row has fewer than d entries. Each row has at least two annotations.
        classes: `(K,)`, the label that each class index stands for.
    """

    labels: IntArray
    multiplicity: IntArray
    classes: NDArray[Any]

    @classmethod
    def from_responses(
        cls, responses: ArrayLike, *, classes: Sequence[Any] | None = None
    ) -> PairData:
        """From an `(n, k)` array of labels, one column for each of k >= 2 responses.

        Args:
            responses: labels of any hashable kind; numbers, strings, or objects.
            classes: the labels there are, in the order wanted; by default those that occur, sorted.
        """
        array = np.asarray(responses)
        if array.ndim != 2 or array.shape[1] < 2:
            raise ValueError(
                f"responses has shape {array.shape}; expected (n, k) with k >= 2 responses per "
                f"row. {NEED_PAIRS}"
            )
        classes_, labels = encode_labels(array.ravel(), classes)
        labels = labels.reshape(array.shape)
        return cls(labels, np.ones_like(labels), classes_)

    @classmethod
    def from_ragged(
        cls, responses: Iterable[Iterable[Any]], *, classes: Sequence[Any] | None = None
    ) -> PairData:
        """From one list of labels per row, each of length two or more.

        Args:
            responses: n lists of labels.
            classes: as in `from_responses`.
        """
        rows = [list(row) for row in responses]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        if len(rows) == 0 or lengths.min() < 2:
            at = f"row {int(np.argmax(lengths < 2))} of " if rows else ""
            count = f"{lengths.min()} response(s)" if rows else "no rows"
            raise ValueError(
                f"{at}responses has {count}; expected at least 2 per row. {NEED_PAIRS}"
            )
        classes_, flat = encode_labels(flatten_rows(rows), classes)
        used = np.arange(lengths.max()) < lengths[:, None]
        labels = np.zeros(used.shape, dtype=np.int64)
        labels[used] = flat
        return cls(labels, used.astype(np.int64), classes_)

    @classmethod
    def from_counts(cls, counts: ArrayLike, *, classes: Sequence[Any] | None = None) -> PairData:
        """From `(n, K)` annotator counts: how many annotations of a row chose each class.

        Args:
            counts: whole numbers; every row sums to two or more.
            classes: the K labels that the columns stand for; by default 0 to K - 1.
        """
        array = as_counts("counts", counts)
        totals = array.sum(axis=1)
        if (totals < 2).any():
            raise ValueError(
                f"counts row {int(np.argmax(totals < 2))} has 1 annotation; expected at least 2. "
                f"{NEED_PAIRS}"
            )
        classes_ = np.arange(array.shape[1]) if classes is None else as_classes(classes)
        if len(classes_) != array.shape[1]:
            raise ValueError(
                f"counts has {array.shape[1]} columns but classes has {len(classes_)} labels; "
                f"expected one label per column."
            )
        # Chosen classes first, so that a row needs only as many places as the busiest row has.
        order = np.argsort(array == 0, axis=1, kind="stable")
        order = order[:, : int((array > 0).sum(axis=1).max())]
        return cls(order, np.take_along_axis(array, order, axis=1), classes_)

    @classmethod
    def from_targets(
        cls,
        values: ArrayLike | PairData,
        targets: Targets | None,
        *,
        classes: Sequence[Any] | None = None,
    ) -> PairData:
        """From an array of the stated kind, doubted where it looks like the other kind.

        >>> PairData.from_targets([["a", "b"], ["b", "b"]], "responses").counts()
        array([[1, 1],
               [0, 2]])

        Args:
            values: the array; pair data pass through.
            targets: `responses`, one column per response, or `counts`, one column per class.
            classes: the labels there are, which also confirms what `targets` says.
        """
        if isinstance(values, PairData):
            return values
        array = np.asarray(values)
        check_targets(targets, array, confirmed=classes is not None)
        make = cls.from_responses if targets == "responses" else cls.from_counts
        return make(array, classes=classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> PairData:
        """Some of the rows, by a slice, an index array or a mask."""
        return PairData(self.labels[rows], self.multiplicity[rows], self.classes)

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def num_annotations(self) -> IntArray:
        """How many responses each row has, `(n,)`."""
        return self.multiplicity.sum(axis=1)

    def counts(self) -> IntArray:
        """Annotator counts, `(n, K)`."""
        counts = np.zeros((len(self), self.num_classes), dtype=np.int64)
        np.add.at(counts, (np.arange(len(self))[:, None], self.labels), self.multiplicity)
        return counts

    def responses(self, rng: np.random.Generator) -> IntArray:
        """Class indices `(n, k)` in random order, k the fewest annotations that any row has."""
        fewest = int(self.num_annotations.min())
        places = np.repeat(
            np.tile(np.arange(self.labels.shape[1]), len(self)), self.multiplicity.ravel()
        )
        rows = np.repeat(np.arange(len(self)), self.num_annotations)
        order = np.lexsort((rng.random(len(rows)), rows))
        starts = np.cumsum(self.num_annotations) - self.num_annotations
        chosen = order[starts[:, None] + np.arange(fewest)]
        return self.labels[rows[chosen], places[chosen]]

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Class indices `(n, 2)` of two annotations of each row, without replacement."""
        total = self.num_annotations
        first = rng.integers(total)
        second = rng.integers(total - 1)
        second += second >= first  # the first annotation is no longer there
        ends = self.multiplicity.cumsum(axis=1)
        rows = np.arange(len(self))
        places = [(position[:, None] >= ends).sum(axis=1) for position in (first, second)]
        return np.stack([self.labels[rows, place] for place in places], axis=1)
