"""Dataclasses from the JSON that `asdict` made of them: every entry is checked by its type."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")

_EXPECTED = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def read_record(kind: type[Record], content: object, where: str = "it") -> Record:
    """A record from its JSON form; unknown, missing or ill-typed entries are refused by name.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: float
    >>> read_record(Point, {"x": "far"}, "point")
    Traceback (most recent call last):
        ...
    ValueError: point.x is 'far'; expected a number.

    Args:
        kind: a dataclass; what values an entry may have, it checks itself.
        content: what `json.loads` gave.
        where: how messages call it.
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"{where} is {shortened(content)}; expected an object.")
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    unknown = [str(name) for name in content if name not in known]
    missing = [
        name for name, field in known.items() if field.default is MISSING and name not in content
    ]
    if unknown or missing:
        said = [f"has the unknown entry {name!r}" for name in unknown]
        said += [f"lacks {name!r}" for name in missing]
        raise ValueError(f"{where} {' and '.join(said)}; it was written by another version.")
    return kind(
        **{name: _read(hints[name], value, f"{where}.{name}") for name, value in content.items()}
    )


def _read(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) in (types.UnionType, Union):
        [hint] = [each for each in get_args(hint) if each is not type(None)]
        return None if value is None else _read(hint, value, where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where} is {shortened(value)}; expected a list.")
        kind = get_args(hint)[0]
        return tuple(_read(kind, each, f"{where}[{index}]") for index, each in enumerate(value))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            allowed = ", ".join(map(str, get_args(hint)))
            raise ValueError(f"{where} is {shortened(value)}; expected one of {allowed}.")
        return value
    if is_dataclass(hint) and isinstance(hint, type):
        return read_record(hint, value, where)
    # In JSON a whole number may stand for any number, but a truth value for none.
    kinds = (int, float) if hint is float else (hint,)
    if type(value) not in kinds:
        raise ValueError(f"{where} is {shortened(value)}; expected {_EXPECTED[hint]}.")
    if hint is float:
        try:
            value = float(value)
        except OverflowError:
            raise ValueError(f"{where} has too many digits; expected a number.") from None
        if math.isnan(value):
            raise ValueError(f"{where} is not a number; expected one.")
    return value


def shortened(value: object) -> str:
    """A value as messages show it."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python prints
        text = f"a {type(value).__name__} of very many digits"
    return text if len(text) <= 60 else text[:57] + "..."
