"""The statements about a digit and their exact probabilities (appendix F.3.1).

The paper's grammar derives 441 sentences over the ten digits, each in one way only, so it is kept
as what it amounts to: a table of p(sentence | digit). Sampling, support and equivalence are
lookups in that table. Axes: a row per digit, a column per sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, IntArray, fail_at

NUM_DIGITS = 10
HAZY = "Reply hazy, try again"
HAZY_PROB = 0.01

_INTRO = {
    "It's": 0.138,
    "It is": 0.086,
    "That's": 0.218,
    "That is": 0.185,
    "Sure, it's": 0.096,
    "Sure, it is": 0.02,
    "Sure, that's": 0.17,
    "Sure, that is": 0.087,
}
_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# The paper prints 0.9 for the last of the four weights of VALUE; 0.12 makes them sum to one.
_SAY, _PARITY, _SPELLING, _LENGTH = 0.56, 0.19, 0.13, 0.12
_BARE, _THE_NUMBER = 0.616, 0.384
_AS_NAME, _AS_NUMERAL = 0.323, 0.677


def _values(digit: int) -> dict[str, tuple[str, float]]:
    """What VALUE(digit) derives: phrase -> (meaning, probability)."""
    name, numeral = _NAMES[digit], str(digit)
    parity = "odd" if digit % 2 else "even"
    letters = " ".join(name.upper())
    return {
        name: (f"value {digit}", _SAY * _BARE * _AS_NAME),
        numeral: (f"value {digit}", _SAY * _BARE * _AS_NUMERAL),
        f"the number {name}": (f"value {digit}", _SAY * _THE_NUMBER * _AS_NAME),
        f"the number {numeral}": (f"value {digit}", _SAY * _THE_NUMBER * _AS_NUMERAL),
        f"an {parity} number": (parity, _PARITY),
        f"spelled {letters}": (f"spelled {letters}", _SPELLING),
        f"spelled with {len(name)} letters": (f"{len(name)} letters", _LENGTH),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """Every sentence, its probability given each digit, and what it means.

    >>> pi_grammar = grammar()
    >>> len(pi_grammar.sentences)
    441
    >>> pi_grammar.prob("Sure, it's spelled with 3 letters", [1, 4]).round(6)
    array([0.011405, 0.      ])
    >>> pi_grammar.meaning("That is three") == pi_grammar.meaning("Sure, it's the number 3")
    True

    Attributes:
        sentences: the words of each sentence joined by spaces; the last one is true of every digit.
        probs: p(sentence | digit), `(10, 441)`, rows summing to one.
        meanings: `(441,)`, equal for sentences that differ only in how INTRO, SAY-DIGIT and DIGIT
            were expanded.
        index: the column of each sentence.
    """

    sentences: tuple[str, ...]
    probs: FloatArray
    meanings: IntArray
    index: dict[str, int]

    def sample(self, digits: ArrayLike, uniforms: FloatArray) -> IntArray:
        """One statement about each digit, as columns of the table.

        >>> columns = grammar().sample([7, 7, 2], np.random.default_rng(0).random(3))
        >>> for column in columns:
        ...     print(grammar().sentences[column])
        That is 7
        Sure, it's spelled with 5 letters
        It is an even number

        Args:
            digits: from 0 to 9.
            uniforms: a number from 0 up to 1 for each; random ones give independent statements.
        """
        rows = _as_digits(digits)
        # One searchsorted for all rows: row d of the cumulative table is shifted by d.
        cumulative = (self.probs.cumsum(axis=1) + np.arange(NUM_DIGITS)[:, None]).ravel()
        size = len(self.sentences)
        columns = np.searchsorted(cumulative, rows + uniforms, side="right")
        # Rounding may carry a draw past its row; the last sentence is true of every digit.
        return np.minimum(columns - rows * size, size - 1)

    def prob(self, sentence: str, digits: ArrayLike) -> FloatArray:
        """The probability of any sentence given each digit; 0 for what is no sentence at all."""
        rows = _as_digits(digits)
        column = self.index.get(sentence)
        return np.zeros(rows.shape) if column is None else self.probs[rows, column]

    def is_true(self, sentence: str, digits: ArrayLike) -> np.ndarray:
        """Whether the sentence can be said of each digit: the rest is hallucinated.

        >>> grammar().is_true("It's an odd number", [4, 5])
        array([False,  True])
        """
        return self.prob(sentence, digits) > 0

    def meaning(self, sentence: str) -> int | None:
        """What the sentence means, or None if no digit makes anyone say it."""
        column = self.index.get(sentence)
        return None if column is None else int(self.meanings[column])

    def entropies(self) -> tuple[float, float, float]:
        """Nats of a response given the digit, of one about an unknown digit, and of two of those.

        >>> [round(entropy, 3) for entropy in grammar().entropies()]
        [3.848, 5.681, 9.891]
        """
        pair = np.einsum("di,dj->ij", self.probs, self.probs) / NUM_DIGITS
        return (
            _entropy(self.probs) / NUM_DIGITS,
            _entropy(self.probs.mean(axis=0)),
            _entropy(pair),
        )


@cache
def grammar() -> Grammar:
    """The grammar of appendix F.3.1, with the weights of VALUE corrected to sum to one."""
    columns: dict[str, int] = {}
    meaning_ids: dict[str, int] = {}
    meanings: list[int] = []
    entries: list[tuple[int, int, float]] = []

    def column_of(sentence: str, meaning: str) -> int:
        if sentence not in columns:
            columns[sentence] = len(columns)
            meanings.append(meaning_ids.setdefault(meaning, len(meaning_ids)))
        return columns[sentence]

    for digit in range(NUM_DIGITS):
        for intro, intro_prob in _INTRO.items():
            for phrase, (meaning, prob) in _values(digit).items():
                column = column_of(f"{intro} {phrase}", meaning)
                entries.append((digit, column, (1 - HAZY_PROB) * intro_prob * prob))
    hazy = column_of(HAZY, HAZY)
    entries += [(digit, hazy, HAZY_PROB) for digit in range(NUM_DIGITS)]

    probs = np.zeros((NUM_DIGITS, len(columns)))
    for digit, column, prob in entries:
        probs[digit, column] = prob
    probs.flags.writeable = False
    return Grammar(
        sentences=tuple(columns),
        probs=probs,
        meanings=np.array(meanings, dtype=np.int64),
        index=columns,
    )


def _as_digits(digits: ArrayLike) -> IntArray:
    array = np.asarray(digits)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"digits have type {array.dtype}; expected whole numbers from 0 to 9.")
    fail_at("digits", (array < 0) | (array >= NUM_DIGITS), array, "a digit from 0 to 9")
    return array.astype(np.int64)


def _entropy(probs: FloatArray) -> float:
    positive = probs[probs > 0]
    return float(-(positive * np.log(positive)).sum())
