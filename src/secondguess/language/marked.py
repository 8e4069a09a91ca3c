"""Answers that somebody marked right or wrong, and what they guarantee of further answers.

The promise is about the answers that were marked: those of this model, chosen as they were chosen.
A decoder that is told a smaller rate chooses other candidates, which nobody has marked. So answers
are chosen at the rate at which the marked ones were, and withheld where their gap is too large.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from secondguess._files import Line, read_lines
from secondguess.language.jsonl import SKIPPED, BadLineError, parse_line
from secondguess.language.windows import AnswerSettings
from secondguess.theory.calibration.thresholds import (
    FEWEST_ROWS,
    GuaranteedThreshold,
    guaranteed_threshold,
)

_EXPECTED = "expected what 'secondguess answer' wrote, with \"right\": true or false added"


@dataclass(frozen=True, slots=True)
class MarkedAnswers:
    """How to answer so that few answers are wrong, whatever the model is.

    >>> threshold = GuaranteedThreshold(-0.2, 0.05, 0.05, 400, num_answered=100, num_wrong=1)
    >>> MarkedAnswers(threshold, chosen_at=0.99).max_gap
    0.2

    Attributes:
        threshold: what is promised; the score is minus the gap.
        chosen_at: the rate at which answers are chosen, before some are withheld.
    """

    threshold: GuaranteedThreshold
    chosen_at: float

    @property
    def max_gap(self) -> float:
        """The largest gap of an answer that is given."""
        return -self.threshold.value


def read_marked(
    file: Path, settings: AnswerSettings, *, max_error_rate: float, failure_rate: float
) -> MarkedAnswers:
    """What marked answers guarantee of answers that are decided in the same way.

    Args:
        file: what `secondguess answer` wrote, with `right` added to each line; files of several
            sets of prompts may be joined.
        settings: how the further answers are decided; their own rate is not looked at.
        max_error_rate: the share of wrong answers among those given.
        failure_rate: how often, over sets of marked answers, the promise may not hold.
    """
    if not file.is_file():
        raise ValueError(f"{file} is not a file; {_EXPECTED}.")
    scores, wrong = [], []
    rate: float | None = None
    marked_at: dict[str, int] = {}
    for line in read_lines(file):
        if line.is_blank:
            continue
        row = parse_line(file, line)
        if SKIPPED in row:
            continue
        _check_new(file, line, row, marked_at)
        rate = _rate_of(file, line, row, settings, rate)
        if row.get("abstained") is True:  # not answered, at any threshold
            scores.append(-math.inf)
            wrong.append(1.0)
            continue
        right, gap = row.get("right"), row.get("gap")
        if not isinstance(right, bool) or not _is_number(gap) or not 0 <= gap < 1e300:
            raise BadLineError(
                file,
                line.number,
                f"no mark or no gap; {_EXPECTED} (answers without a mark: leave out at random, "
                f"not those that are hard to mark).",
            )
        scores.append(-float(gap))
        wrong.append(float(not right))
    if len(scores) < FEWEST_ROWS:
        raise ValueError(f"{file} has {len(scores)} answers; expected at least {FEWEST_ROWS}.")
    found = guaranteed_threshold(
        scores, wrong, max_error_rate=max_error_rate, failure_rate=failure_rate
    )
    if rate is None or not math.isfinite(found.value):
        raise ValueError(f"{file}: {found}; mark more answers, or allow more errors.")
    return MarkedAnswers(found, rate)


def _check_new(file: Path, line: Line, row: dict[str, Any], marked_at: dict[str, int]) -> None:
    """Refuse the answer to a line of the prompts that was marked already.

    One prompt may stand on several lines of the prompts: whoever draws questions from traffic draws
    some of them repeatedly, and each of these draws counts.
    """
    asked = json.dumps([row.get("line"), row.get("input")], sort_keys=True)
    before = marked_at.setdefault(asked, line.number)
    if before != line.number:
        raise BadLineError(
            file,
            line.number,
            f"it answers the same line of the prompts as line {before} does; expected each prompt "
            f"once, because a second mark of it is not an independent draw.",
        )


def _rate_of(
    file: Path, line: Line, row: dict[str, Any], settings: AnswerSettings, before: float | None
) -> float:
    """The rate at which a marked answer was chosen, if all else was as it is now."""
    then = row.get("settings")
    then = then if isinstance(then, dict) else {}
    rate = then.get("max_hallucination_rate")
    if not _is_number(rate):
        raise BadLineError(file, line.number, f"it does not say how it was decided; {_EXPECTED}.")
    now = settings.decided_by() | {"max_hallucination_rate": rate if before is None else before}
    differing = [
        f"{name} is {value!r} and was {then.get(name)!r}"
        for name, value in now.items()
        if value != then.get(name)
    ]
    if differing:
        raise BadLineError(
            file,
            line.number,
            f"the answer was decided otherwise ({'; '.join(differing)}); expected the same "
            f"options and the same model, because marks say nothing about other answers.",
        )
    return rate


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
