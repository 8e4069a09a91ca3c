"""Betting against a mean: the log-wealth that bounds the mean of a bounded variable.

The statistics behind `BoundedMean` in `mean_intervals.py`, which most readers want instead. A
gambler who thinks that the mean of values in [low, top] is below a candidate m stakes a fraction
of the wealth on every value; if the mean is m or more the wealth does not grow on average, so it
reaches 1/failure_rate with probability at most failure_rate (Markov for one look, Ville for all of
them). The upper bound is the candidate where the wealth crosses that level. Proofs: the page
"Bounds for the mean of a bounded variable" in the documentation.

Rows are grouped in blocks by their position in the whole stream, sizes growing geometrically; the
stake is constant within a block and depends on earlier blocks only. So a block enters through its
sums and a histogram, memory does not grow with the stream, and partial blocks from different
processes are joined by adding them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from secondguess._arrays import FloatArray

NUM_CELLS = 8192
"""Cells of the histogram, at most."""

MAX_STAKE = 0.95
"""A single value costs no more than this share of the wealth."""

_BLOCK_BITS = 2  # 2**2 blocks to a doubling of the stream
_PIECE = 1 << 16  # rows a pass: the scratch arrays stay in cache


def block_of(row: int) -> int:
    """The block that a row of the stream belongs to.

    Rows 0 to 7 are blocks of their own; then four equal blocks cover each doubling.

    >>> [block_of(row) for row in (0, 7, 8, 9, 10, 15, 16, 19, 20)]
    [0, 7, 8, 8, 9, 11, 12, 12, 13]
    """
    scale = max(row.bit_length() - 1 - _BLOCK_BITS, 0)
    return (scale << _BLOCK_BITS) + (row >> scale)


def block_start(block: int) -> int:
    """The first row of a block.

    >>> [block_start(block) for block in (0, 7, 8, 9, 12, 13)]
    [0, 7, 8, 10, 16, 20]
    """
    scale = max((block >> _BLOCK_BITS) - 1, 0)
    return (block - (scale << _BLOCK_BITS)) << scale


@dataclass(frozen=True, slots=True)
class Grid:
    """Evenly spaced points over [low, high] whose spacing is a power of two.

    With that spacing the split of a value between its two neighbours is exact in floating point.

    >>> grid = Grid.over(0.0, 1.0)
    >>> grid.num_points, grid.top
    (8193, 1.0)

    Attributes:
        step: the distance between points.
        first: the lowest point, in steps from zero.
        num_points: how many points there are.
    """

    step: float
    first: int
    num_points: int

    @classmethod
    def over(cls, low: float, high: float) -> Grid:
        """The finest such grid with at most `NUM_CELLS` cells, give or take one at the ends."""
        step = 2.0 ** np.ceil(np.log2((high - low) / NUM_CELLS))
        first, last = int(np.floor(low / step)), int(np.ceil(high / step))
        return cls(float(step), first, last - first + 1)

    @property
    def points(self) -> FloatArray:
        """All points, lowest first."""
        return self.step * np.arange(self.first, self.first + self.num_points, dtype=np.float64)

    @property
    def top(self) -> float:
        """The highest point; no less than the high end of the range."""
        return (self.first + self.num_points - 1) * self.step

    def split(self, values: FloatArray) -> FloatArray:
        """The weight that falls on each point when every value is split between its neighbours.

        A value at distance f (in steps) above a point leaves 1 - f there and f on the next one, so
        its mean is kept; the log-wealth is concave in the value, so by Jensen's inequality the
        split can only lower it.

        >>> grid = Grid(step=1.0, first=-1, num_points=4)
        >>> grid.points, grid.split(np.array([-1.0, 0.25, 2.0]))
        (array([-1.,  0.,  1.,  2.]), array([1.  , 0.75, 0.25, 1.  ]))
        """
        share = values * (1 / self.step)
        floor = np.floor(share)
        share -= floor
        floor -= self.first
        cell = floor.astype(np.intp)
        weights = np.bincount(cell, minlength=self.num_points).astype(np.float64)
        shares = np.bincount(cell, weights=share, minlength=self.num_points)
        weights -= shares
        weights[1:] += shares[:-1]
        return weights


@dataclass(slots=True)
class Block:
    """What a block of rows leaves behind: its size, its sums and its histogram.

    Attributes:
        count: how many rows were added.
        total: the sum of their values.
        squares: the sum of their squares.
        cubes: the sum of their cubes.
        weights: the weight on each grid point; empty for methods that need no histogram.
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    cubes: float = 0.0
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))

    def read(self, values: FloatArray, grid: Grid | None) -> None:
        """Add rows, a piece at a time."""
        for start in range(0, len(values), _PIECE):
            piece = values[start : start + _PIECE]
            powers = piece * piece
            squares = float(powers.sum())
            powers *= piece
            weights = np.zeros(0) if grid is None else grid.split(piece)
            self.add(Block(len(piece), float(piece.sum()), squares, float(powers.sum()), weights))

    def add(self, other: Block) -> None:
        """Join the rows of another block to this one."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        self.cubes += other.cubes
        self.weights = self.weights + other.weights if self.weights.size else other.weights

    def mirrored(self) -> Block:
        """The block of the negated values."""
        return Block(self.count, -self.total, self.squares, -self.cubes, self.weights[::-1])


def stakes(
    blocks: Sequence[Block], *, bottom: float, top: float, log_level: float, anytime: bool = False
) -> FloatArray:
    """The fraction of the wealth at stake in each block, from the sums of earlier blocks only.

    Any such rule gives a valid bound; this one aims at a tight one. With v the variance of the
    values and d the mean distance above the mean at which it arises (third over second central
    moment), both in units of top - mean, a bound that rests on n rows is tightest near the stake
    k = q - 2 d q² / 3 for small q = sqrt(2 log_level / (n v)), and k d nears 1 for large q. The
    rational function below has both limits. The moments start from one pretended row, at the top
    with weight 1/4; n is the whole stream for one look, or t log(1 + t) for any time.

    Args:
        blocks: in the order of the stream, without gaps.
        bottom: no value is below.
        top: no value is above.
        log_level: log(1 / failure_rate).
        anytime: whether the bound will be looked at repeatedly.
    """
    sums = np.array([(b.count, b.total, b.squares, b.cubes) for b in blocks], dtype=np.float64)
    # Not cumsum - sums: its rounding would let a block have a say in its own stake.
    rows, total, squares, cubes = np.cumsum(np.vstack([np.zeros(4), sums[:-1]]), axis=0).T
    mean = total / np.maximum(rows, 1)
    reach = top - ((bottom + top) / 2 + total) / (rows + 1)
    second = np.maximum(squares - total * mean, 0.0) / reach**2 + 0.25
    third = (cubes - 3 * squares * mean + 2 * total * mean**2) / reach**3 + 0.25
    distance = np.clip(third / second, 0.05, 1.0)
    horizon = (rows + 1) * np.log(rows + 2) if anytime else sums[:, 0].sum()
    scaled = distance * np.sqrt(2 * log_level * (rows + 1) / (horizon * second))
    gain = scaled + scaled**2 / 3
    return np.minimum(gain / (1 + gain) / distance, MAX_STAKE)


@dataclass(frozen=True, slots=True)
class Wealth:
    """The log-wealth of the gambler as a function of the candidate mean.

    For stake k and candidate m a value x multiplies the wealth by 1 + k (m - x) / (top - m), which
    is positive for every x up to `top`, grows with m, and averages at most 1 if the mean is m or
    more.

    Attributes:
        weights: how many values each entry stands for.
        points: where they lie.
        stakes: the stake of the block that each entry belongs to.
        staked: the sum over all values of their stakes.
        staked_total: the sum over all values of stake times value, from exact sums.
        top: no value is above.
    """

    weights: FloatArray
    points: FloatArray
    stakes: FloatArray
    staked: float
    staked_total: float
    top: float

    @classmethod
    def of(cls, blocks: Sequence[Block], fractions: FloatArray, points: FloatArray) -> Wealth:
        """The wealth after all blocks."""
        kept = [np.flatnonzero(block.weights) for block in blocks]
        return cls(
            weights=np.concatenate([b.weights[k] for b, k in zip(blocks, kept, strict=True)]),
            points=points[np.concatenate(kept)],
            stakes=np.repeat(fractions, [len(k) for k in kept]),
            staked=float(sum(f * b.count for f, b in zip(fractions, blocks, strict=True))),
            staked_total=float(sum(f * b.total for f, b in zip(fractions, blocks, strict=True))),
            top=float(points[-1]),
        )

    def log(self, mean: float) -> tuple[float, float]:
        """The log-wealth at a candidate mean, and its slope there."""
        reach = self.top - mean
        gains = self.stakes * ((mean - self.points) / reach)
        # The linear part comes from the exact sums: the histogram enters at second order only.
        linear = (self.staked * mean - self.staked_total) / reach
        # Sums, not dot products: BLAS would start threads for them and add in no fixed order.
        curved = (self.weights * (np.log1p(gains) - gains)).sum()
        slope = (self.weights * self.stakes * (self.top - self.points) / (1 + gains)).sum()
        return linear + float(curved), float(slope) / reach**2

    def crossing(self, log_level: float, *, start: float) -> float:
        """The candidate where the log-wealth reaches a level; `top` if it never does.

        The log-wealth is increasing and concave in 1 / (top - m), so Newton's method in that
        variable approaches the root from below without a safeguard.

        Args:
            log_level: the level, above zero.
            start: a candidate no larger than every value.
        """
        mean = start
        while (reach := self.top - mean) > 1e-12 * (self.top - start):
            value, slope = self.log(mean)
            missing = log_level - value
            if missing >= 1e12 * slope * reach:
                break
            step = missing / (slope * reach)
            mean += reach * step / (1 + step)
            # A step leaves at most half the square of what was missing, here below rounding.
            if missing <= 1e-9:
                return mean
        return self.top


def betting_upper(
    blocks: Sequence[Block], grid: Grid, failure_rate: float, *, anytime: bool = False
) -> float:
    """The upper bound on the mean of the values in the blocks."""
    return _upper(blocks, grid.points, failure_rate, anytime)


def betting_lower(
    blocks: Sequence[Block], grid: Grid, failure_rate: float, *, anytime: bool = False
) -> float:
    """The lower bound: the negated upper bound of the negated values."""
    mirrored = [block.mirrored() for block in blocks]
    return -_upper(mirrored, -grid.points[::-1], failure_rate, anytime)


def _upper(
    blocks: Sequence[Block], points: FloatArray, failure_rate: float, anytime: bool
) -> float:
    log_level = float(-np.log(failure_rate))
    bottom, top = float(points[0]), float(points[-1])
    fractions = stakes(blocks, bottom=bottom, top=top, log_level=log_level, anytime=anytime)
    return Wealth.of(blocks, fractions, points).crossing(log_level, start=bottom)
