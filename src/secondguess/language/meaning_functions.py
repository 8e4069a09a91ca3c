"""What an answer means, as a function of its text: ready-made ones for `meanings`.

Any function from text to something hashable is one. It must be fixed before the draws that it is
used on, and must not look at the truth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from secondguess._arrays import FloatArray

Meaning = Callable[[str], Hashable]


def normalised(text: str) -> str:
    """The words of a text: no case, punctuation or extra white space.

    >>> normalised("  It is in FRANCE. ")
    'it is in france'
    """
    return " ".join(re.findall(r"\w+", text.casefold()))


def by_pattern(pattern: str) -> Meaning:
    """The first group of a regular expression, normalised; texts without it keep their words.

    >>> country = by_pattern(r"(?:It is in |The answer is )?([A-Z][a-z]+)")
    >>> country("It is in France."), country("France")
    ('france', 'france')
    """
    compiled = re.compile(pattern)
    if not compiled.groups:
        raise ValueError(f"pattern is {pattern!r}; expected one with a group in parentheses.")

    def meaning(text: str) -> str:
        found = compiled.search(text)
        return normalised(found[1] if found and found[1] is not None else text)

    return meaning


def by_json_field(*names: str) -> Meaning:
    """The values of some fields of a JSON object; other texts keep their words.

    >>> by_json_field("country")('{"country": "France", "why": "I was there"}')
    '["France"]'
    """

    def meaning(text: str) -> str:
        try:
            found = json.loads(text)
            return json.dumps([found[name] for name in names], sort_keys=True)
        except (ValueError, KeyError, TypeError):
            return normalised(text)

    return meaning


def by_embedding(
    embed: Callable[[str], FloatArray], references: Sequence[str], *, radius: float
) -> Meaning:
    """The nearest of some reference texts, if its embedding is near; else the text's own words.

    >>> lengths = by_embedding(lambda text: np.array([len(text)]), ["no", "perhaps"], radius=1)
    >>> lengths("yes"), lengths("possibly"), lengths("I do not know")
    ('no', 'perhaps', 'i do not know')

    Args:
        embed: a vector for a text.
        references: one text per meaning, chosen before anything is drawn.
        radius: the largest Euclidean distance that is near.
    """
    anchors = np.array([embed(text) for text in references], dtype=np.float64)

    def meaning(text: str) -> str:
        distances = np.linalg.norm(anchors - embed(text), axis=1)
        nearest = int(distances.argmin())
        return references[nearest] if distances[nearest] <= radius else normalised(text)

    return meaning


def meaning_from(text: str) -> Meaning:
    """A meaning by its short name, as on the command line.

    >>> meaning_from("words")("In FRANCE.")
    'in france'
    >>> meaning_from("field:country")('{"country": "France"}')
    '["France"]'
    >>> meaning_from("answer is (.+)")("the answer is 4")
    '4'

    Args:
        text: `words`, `field:NAME` (a field of a JSON object) or a regular expression with a group.
    """
    if text == "words":
        return normalised
    if text.startswith("field:"):
        return by_json_field(text.removeprefix("field:"))
    try:
        return by_pattern(text)
    except (re.error, ValueError) as error:
        raise ValueError(
            f"meaning is {text!r} ({error}); expected words, field:NAME or a regular expression "
            f"with a group in parentheses."
        ) from None
