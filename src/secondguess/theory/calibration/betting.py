"""Betting against a mean: the log-wealth that bounds the mean of a bounded variable.

The statistics behind `BoundedMean` in `means.py`, which most readers want instead. A gambler who
thinks that the mean of values in [bottom, top] is below a candidate m stakes a fraction of the
wealth on every value; if the mean is m or more the wealth does not grow on average, so it ever
reaches 1/failure_rate with probability at most failure_rate (Ville's inequality). The upper bound
is the least candidate at which the wealth has reached that level after some part of the stream.
Proofs: the page "Bounds for the mean of a bounded variable" in the documentation.

Values come in parts (`scatter.py`), counted on a grid (`tally.py`). The stake is constant within a
part and depends on earlier parts only; the wealth is looked at after every part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess.theory.calibration.scatter import order_of_parts
from secondguess.theory.calibration.tally import Tally

MAX_STAKE = 0.95
"""A single value costs no more than this share of the wealth."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a stream that hold values, in order, with every value split on the grid.

    A value at a share f of the way from one point to the next leaves 1 - f on the one and f on the
    other, so its mean is kept; the log-wealth is concave in the value, so by Jensen's inequality
    the split can only lower it.

    Attributes:
        count: how many values each part holds, `(num_parts,)`.
        total: their sum, exact but for its last rounding.
        first: where each part begins among the entries.
        weights: how many values each entry stands for, `(num_entries,)`.
        values: where they lie.
        bottom: no value is below.
        top: no value is above.
    """

    count: FloatArray
    total: FloatArray
    first: IntArray
    weights: FloatArray
    values: FloatArray
    bottom: float
    top: float

    @classmethod
    def of(cls, tally: Tally, seed: int = 0) -> Parts:
        """The parts of a tally that is not empty, in a random order."""
        grid, entries = tally.grid, tally.entries()
        place = order_of_parts(entries.content(), seed)[entries.index // grid.num_cells]
        order = np.argsort(place, kind="stable")
        part, cell = place[order], (entries.index % grid.num_cells)[order]
        count, total = entries.count[order], entries.total[order]
        begins = np.flatnonzero(np.diff(part, prepend=-1))
        # Empty parts are left out.
        row = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(part)))
        width = np.maximum(grid.ends[cell + 1] - grid.ends[cell], 1)
        upper = (total - count * grid.ends[cell]) / width
        # The upper point of a cell is the lower one of the next, if that holds something too.
        shared = np.append((np.diff(cell) == 1) & (np.diff(row) == 0), False)
        lower_at = np.arange(len(cell)) + np.cumsum(~shared) - ~shared
        weights = np.zeros(len(cell) + np.count_nonzero(~shared))
        columns, rows = np.zeros((2, len(weights)), dtype=np.int64)
        columns[lower_at], rows[lower_at] = cell, row
        columns[lower_at + 1], rows[lower_at + 1] = cell + 1, row
        weights[lower_at] = count - upper
        weights[lower_at + 1] += upper
        return cls(
            count=np.add.reduceat(count, begins).astype(np.float64),
            total=np.add.reduceat(total, begins) * grid.unit,
            first=np.flatnonzero(np.diff(rows, prepend=-1)),
            weights=weights,
            values=grid.points[columns],
            bottom=float(grid.points[0]),
            top=float(grid.points[-1]),
        )

    def mirrored(self) -> Parts:
        """The same for the negated values."""
        return Parts(
            self.count,
            -self.total,
            self.first,
            self.weights,
            -self.values,
            -self.top,
            -self.bottom,
        )

    def moment(self, power: int) -> FloatArray:
        """The sum over each part of a power of its split values."""
        return np.add.reduceat(self.weights * self.values**power, self.first)


def stakes(parts: Parts, log_level: float) -> FloatArray:
    """The fraction of the wealth at stake in each part, from earlier parts only.

    Any such rule gives a valid bound; this one aims at a tight one. With v the variance of the
    values and d the mean distance above the mean at which it arises (third over second central
    moment), both in units of top - mean, a bound that rests on n rows is tightest near the stake
    k = q - 2 d q² / 3 for small q = sqrt(2 log_level / (n v)), and k d nears 1 for large q. The
    rational function below has both limits.

    Args:
        parts: what was read.
        log_level: log(1 / failure_rate).
    """
    rows, total, squares, cubes = (
        _sum_before(sums) for sums in (parts.count, parts.total, parts.moment(2), parts.moment(3))
    )
    # One pretended row in the middle, so that nothing is staked on a handful of values. It counts
    # as if it had added 1/4 to both central moments.
    mean = total / np.maximum(rows, 1)
    reach = parts.top - ((parts.bottom + parts.top) / 2 + total) / (rows + 1)
    second = np.maximum(squares - total * mean, 0.0) / reach**2 + 0.25
    third = (cubes - 3 * squares * mean + 2 * total * mean**2) / reach**3 + 0.25
    variance, distance = second / (rows + 1), np.clip(third / second, 0.05, 1.0)
    scaled = distance * np.sqrt(2 * log_level / (parts.count.sum() * variance))
    gain = scaled + scaled**2 / 3
    return np.minimum(gain / (1 + gain) / distance, MAX_STAKE)


def _sum_before(sums: FloatArray) -> FloatArray:
    """The sum over all earlier parts; not cumsum - sums, whose rounding would let a part in."""
    return np.concatenate([[0.0], np.cumsum(sums[:-1])])


@dataclass(frozen=True, slots=True)
class Wealth:
    """The log-wealth of the gambler after every part, as a function of the candidate mean.

    For stake k and candidate m a value x multiplies the wealth by 1 + k (m - x) / (top - m), which
    is positive for every x up to `top`, grows with m, and averages at most 1 if the mean is m or
    more.

    Attributes:
        parts: what was read.
        stakes: the stake of each entry of the parts.
        staked: the sum over the values of all parts so far of their stakes.
        staked_total: the same of stake times value, from exact sums.
    """

    parts: Parts
    stakes: FloatArray
    staked: FloatArray
    staked_total: FloatArray

    @classmethod
    def of(cls, parts: Parts, fractions: FloatArray) -> Wealth:
        """The wealth for one stake per part."""
        sizes = np.diff(parts.first, append=len(parts.weights))
        return cls(
            parts=parts,
            stakes=np.repeat(fractions, sizes),
            staked=np.cumsum(fractions * parts.count),
            staked_total=np.cumsum(fractions * parts.total),
        )

    def logs(self, mean: float) -> FloatArray:
        """The log-wealth after each part at a candidate mean."""
        gains = self._gains(mean)
        curved = np.log1p(gains)
        curved -= gains
        curved *= self.parts.weights
        # The linear part comes from the exact sums: the grid enters at second order only.
        linear = (self.staked * mean - self.staked_total) / (self.parts.top - mean)
        return linear + np.cumsum(np.add.reduceat(curved, self.parts.first))

    def slope(self, mean: float, last: int) -> float:
        """The slope in the candidate of the log-wealth after part `last`."""
        parts, end = self.parts, [*self.parts.first, len(self.stakes)][last + 1]
        part = self.stakes[:end] * (parts.top - parts.values[:end])
        part /= 1 + self._gains(mean)[:end]
        part *= parts.weights[:end]
        return float(part.sum()) / (parts.top - mean) ** 2

    def _gains(self, mean: float) -> FloatArray:
        return self.stakes * ((mean - self.parts.values) / (self.parts.top - mean))

    def crossing(self, log_level: float) -> float:
        """The least candidate where some log-wealth reaches a level; `top` if none does.

        Every one of them grows with the candidate. So begin where the last one crosses; where
        another is above the level there, it crosses earlier: go on with the highest.
        """
        last, mean, least = len(self.parts.count) - 1, self.parts.bottom, np.inf
        while True:
            mean = self._crossing_after(last, log_level, mean)
            if mean >= least:  # no earlier but for rounding
                return least
            least = mean
            logs = self.logs(min(mean, self._last_candidate))
            if last == (best := int(np.argmax(logs))) or logs[best] <= log_level + 1e-9:
                return mean
            last = best

    @property
    def _last_candidate(self) -> float:
        """As near to the top as the search goes."""
        return self.parts.top - 1e-12 * (self.parts.top - self.parts.bottom)

    def _crossing_after(self, last: int, log_level: float, start: float) -> float:
        """The candidate where the log-wealth after part `last` reaches the level, or `top`.

        It is increasing and concave in 1 / (top - m). So Newton's method in that variable lands to
        the left of the root, and approaches it from there without a safeguard. Near the top, where
        gains are huge, rounding may put a step to the right of the root: the search ends there.
        """
        mean = min(start, self._last_candidate)
        num_steps = 0
        while True:
            missing = log_level - float(self.logs(mean)[last])
            if abs(missing) <= 1e-10 or (num_steps and missing < 0):
                return mean
            num_steps += 1
            reach = self.parts.top - mean
            growth = self.slope(mean, last) * reach
            if missing >= 1e12 * growth:  # no value is below the top, or hardly any
                return self.parts.top
            step = missing / growth
            mean = mean + reach * step / (1 + step) if step > -1 else self.parts.bottom
            mean = max(mean, self.parts.bottom)
            if mean >= self._last_candidate:
                return self.parts.top
            # A step leaves at most half the square of what was missing, here below rounding.
            if 0 < missing <= 1e-5:
                return mean


def betting_upper(parts: Parts, failure_rate: float) -> float:
    """The upper bound on the mean of the values in the parts."""
    log_level = float(-np.log(failure_rate))
    return Wealth.of(parts, stakes(parts, log_level)).crossing(log_level)
