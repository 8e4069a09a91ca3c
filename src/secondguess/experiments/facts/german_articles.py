"""Facts about German nouns: which article a noun has, from Wiktionary (CC BY-SA 4.0).

The nouns come from the file `nouns.csv` of the package `german-nouns`, which the user has: the
package itself is neither imported nor needed (`pip download --no-deps german-nouns`, and unzip). A
noun that can have two genders is left out, so a fact has one answer.
"""

from __future__ import annotations

import csv
from pathlib import Path

from secondguess.experiments.data import find_file
from secondguess.experiments.facts.questions import Fact

FILE_NAME = "nouns.csv"
SOURCE = "the nouns of Wiktionary (`pip download --no-deps german-nouns`, unzip)"
ARTICLES = {"m": "der", "f": "die", "n": "das"}
LONGEST = 10
"""Letters. Most longer nouns are compounds, and have the gender of their last part."""
_GENDERS = ("genus", "genus 1", "genus 2", "genus 3", "genus 4")


def german_articles(data_dir: Path | None = None) -> list[Fact]:
    """Nouns of four to ten ASCII letters that have one gender and are no names, with their article.

    Args:
        data_dir: see `find_file`.
    """
    path = find_file(data_dir, FILE_NAME, source=SOURCE)
    meanings: dict[str, set[tuple[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            genders = {row[name] for name in _GENDERS if row[name]}
            meanings.setdefault(row["lemma"], set()).update((each, row["pos"]) for each in genders)
    chosen = {}
    for noun, found in meanings.items():
        if len(found) == 1 and _is_plain(noun):
            ((gender, part_of_speech),) = found
            if part_of_speech == "Substantiv" and gender in ARTICLES:
                chosen[noun] = ARTICLES[gender]
    return [
        Fact(f"What is the article of the German noun {noun}?", chosen[noun])
        for noun in sorted(chosen)
    ]


def _is_plain(noun: str) -> bool:
    """Whether it is a word as others are: not short, not long, no abbreviation."""
    letters = noun.isascii() and noun.isalpha() and noun[:1].isupper() and noun[1:].islower()
    return letters and 4 <= len(noun) <= LONGEST
