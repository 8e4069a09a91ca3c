"""Rows to train on: in memory or in a file, surveyed once before anything is trained.

A survey encodes every row to learn what the format needs to know (the longest response, the longest
prompt), to find rows that cannot be used, and to name the data by a digest of its tokens.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from transformers import PreTrainedTokenizerBase

from secondguess._files import Line, read_lines
from secondguess.language.formatting import AnyRow, FormatError, PairFormat, PairFormatter
from secondguess.language.jsonl import BadLineError, parse_line

_ANY_ROOM = 1 << 20


class Rows(Protocol):
    """Rows by number: a list, or a file."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> AnyRow: ...


class Survey:
    """Looks at rows one by one and remembers what they need.

    >>> from secondguess.language.tokenizer import word_tokenizer
    >>> survey = Survey(word_tokenizer(["flip", "heads", "tails"]), context_length=16)
    >>> row = survey({"prompt": "flip", "responses": ["heads", "tails heads"]})
    >>> survey.formatter().config.response_length
    3

    Args:
        tokenizer: the model's tokenizer.
        context_length: how many positions the model has, if it has a limit.
        response_length: positions that a response owns; if None, as many as the longest needs.
        layout: as in `PairFormat`.
        separator: as in `PairFormat`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        context_length: int | None,
        response_length: int | None = None,
        **layout: Any,
    ) -> None:
        self.context_length = context_length
        self.response_length = response_length
        # Until the longest response is known, rows are encoded in a format with any room.
        widest = response_length or context_length or _ANY_ROOM
        self._encoder = PairFormatter(tokenizer, PairFormat(response_length=widest, **layout))
        self._longest_response = self._longest_prompt = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def __call__(self, row: AnyRow) -> AnyRow:
        """The tokens of a row; `FormatError` if it cannot be used."""
        encoded = self._encoder.encode(row)
        longest = max(map(len, encoded.responses))
        owned = self.response_length or longest
        if len(encoded.prompt) + 2 * owned > self._room:
            raise FormatError(
                f"the prompt has {len(encoded.prompt)} tokens, which leaves no room for two "
                f"responses of {owned} in the model's context of {self.context_length}."
            )
        self._longest_response = max(self._longest_response, longest)
        self._longest_prompt = max(self._longest_prompt, len(encoded.prompt))
        for tokens in (encoded.prompt, *encoded.responses):
            self._digest.update(np.array([len(tokens), *tokens], dtype=np.int64).tobytes())
        self._digest.update(b"row")
        return encoded

    @property
    def _room(self) -> float:
        if self.context_length is None:
            return math.inf
        return self.context_length - len(self._encoder.separator)

    @property
    def digest(self) -> str:
        """A name for all rows that were seen: their tokens, in order."""
        return self._digest.hexdigest()

    def formatter(self) -> PairFormatter:
        """The format that has room for every row that was seen."""
        owned = self.response_length or self._longest_response
        if self._longest_prompt + 2 * owned > self._room:
            raise ValueError(
                f"the longest prompt ({self._longest_prompt} tokens) and two of the longest "
                f"response ({owned}) do not fit the model's context of {self.context_length}; "
                f"lower response_length, and skip what is longer."
            )
        return PairFormatter(
            self._encoder.tokenizer,
            replace(self._encoder.config, response_length=owned),
            context_length=self.context_length,
        )


def surveyed(
    rows: Sequence[AnyRow] | Path | str, survey: Survey, *, skip_bad: bool
) -> tuple[Rows, int]:
    """The rows that can be used, and how many were skipped; rows in memory come back encoded."""
    if isinstance(rows, Path | str):
        file = RowFile(Path(rows), check=survey, skip_bad=skip_bad)
        return file, file.num_skipped
    usable = []
    for index, row in enumerate(rows):
        try:
            usable.append(survey(row))
        except FormatError as error:
            if not skip_bad:
                raise FormatError(f"rows[{index}]: {error}") from None
    if not usable:
        raise ValueError(f"there is no row to train on ({len(rows)} were skipped).")
    return usable, len(rows) - len(usable)


HELD_OUT_SEED = 0
"""Which rows are held out depends on how many there are, and on nothing else."""


def held_out_of(
    rows: Sequence[AnyRow] | Path | str,
    validation: Sequence[AnyRow] | Path | str | float | None,
    survey: Survey,
    *,
    skip_bad: bool,
) -> tuple[Rows, Rows, int]:
    """Rows to train on, rows to validate on, and how many were skipped.

    >>> from secondguess.language.tokenizer import word_tokenizer
    >>> survey = Survey(word_tokenizer(["flip", "heads", "tails"]), context_length=16)
    >>> rows = [{"prompt": "flip", "responses": ["heads", "tails"]}] * 10
    >>> training, held_out, _ = held_out_of(rows, 0.2, survey, skip_bad=False)
    >>> len(training), len(held_out)
    (8, 2)

    Args:
        rows: all rows, or those to train on.
        validation: other rows, or the share of `rows` to hold out; None for none.
        survey: looks at every row.
        skip_bad: leave bad rows out instead of raising.
    """
    usable, num_skipped = surveyed(rows, survey, skip_bad=skip_bad)
    if validation is None:
        return usable, [], num_skipped
    if not isinstance(validation, float | int):
        held_out, num_skipped_there = surveyed(validation, survey, skip_bad=skip_bad)
        return usable, held_out, num_skipped + num_skipped_there
    num_held_out = round(validation * len(usable))
    if not 0 < validation < 1 or not 0 < num_held_out < len(usable):
        raise ValueError(
            f"validation is {validation!r} of {len(usable)} rows; expected a share between 0 and 1 "
            f"that leaves rows on both sides."
        )
    order = np.random.default_rng(HELD_OUT_SEED).permutation(len(usable))
    held_out = np.sort(order[:num_held_out])
    return Subset(usable, np.sort(order[num_held_out:])), Subset(usable, held_out), num_skipped


class Subset:
    """Some of the rows, by their numbers."""

    def __init__(self, rows: Rows, indices: np.ndarray) -> None:
        self._rows, self._indices = rows, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int, /) -> AnyRow:
        return self._rows[int(self._indices[index])]


class RowFile:
    """The rows of a file of JSON lines, read when they are asked for: eight bytes of memory each.

    Args:
        path: the file.
        check: called with every row when the file is opened; it raises `FormatError` for a bad one.
        skip_bad: leave bad lines out instead of refusing the file.

    Attributes:
        num_skipped: how many lines were left out.
    """

    def __init__(
        self, path: Path, *, check: Callable[[Mapping[str, Any]], object], skip_bad: bool = False
    ) -> None:
        if not path.is_file():
            raise ValueError(f"{path} is not a file; expected one of JSON lines.")
        self.path = path
        self.num_skipped = 0
        self._offsets = array("q")
        for line in read_lines(path):
            if not line.is_blank and self._usable(line, check, skip_bad):
                self._offsets.append(line.offset)
        if not self._offsets:
            raise ValueError(f"{path} has no row to train on ({self.num_skipped} were skipped).")

    def _usable(
        self, line: Line, check: Callable[[Mapping[str, Any]], object], skip_bad: bool
    ) -> bool:
        try:
            check(parse_line(self.path, line))
        except FormatError as error:
            if not skip_bad:
                raise BadLineError(self.path, line.number, error) from None
        except BadLineError:
            if not skip_bad:
                raise
        else:
            return True
        self.num_skipped += 1
        return False

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int, /) -> Mapping[str, Any]:
        [line] = islice(read_lines(self.path, self._offsets[index]), 1)
        return parse_line(self.path, line)
