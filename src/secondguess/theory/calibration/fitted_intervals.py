"""The record of certified intervals for one event, or for the classes of a classifier.

What `fit_intervals` returns and classifiers keep. Predictions have shape `(n,)`, or
`(n, num_classes)`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, as_floats, check_at_least, check_rate, same_shape
from secondguess._files import read_record
from secondguess.theory.calibration.count_stream import CountIntervals
from secondguess.theory.calibration.inflation import VarianceInflation
from secondguess.theory.records import Interval, RestsOn


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rest:
    """What `FittedIntervals` says besides its parts."""

    miss_rate: float
    failure_rate: float
    num_choosing: int
    jointly: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedIntervals:
    """What was certified, for one event or for every class.

    >>> from secondguess.theory.calibration.nested import NestedFamily
    >>> part = CountIntervals(
    ...     family=NestedFamily("symmetric", 0.01), detection_rate=0.5, radius=2.0, miss_rate=0.1,
    ...     failure_rate=0.05, num_rows=1500, num_misses=60, num_allowed=60, jointly=False,
    ... )
    >>> fitted = FittedIntervals(
    ...     parts=(part,), miss_rate=0.1, failure_rate=0.05, num_choosing=300
    ... )
    >>> fitted.methods, fitted.interval([0.5], [0.0025]).upper
    (('counts',), array([0.7]))

    Attributes:
        parts: one certificate for one event or for all classes jointly by counts; else one per
            class.
        miss_rate: the share of inputs that may be missed: for each class by itself, or, `jointly`,
            in any class.
        failure_rate: how often, over calibration sets, the guarantee may not hold.
        num_choosing: rows that chose the way to certify, and were not used again.
        jointly: see `miss_rate`.
    """

    parts: tuple[CountIntervals | VarianceInflation, ...]
    miss_rate: float
    failure_rate: float
    num_choosing: int
    jointly: bool = False

    def __post_init__(self) -> None:
        check_rate("miss_rate", self.miss_rate)
        check_rate("failure_rate", self.failure_rate)
        check_at_least("num_choosing", self.num_choosing, 0)

    @property
    def methods(self) -> tuple[str, ...]:
        """`pairs` or `counts`, for each part."""
        return tuple("counts" if isinstance(p, CountIntervals) else "pairs" for p in self.parts)

    def to_plain(self) -> dict[str, Any]:
        """Plain values, as JSON can hold them; see `from_plain`."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> FittedIntervals:
        """What `to_plain` wrote."""
        listed = values.get("parts")
        if not isinstance(listed, list | tuple) or not listed:
            raise ValueError(f"parts is {listed!r}; expected a list of certificates.")
        parts = tuple(
            read_record(CountIntervals, part, f"parts[{index}]")
            if isinstance(part, dict) and "family" in part
            else read_record(VarianceInflation, part, f"parts[{index}]")
            for index, part in enumerate(listed)
        )
        rest = read_record(_Rest, {name: values[name] for name in values if name != "parts"})
        return cls(parts=parts, **asdict(rest))

    def interval(
        self, probs: ArrayLike, variance: ArrayLike, miss_rate: float | None = None
    ) -> Interval:
        """Intervals within [0, 1], of the shape of the predictions.

        Args:
            probs: predicted probabilities.
            variance: the stated variances, of the same shape.
            miss_rate: by default the one that was certified. Counts certify no other; pairs do.
        """
        p, v = as_floats("probs", probs), as_floats("variance", variance)
        same_shape(probs=p, variance=v)
        rate = self.miss_rate if miss_rate is None else check_rate("miss_rate", miss_rate)
        if rate != self.miss_rate and "counts" in self.methods:
            raise ValueError(
                f"miss_rate is {rate}, but counts of responses were certified for "
                f"{self.miss_rate} only; calibrate for it, or by pairs, which certify every one."
            )
        if len(self.parts) == 1:
            return self._part(self.parts[0], p, v, rate)
        if p.ndim != 2 or p.shape[1] != len(self.parts):
            raise ValueError(f"probs has shape {p.shape}; expected (n, {len(self.parts)}).")
        columns = [self._part(part, p[:, i], v[:, i], rate) for i, part in enumerate(self.parts)]
        return Interval(
            np.stack([column.lower for column in columns], axis=1),
            np.stack([column.upper for column in columns], axis=1),
            RestsOn.CALIBRATION_SET,
        )

    def _part(
        self,
        part: CountIntervals | VarianceInflation,
        probs: FloatArray,
        variance: FloatArray,
        miss_rate: float,
    ) -> Interval:
        if isinstance(part, CountIntervals):
            return part.interval(probs, variance)
        share = len(self.parts) if self.jointly else 1
        return part.interval(probs, variance, miss_rate / share)
