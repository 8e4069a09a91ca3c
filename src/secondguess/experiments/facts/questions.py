"""Questions with one answer that can be worded in several ways: the rows of the experiment.

A respondent knows the answer and draws a wording, so a pair is two draws of a wording for the same
answer. How it is worded says nothing about what the model knows; the answer does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from secondguess.experiments.data import random_parts

THREE_WORDINGS = (" {}", " It is in {}.", " The answer is {}.")
"""A response begins with the space that stands behind the question."""

PLAIN_WORDINGS = (" {}", " It is {}.", " The answer is {}.")
"""For answers that are no places."""

TWELVE_WORDINGS = (
    *THREE_WORDINGS,
    " In {}.",
    " That is in {}.",
    " {}, I think.",
    " {}, of course.",
    " You will find it in {}.",
    " It belongs to {}.",
    " I would say {}.",
    " It must be {}.",
    " {} is the answer.",
)


class Fact(NamedTuple):
    """A question and its one answer."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Wordings:
    """Ways to word an answer, and the way back.

    >>> wordings = Wordings(THREE_WORDINGS)
    >>> wordings.meaning(" It is in France."), wordings.meaning(" France")
    ('France', 'France')

    Attributes:
        templates: texts with `{}` where the answer stands.
    """

    templates: tuple[str, ...]

    def meaning(self, response: str) -> str:
        """The answer in a response: what stands in the first template that fits it."""
        # Longer templates first: the bare answer fits everything.
        text = response.strip()
        for template in sorted(self.templates, key=len, reverse=True):
            before, after = template.strip().split("{}")
            if found := re.fullmatch(f"{re.escape(before)}(.+){re.escape(after)}", text):
                return found[1].strip()
        return text

    def of(self, answer: str) -> list[str]:
        """Every way to word an answer.

        >>> Wordings(THREE_WORDINGS).of("France")
        [' France', ' It is in France.', ' The answer is France.']
        """
        return [template.format(answer) for template in self.templates]

    def rows(self, facts: Sequence[Fact], rng: np.random.Generator) -> list[dict[str, Any]]:
        """One row per fact, with two independent wordings of its answer.

        >>> rows = Wordings(THREE_WORDINGS).rows([Fact("2 + 2?", "4")], np.random.default_rng(0))
        >>> rows
        [{'prompt': '2 + 2?', 'responses': [' The answer is 4.', ' It is in 4.']}]
        """
        drawn = rng.integers(len(self.templates), size=(len(facts), 2))
        return [
            {
                "prompt": fact.prompt,
                "responses": [self.templates[each].format(fact.answer) for each in pair],
            }
            for fact, pair in zip(facts, drawn, strict=True)
        ]


class Split(NamedTuple):
    """Facts for training, and others that no training pair is about."""

    training: list[Fact]
    recalibration: list[Fact]
    labelled: list[Fact]
    test: list[Fact]


def split(facts: Sequence[Fact], sizes: tuple[int, int, int, int], *, seed: int) -> Split:
    """Distinct facts at random: as many as `sizes` says for each part of a `Split`."""
    return Split(*random_parts(facts, sizes, seed=seed))
