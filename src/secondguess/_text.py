"""Text from files and arguments as it may be printed: control characters are shown, not obeyed."""

from __future__ import annotations

import unicodedata


def shown(text: object, *, keep: str = "\n") -> str:
    r"""The text with every character that a terminal would obey, or cannot print, spelled out.

    >>> print(shown("title \x1b]0;owned\x07, half a letter \ud800"))
    title \x1b]0;owned\x07, half a letter \ud800

    Spelled out are control characters (escape sequences begin with one), marks that reorder or hide
    what stands beside them, line separators, and halves of letters, which no file can hold.

    Args:
        text: anything; its `str` is taken.
        keep: characters that pass all the same.
    """
    letters = str(text)
    if letters.isprintable():
        return letters
    return "".join(
        letter if letter in keep or not _is_obeyed(letter) else _spelled(letter)
        for letter in letters
    )


def _is_obeyed(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")
