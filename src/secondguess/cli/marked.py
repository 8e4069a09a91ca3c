"""Marked answers: the rate to answer at, so that few answers are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secondguess.theory.calibration.thresholds import GuaranteedThreshold

_EXPECTED = "expected what 'secondguess answer' wrote, with \"right\": true or false added"


def threshold_from(
    file: Path, *, max_error_rate: float, failure_rate: float
) -> tuple[GuaranteedThreshold, float]:
    """The threshold that marked answers guarantee, and the largest gap that it lets through.

    Args:
        file: answers with `right`; the higher minus their gap, the more they are trusted.
        max_error_rate: the share of wrong answers among those given.
        failure_rate: how often, over sets of marked answers, the promise may not hold.
    """
    import math

    from secondguess._files import read_lines
    from secondguess.language.jsonl import BadLineError, parse_line
    from secondguess.theory.calibration.thresholds import guaranteed_threshold

    if not file.is_file():
        raise ValueError(f"{file} is not a file; {_EXPECTED}.")
    scores, wrong = [], []
    for line in read_lines(file):
        if line.is_blank:
            continue
        row = parse_line(file, line)
        if row.get("abstained") is True:  # not answered, at any threshold
            scores.append(-math.inf)
            wrong.append(1.0)
            continue
        right, gap = row.get("right"), row.get("gap")
        if not isinstance(right, bool) or isinstance(gap, bool):
            gap = None
        if not isinstance(gap, int | float) or not 0 <= gap < 1e300:
            raise BadLineError(file, line.number, f"no mark or no gap; {_EXPECTED}.")
        scores.append(-float(gap))
        wrong.append(float(not right))
    found = guaranteed_threshold(
        scores, wrong, max_error_rate=max_error_rate, failure_rate=failure_rate
    )
    if not math.isfinite(found.value):
        raise ValueError(f"{file}: {found}; mark more answers, or allow more errors.")
    # The decoders take a rate strictly between 0 and 1.
    return found, min(max(-found.value, 1e-12), 1 - 1e-12)
