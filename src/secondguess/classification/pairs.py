"""Pair data: several responses to each input, drawn two at a time.

`PairData` stores the responses of all rows in one form, whichever way they came: for each row the
class indices that were chosen (`labels`) and how often (`multiplicity`, 0 in unused places). It
says where they came from by name (`from_long`, `from_responses`, `from_ragged`, `from_counts`)
because an integer array of shape (n, 10) could be ten responses per row or the counts of ten
classes.

Rows with a single response may stand among the others: they teach p(y|x), and nothing about pairs.

Who gave a response is kept where it is known (`annotators`): a guarantee needs it, because two
fixed people who lean differently are not two draws from a population. Batches for training are made
in `batches.py`.

Axes: rows (n), then places (d): as many as a row has distinct entries at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import IntArray, as_counts
from secondguess.classification.labels import (
    Targets,
    as_classes,
    as_table,
    check_targets,
    encode_labels,
    flatten_rows,
    positions_of,
    refuse_shares,
    refuse_unknown,
)
from secondguess.classification.long_tables import column_names, read_long_columns
from secondguess.classification.places import (
    annotator_table,
    annotators_in_places,
    in_places,
    pair_places,
    places_of_counts,
    shuffled,
)

NEED_PAIRS = (
    "A pair model learns from two or more independent responses to the same input: that is how it "
    "tells disagreement between people from its own ignorance. Ask a second annotator for at least "
    "part of the data."
)


@dataclass(frozen=True, slots=True, eq=False)
class PairData:
    """Responses to each of n inputs, two or more to at least some of them.

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
            row has fewer than d entries.
        classes: `(K,)`, the label that each class index stands for.
        annotators: `(n, d)` identities of those who gave the labels, in the same places, or None
            where they are not known.
        in_order: whether the places hold single responses in the order in which they came, so that
            a place may stand for a person; not so for counts.
        items: `(n,)`, which item each row is, where a table named them.
        num_missing: lines of the long table that lacked a value, and were dropped.
        num_repeated: lines dropped because the same annotator labelled the item again.
    """

    labels: IntArray
    multiplicity: IntArray
    classes: NDArray[Any]
    annotators: NDArray[Any] | None = None
    in_order: bool = False
    items: NDArray[Any] | None = None
    num_missing: int = 0
    num_repeated: int = 0

    def __post_init__(self) -> None:
        total = self.multiplicity.sum(axis=1)
        if len(total) == 0:
            raise ValueError(f"there are no rows; expected at least one. {NEED_PAIRS}")
        if total.min() < 1:
            raise ValueError(
                f"row {int(np.argmin(total))} has no response; expected at least 1. Drop the row."
            )

    @classmethod
    def from_long(
        cls,
        table: Any,
        *,
        item: str,
        label: str,
        annotator: str | None = None,
        classes: Sequence[Any] | None = None,
    ) -> PairData:
        """From a table with one line per label, as annotation tools export it.

        >>> table = {
        ...     "text": ["t1", "t1", "t2", "t2", "t2"],
        ...     "stars": [4, 5, 1, None, 1],
        ...     "who": ["ann", "bob", "ann", "bob", "cem"],
        ... }
        >>> data = PairData.from_long(table, item="text", label="stars", annotator="who")
        >>> data.items, data.num_annotations, data.num_missing
        (array(['t1', 't2'], dtype='<U2'), array([2, 2]), 1)

        Rows are in the order in which items first occur; `items` says which row is which, so that
        the inputs can be put in the same order (`features.loc[data.items]` in pandas).

        Args:
            table: a table of pandas, polars or pyarrow, or a dict of columns.
            item: column that says which item a line is about.
            label: column of the labels. Lines without a label, item or annotator are dropped and
                counted.
            annotator: column that says who gave the label, which a guarantee needs where raters are
                few. Of several labels of one person for one item the last counts.
            classes: as in `from_responses`; by default those of a categorical column, too.
        """
        columns = read_long_columns(table, item, label, annotator)
        if len(columns.items) == 0:
            raise ValueError(f"the table has no line with a label. {NEED_PAIRS}")
        data = cls.from_ragged(
            columns.labels,
            classes=columns.classes if classes is None else classes,
            annotators=columns.annotators,
        )
        return replace(
            data,
            items=flatten_rows([columns.items]),
            num_missing=columns.num_missing,
            num_repeated=columns.num_repeated,
        )

    @classmethod
    def from_responses(
        cls,
        responses: ArrayLike,
        *,
        classes: Sequence[Any] | None = None,
        annotators: ArrayLike | None = None,
    ) -> PairData:
        """From an `(n, k)` array of labels, one column for each of k >= 2 responses.

        >>> PairData.from_responses([[0, 1], [1, 1]], annotators=["ann", "bob"]).annotators
        array([['ann', 'bob'],
               ['ann', 'bob']], dtype='<U3')

        Args:
            responses: labels of any hashable kind; numbers, strings, or objects.
            classes: the labels there are, in the order wanted; by default those that occur, sorted.
            annotators: who gave each response, `(n, k)`, or `(k,)` where every column is a person.
        """
        array = np.asarray(responses)
        if array.ndim != 2 or array.shape[1] < 2:
            raise ValueError(
                f"responses has shape {array.shape}; expected (n, k) with k >= 2 responses per "
                f"row. {NEED_PAIRS}"
            )
        classes_, labels = encode_labels(array.ravel(), classes)
        labels = labels.reshape(array.shape)
        who = None if annotators is None else annotator_table(annotators, array.shape)
        return cls(labels, np.ones_like(labels), classes_, who, in_order=True)

    @classmethod
    def from_ragged(
        cls,
        responses: Iterable[Iterable[Any]],
        *,
        classes: Sequence[Any] | None = None,
        annotators: Iterable[Iterable[Any]] | None = None,
    ) -> PairData:
        """From one list of labels per row, of length two or more for at least some rows.

        Args:
            responses: n lists of labels.
            classes: as in `from_responses`.
            annotators: n lists of the same lengths: who gave each label.
        """
        rows = [list(row) for row in responses]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        if len(rows) == 0 or lengths.max() < 2:
            count = f"{lengths.max()} response(s) per row at most" if rows else "no rows"
            raise ValueError(f"responses has {count}; expected at least 2 in some. {NEED_PAIRS}")
        classes_, flat = encode_labels(flatten_rows(rows), classes)
        used = np.arange(lengths.max()) < lengths[:, None]
        labels = in_places(used, flat, 0)
        who = None if annotators is None else annotators_in_places(annotators, used)
        return cls(labels, used.astype(np.int64), classes_, who, in_order=True)

    @classmethod
    def from_counts(cls, counts: ArrayLike, *, classes: Sequence[Any] | None = None) -> PairData:
        """From `(n, K)` annotator counts: how many annotations of a row chose each class.

        Args:
            counts: whole numbers; at least some rows sum to two or more. The columns of a
                DataFrame, such as a `pandas.crosstab` of items and labels, name the classes.
            classes: the K labels that the columns stand for; by default their names, or 0 to K - 1.
                Columns with names are matched with it by name.
        """
        names = column_names(counts)
        if names is not None and classes is not None:
            return cls.from_counts(counts).aligned(classes)
        refuse_shares(np.asarray(counts))
        array = as_counts("counts", counts)
        if array.sum(axis=1).max() < 2:
            raise ValueError(
                f"counts has 1 annotation per row; expected at least 2 in some. {NEED_PAIRS}"
            )
        classes = names if classes is None else classes
        classes_ = np.arange(array.shape[1]) if classes is None else as_classes(classes)
        if len(classes_) != array.shape[1]:
            raise ValueError(
                f"counts has {array.shape[1]} columns but classes has {len(classes_)} labels; "
                f"expected one label per column."
            )
        return cls(*places_of_counts(array), classes_)

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
            values: the array; pair data are aligned with `classes`, where given.
            targets: `responses`, one column per response, or `counts`, one column per class.
            classes: the labels there are, which also confirms what `targets` says.
        """
        if isinstance(values, PairData):
            return values if classes is None else values.aligned(classes)
        array = as_table(values)
        check_targets(targets, array, confirmed=classes is not None)
        if targets == "responses":
            return cls.from_responses(array, classes=classes)
        return cls.from_counts(values, classes=classes)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int]:
        """That of the counts, `(n, K)`: by it, scikit-learn takes pair data for a y to be split."""
        return len(self), self.num_classes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.counts(), dtype=dtype)

    def __getitem__(self, rows: Any) -> PairData:
        """Some of the rows, by a slice, an index array or a mask."""
        # scikit-learn takes rows of whatever has a shape as [rows, ...].
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]
        return replace(
            self,
            labels=self.labels[rows],
            multiplicity=self.multiplicity[rows],
            annotators=None if self.annotators is None else self.annotators[rows],
            items=None if self.items is None else self.items[rows],
        )

    def aligned(self, classes: Sequence[Any]) -> PairData:
        """The same responses with the classes in this order; they are matched by their labels.

        >>> data = PairData.from_counts([[3, 1]], classes=["dog", "cat"])
        >>> data.aligned(["ant", "cat", "dog"]).counts()
        array([[0, 1, 3]])

        Args:
            classes: all labels that there may be; one that occurs and is not among them is refused.
        """
        known = as_classes(classes)
        if known.tolist() == self.classes.tolist():
            return self
        positions, _ = positions_of(self.classes.tolist(), known.tolist())
        labels = positions[self.labels]
        lost = np.unique(self.labels[(labels < 0) & (self.multiplicity > 0)])
        refuse_unknown(self.classes[lost].tolist(), known)
        return replace(self, labels=np.maximum(labels, 0), classes=known)

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def num_annotations(self) -> IntArray:
        """How many responses each row has, `(n,)`."""
        return self.multiplicity.sum(axis=1)

    @property
    def has_pair(self) -> NDArray[np.bool_]:
        """Which rows have two responses or more, `(n,)`; `data[data.has_pair]` are those rows."""
        return self.num_annotations > 1

    def counts(self) -> IntArray:
        """Annotator counts, `(n, K)`."""
        counts = np.zeros((len(self), self.num_classes), dtype=np.int64)
        np.add.at(counts, (np.arange(len(self))[:, None], self.labels), self.multiplicity)
        return counts

    def responses(self, rng: np.random.Generator) -> IntArray:
        """Class indices `(n, k)` in random order, k the fewest annotations that any row has."""
        return self.responses_and_annotators(rng)[0]

    def responses_and_annotators(
        self, rng: np.random.Generator
    ) -> tuple[IntArray, NDArray[Any] | None]:
        """Like `responses`, with the identities `(n, k)` of those who gave them, where known."""
        at = shuffled(self.multiplicity, rng)
        return self.labels[at], None if self.annotators is None else self.annotators[at]

    def columns(self) -> IntArray | None:
        """Class indices `(n, k)` in the order in which they came, or None where that is not known.

        k is the fewest annotations that any row has; a column may stand for a person.
        """
        return self.labels[:, : int(self.num_annotations.min())] if self.in_order else None

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Class indices `(n, 2)` of two annotations of each row, without replacement.

        A row with a single response has no pair: draw from `data[data.has_pair]`.
        """
        return self.labels[pair_places(self.multiplicity, rng)]
