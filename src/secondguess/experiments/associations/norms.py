"""Free association norms: cues, and how many people named each word first.

The data are the University of South Florida norms (Nelson, McEvoy and Schreiber, 1998) as a file of
JSON lines, `{"cue": ..., "participants": ..., "answers": {word: people}}`, which the user has.
Answers of a single person are not in it; `participants` counts everybody. Such people count here as
having given one more response, `NOBODY_ELSE`: so the responses to a cue are complete, two of them
drawn without replacement are a pair, and shares are shares of everybody who was asked. Nothing here
runs a model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from secondguess._arrays import IntArray
from secondguess.experiments.data import find_data, random_parts

FILE_NAME = "usf-free-association.jsonl"
NOBODY_ELSE = "?"
"""The response that stands for an answer that nobody else gave; no recorded answer is it."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A word and what people answered to it.

    >>> Cue("doctor", 5, {"nurse": 3}).idiosyncratic
    2

    Attributes:
        word: the cue.
        participants: how many people were asked.
        answers: how many named each word; at least two each.
    """

    word: str
    participants: int
    answers: Mapping[str, int]

    def __post_init__(self) -> None:
        if self.idiosyncratic < 0 or NOBODY_ELSE in self.answers or self.participants < 2:
            raise ValueError(
                f"the cue {self.word!r} has {self.participants} participants and "
                f"{sum(self.answers.values())} recorded answers; expected at least two "
                f"participants, no more answers than these, and none of them {NOBODY_ELSE!r}."
            )

    @property
    def idiosyncratic(self) -> int:
        """How many people gave an answer that nobody else gave."""
        return self.participants - sum(self.answers.values())

    @property
    def prompt(self) -> str:
        """What the model is asked."""
        return f"Word association: {self.word} ->"

    def responses(self) -> tuple[list[str], IntArray]:
        """Every distinct response, as text that stands behind the prompt, and its people."""
        counts = {**self.answers, NOBODY_ELSE: self.idiosyncratic}
        given = {word: people for word, people in counts.items() if people}
        return [as_response(word) for word in given], np.array(list(given.values()))


def as_response(word: str) -> str:
    """A word as it stands behind a prompt."""
    return f" {word}"


def find_norms(given: Path | None = None) -> Path:
    """Where the norms are, see `find_data`."""
    return find_data(given, expected=f"the path of {FILE_NAME}, or of its folder.")


def read_cues(path: Path) -> list[Cue]:
    """The cues of a file, or of the file of this name in a folder.

    Raises:
        FileNotFoundError: if there is none, with where to get it.
    """
    file = path / FILE_NAME if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(
            f"{file} is missing; expected the University of South Florida free association norms "
            f"(w3.usf.edu/FreeAssociation) as JSON lines with cue, participants and answers."
        )
    cues = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            cues.append(Cue(row["cue"], row["participants"], row["answers"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}, line {number}: {error}") from None
    return cues


class Split(NamedTuple):
    """Cues to train on, and others that no training pair is about."""

    training: list[Cue]
    recalibration: list[Cue]
    test: list[Cue]


def split(cues: Sequence[Cue], sizes: tuple[int, int, int], *, seed: int) -> Split:
    """Distinct cues at random: as many as `sizes` says for each part of a `Split`."""
    return Split(*random_parts(cues, sizes, seed=seed))
