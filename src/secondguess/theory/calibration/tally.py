"""Counts of values on a grid, by part of the stream: whole numbers only, so that order is nothing.

A value is rounded to a multiple of a tiny unit and counted in a cell of its part; a cell keeps how
many values fell into it and their sum, in units. Whole numbers add up to the same whatever the
order and whoever adds them, so tallies made by several processes join without a trace, to the last
bit. Memory does not grow with the number of rows.

Values are one-dimensional, relative to an origin inside their range or at its end nearest to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secondguess._arrays import FloatArray, IntArray

UNIT_BITS = 32
"""The unit is between 2**-32 and 2**-31 of the range."""

_MAX_PENDING = 1 << 16
_CELL_BITS = 5
_OFFSET = 1 << _CELL_BITS
_SHIFT = 52 - _CELL_BITS
_FIRST = int(np.array(float(_OFFSET)).view(np.int64)) >> _SHIFT


@dataclass(frozen=True, slots=True)
class Grid:
    """Points that are dense near the origin: 32 cells to each doubling of the distance from it.

    >>> grid = Grid.over(0.0, 1.0)
    >>> grid.num_cells, grid.points[-2:]
    (865, array([0.99999999, 1.        ]))

    Attributes:
        unit: what values are rounded to a multiple of; a power of two.
        ends: the points, lowest first, in units.
        num_negative: how many cells lie below the origin.
    """

    unit: float
    ends: IntArray
    num_negative: int

    @classmethod
    def over(cls, low: float, high: float) -> Grid:
        """The grid for values in [low, high], which holds 0 or begins or ends there."""
        unit = float(2.0 ** (np.ceil(np.log2(high - low)) - UNIT_BITS))
        below, above = int(np.floor(low / unit)), int(np.ceil(high / unit))
        num_negative = _cell_of(-below) + 1 if below < 0 else 0
        num_positive = _cell_of(max(above, 0)) + 1  # zero belongs to the first of them
        steps = np.arange(max(num_negative, num_positive) + 1)
        distances = ((_OFFSET + steps % _OFFSET) << (steps // _OFFSET)) - _OFFSET
        negative = -distances[1 : num_negative + 1][::-1]
        ends = np.concatenate([negative, distances[: num_positive + 1]])
        # The bound depends on the ends of the range, so the outer points lie there exactly.
        return cls(unit, ends.clip(below, above), num_negative)

    @property
    def num_cells(self) -> int:
        """One less than there are points."""
        return len(self.ends) - 1

    @property
    def points(self) -> FloatArray:
        """All points, lowest first."""
        return self.ends.astype(np.float64) * self.unit

    def cells(self, values: FloatArray) -> tuple[IntArray, IntArray]:
        """The cell of each value, and the value in units.

        >>> grid = Grid.over(-1.0, 1.0)
        >>> cells, units = grid.cells(np.array([-0.3, 0.0, 0.3]))
        >>> (grid.ends[cells] <= units).all() and (units <= grid.ends[cells + 1]).all()
        np.True_
        """
        rounded = values * (1 / self.unit)
        np.rint(rounded, out=rounded)
        units = rounded.astype(np.int64)
        sign = units >> 63
        np.abs(rounded, out=rounded)
        rounded += _OFFSET
        # The bits of a float are its exponent and then its digits: 32 cells to a doubling.
        cells = rounded.view(np.int64) >> _SHIFT
        cells -= _FIRST
        # x ^ -1 is -1 - x: cells of negative values are counted from the origin downwards.
        cells ^= sign
        cells += self.num_negative
        return cells, units


def _cell_of(distance: int) -> int:
    return (int(np.array(float(distance + _OFFSET)).view(np.int64)) >> _SHIFT) - _FIRST


class Moments:
    """The number, the sum and the sum of squares of values, exactly.

    >>> moments = Moments(width=1.0)
    >>> moments.add(np.array([0.5, 0.25]))
    >>> moments.mean, moments.variance
    (0.375, 0.03125)

    Args:
        width: no value is farther from zero.
    """

    def __init__(self, width: float) -> None:
        # The largest value has 48 bits, and its halves 24: sums of 2**14 squares of those fit.
        self.unit = float(2.0 ** (np.ceil(np.log2(width)) - 48))
        self.count = self._total = self._squares = 0

    def add(self, values: FloatArray) -> None:
        """Add values, 2**14 at most."""
        units = np.rint(values * (1 / self.unit)).astype(np.int64)
        high, low = units >> 24, units & (2**24 - 1)
        squares = [int((x * y).sum()) for x, y in ((high, high), (high, low), (low, low))]
        self.count += len(units)
        self._total += int(units.sum())
        self._squares += (squares[0] << 48) + (squares[1] << 25) + squares[2]

    def merge(self, other: Moments) -> None:
        """Join what another process added."""
        self.count += other.count
        self._total += other._total
        self._squares += other._squares

    @property
    def mean(self) -> float:
        """Of the values, each rounded to a multiple of the unit."""
        return self._total / self.count * self.unit

    @property
    def variance(self) -> float:
        """The sample variance of two values or more."""
        spread = self.count * self._squares - self._total**2
        return spread / (self.count * (self.count - 1)) * self.unit**2


@dataclass(frozen=True, slots=True)
class Entries:
    """The cells of a tally that hold something.

    Attributes:
        index: part times the number of cells, plus cell; increasing.
        count: how many values each holds.
        total: their sum, in units.
    """

    index: IntArray
    count: IntArray
    total: IntArray

    def content(self) -> bytes:
        """What tells them from other entries, but not from those of the negated values."""
        return np.array([self.count.sum(), np.abs(self.total).sum()]).tobytes()


class Tally:
    """How many values, and what sum of them, fell into each cell of each part of a stream.

    >>> tally = Tally(Grid.over(0.0, 1.0), num_parts=2)
    >>> tally.add(np.array([0.5, 0.25, 0.5]), np.array([0, 1, 0]))
    >>> tally.entries().count
    array([2, 1])

    Args:
        grid: the cells.
        num_parts: how many parts the stream has.
    """

    def __init__(self, grid: Grid, num_parts: int) -> None:
        self.grid, self.num_parts = grid, num_parts
        self._cells: IntArray | None = None
        self._pending: list[tuple[IntArray, IntArray]] = []
        self._num_pending = 0

    def add(self, values: FloatArray, parts: IntArray) -> None:
        """Count values, each in its part."""
        cells, units = self.grid.cells(values)
        cells += parts * self.grid.num_cells
        if self._cells is not None:
            self._count(cells, units)
            return
        # A small set is kept as it is: sorting it is quicker than looking through all the cells.
        self._pending.append((cells, units))
        self._num_pending += len(cells)
        if self._num_pending > _MAX_PENDING:
            # Untouched pages of zeros cost no memory; count and total lie side by side.
            self._cells = np.zeros(2 * self.num_parts * self.grid.num_cells, dtype=np.int64)
            for pending in self._pending:
                self._count(*pending)
            self._pending = []

    def _count(self, cells: IntArray, units: IntArray) -> None:
        assert self._cells is not None
        at = cells * 2
        np.add.at(self._cells, at, 1)
        at += 1
        np.add.at(self._cells, at, units)

    def merged(self, other: Tally) -> Tally:
        """Both together."""
        both = Tally(self.grid, self.num_parts)
        both._cells = np.zeros(2 * self.num_parts * self.grid.num_cells, dtype=np.int64)
        for tally in (self, other):
            entries = tally.entries()
            both._cells[2 * entries.index] += entries.count
            both._cells[2 * entries.index + 1] += entries.total
        return both

    def entries(self) -> Entries:
        """What it holds."""
        if self._cells is not None:
            index = np.flatnonzero(self._cells[::2])
            return Entries(index, self._cells[2 * index], self._cells[2 * index + 1])
        if not self._num_pending:
            return Entries(*np.zeros((3, 0), dtype=np.int64))
        cells, units = (np.concatenate(arrays) for arrays in zip(*self._pending, strict=True))
        order = np.argsort(cells, kind="stable")
        cells = cells[order]
        begins = np.flatnonzero(np.diff(cells, prepend=-1))
        count = np.diff(begins, append=len(cells))
        return Entries(cells[begins], count, np.add.reduceat(units[order], begins))
