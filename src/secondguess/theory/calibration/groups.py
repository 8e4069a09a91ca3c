"""Sums over groups of rows that are not independent of each other, whatever order they come in.

Near-duplicates, the frames of a video, the sentences of a document: a group counts as one unit, by
the mean over its rows. That keeps the range, wastes no row, and makes the guarantee one about a
random row of a random group; where all groups have the same size that is a random row. Memory grows
with the number of groups, not of rows: about 100 bytes each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import FloatArray, IntArray
from secondguess.theory.calibration.scatter import UnsignedArray


class GroupSums:
    """Whole numbers added up by group: the same sums in any order, and for any division of labour.

    >>> sums = GroupSums(num_columns=1, unit=0.5)
    >>> sums.add(np.array([7, 9, 7], dtype=np.uint64), np.array([1.0, 2.0, 3.0]), np.ones((3, 1)))
    >>> sums.means(), sums.ones
    (array([2., 2.]), array([[2],
           [1]]))

    Args:
        num_columns: how many columns of zeros and ones are added up beside the values.
        unit: what values are rounded to a multiple of.
    """

    def __init__(self, num_columns: int, unit: float) -> None:
        self.unit = unit
        self._keys: list[UnsignedArray] = [np.zeros(0, dtype=np.uint64)]
        self._sums: list[IntArray] = [np.zeros((0, 2 + num_columns), dtype=np.int64)]

    def add(self, keys: UnsignedArray, values: FloatArray, ones: NDArray) -> None:
        """Add rows: the key of the group, the value, and the zeros and ones of each."""
        units = np.rint(values * (1 / self.unit)).astype(np.int64)
        rows = np.column_stack([np.ones_like(units), units, ones.astype(np.int64)])
        self._append(*_summed(keys, rows))

    def merge(self, other: GroupSums) -> None:
        """Join what another process added up."""
        self._append(*other._joined())

    @property
    def num_groups(self) -> int:
        """How many groups there are."""
        return len(self._joined()[0])

    def means(self) -> FloatArray:
        """The mean value of each group, in the order of the keys: a random one."""
        sums = self._joined()[1]
        return sums[:, 1] / sums[:, 0] * self.unit

    @property
    def ones(self) -> IntArray:
        """How many ones each column of each group holds, `(num_groups, num_columns)`."""
        return self._joined()[1][:, 2:]

    def _append(self, keys: UnsignedArray, sums: IntArray) -> None:
        self._keys.append(keys)
        self._sums.append(sums)
        # Joining only when the newcomers outnumber the rest keeps the work proportional to them.
        if sum(map(len, self._keys[1:])) > len(self._keys[0]):
            self._joined()

    def _joined(self) -> tuple[UnsignedArray, IntArray]:
        if len(self._keys) > 1:
            keys, sums = _summed(np.concatenate(self._keys), np.concatenate(self._sums))
            self._keys, self._sums = [keys], [sums]
        return self._keys[0], self._sums[0]


def _summed(keys: UnsignedArray, rows: IntArray) -> tuple[UnsignedArray, IntArray]:
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=np.uint64(0)) > 0)
    if len(keys) and (not len(begins) or begins[0]):
        begins = np.concatenate([[0], begins])  # the key 0
    if not len(keys):
        return keys, rows
    return keys[order][begins], np.add.reduceat(rows[order], begins, axis=0)
