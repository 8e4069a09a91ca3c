"""Families of facts: what is asked, and how answers are worded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from secondguess.experiments.facts.cities import cities
from secondguess.experiments.facts.german_articles import german_articles
from secondguess.experiments.facts.questions import (
    PLAIN_WORDINGS,
    THREE_WORDINGS,
    TWELVE_WORDINGS,
    Fact,
    Wordings,
)
from secondguess.experiments.facts.word_kinds import word_kinds


@dataclass(frozen=True, kw_only=True)
class Family:
    """Facts of one kind.

    >>> FAMILIES["word-kinds"].wordings(3).of("a plant")
    [' a plant', ' It is a plant.', ' The answer is a plant.']

    Attributes:
        facts: questions with their answers, from the data that the user names.
        templates: ways to word an answer, by how many there are.
    """

    facts: Callable[[Path | None], list[Fact]]
    templates: Mapping[int, tuple[str, ...]]

    def wordings(self, number: int) -> Wordings:
        """So many ways to word an answer."""
        if number not in self.templates:
            raise ValueError(
                f"num_wordings is {number}; this family of facts has {sorted(self.templates)}."
            )
        return Wordings(self.templates[number])


FAMILIES = {
    "cities": Family(facts=lambda _: cities(), templates={3: THREE_WORDINGS, 12: TWELVE_WORDINGS}),
    "german-articles": Family(facts=german_articles, templates={3: PLAIN_WORDINGS}),
    "word-kinds": Family(facts=word_kinds, templates={3: PLAIN_WORDINGS}),
}
"""By the name that the command line uses."""
