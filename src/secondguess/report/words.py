"""How strongly a word is coloured: one scale for figures and pages.

Red is unlikely; by the amount of cheating, red is a word that became likelier after peeking: what
the model did not know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from secondguess.report.sections import Answer

_WORST_NATS = 5.0
"""A word this unlikely, or this much likelier after peeking, is fully red."""


def redness(nats: float) -> float:
    """From 0 to 1: how unlikely a word is, or how much peeking helped.

    >>> redness(0.0), redness(1.25), redness(7.0)
    (0.0, 0.5, 1.0)
    """
    return math.sqrt(min(max(nats / _WORST_NATS, 0.0), 1.0))


def shade(nats: float) -> str:
    """The same as a colour on white, for figures.

    >>> shade(0.0), shade(5.0)
    ('#ffffff', '#ff5a46')
    """
    share = redness(nats)
    red, green, blue = (round(255 + share * (end - 255)) for end in (255, 90, 70))
    return f"#{red:02x}{green:02x}{blue:02x}"


@dataclass(frozen=True, slots=True)
class ColouredWord:
    """A word as a page shows it.

    Attributes:
        text: the word.
        reading: its log-probabilities, in words.
        redness: how red it is by each way to colour: `first`, and `after` and `cheat` where the
            answer was scored again after the model had seen it.
    """

    text: str
    reading: str
    redness: Mapping[str, float]


def coloured_words(answer: Answer) -> list[ColouredWord]:
    """The words of an answer with their colours.

    >>> answer = Answer(label="", words=("3",), log_probs=(-2.0,), log_probs_after=(-0.75,))
    >>> [word] = coloured_words(answer)
    >>> word.reading
    'log-probability −2.000 at first sight, −0.750 after seeing this answer (+1.250)'
    >>> word.redness["cheat"]
    0.5
    """
    if answer.log_probs_after is None:
        return [
            ColouredWord(text, f"log-probability {_nats(first)}", {"first": redness(-first)})
            for text, first in zip(answer.words, answer.log_probs, strict=True)
        ]
    return [
        ColouredWord(
            text,
            f"log-probability {_nats(first)} at first sight, {_nats(after)} after seeing this "
            f"answer ({_nats(after - first, sign='+')})",
            {"first": redness(-first), "after": redness(-after), "cheat": redness(after - first)},
        )
        for text, first, after in zip(
            answer.words, answer.log_probs, answer.log_probs_after, strict=True
        )
    ]


def _nats(value: float, sign: str = "-") -> str:
    # Adding zero turns a rounded -0.0 into 0.0.
    return f"{round(value, 3) + 0.0:{sign}.3f}".replace("-", "−")
