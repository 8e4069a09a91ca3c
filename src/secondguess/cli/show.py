"""`secondguess show`: where does a model cheat? Each token of a scored response, coloured.

Every entry that is shown is checked first: the file may have been made by another version, or by
somebody else. All text goes through `shown`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess._files import read_lines
from secondguess._text import shown
from secondguess.cli.errors import user_errors

if TYPE_CHECKING:
    from rich.text import Text

FULL_COLOUR_NATS = 2.0
"""An amount of cheating that is shown in full colour: seven times as likely after peeking."""

_EXPECTED = "expected what 'secondguess score' or 'answer' wrote."


def show(
    file: Annotated[Path, typer.Argument(help="What 'secondguess score' or 'answer' wrote.")],
    limit: Annotated[int, typer.Option(min=1, help="Responses to show.")] = 20,
) -> None:
    """Print scored responses with each token coloured by its amount of cheating.

    The confidence of a response is p(y|x) / p(y|y,x); 1 means that the model knew it. Red: peeking
    made the token more likely, so the model did not know it. Blue: less likely, which a calibrated
    model does not show on average.
    """
    with user_errors():
        from rich.console import Console

        if not file.is_file():
            raise ValueError(f"{file} is not a file; {_EXPECTED}")
        console = Console(highlight=False)
        for number, line in enumerate(_shown_lines(file)):
            if number == limit:
                console.print(f"... (--limit {limit})")
                break
            console.print(line)


def _shown_lines(file: Path) -> Iterator[Text]:
    # Read without secondguess.language, which would load torch for a look at a file.
    for line in read_lines(file):
        if line.is_blank:
            continue
        try:
            yield from _texts(line.parse())
        except ValueError as error:
            raise ValueError(f"{file}, line {line.number}: {error} {_EXPECTED}") from None


def _texts(row: object) -> Iterator[Text]:
    """What is shown of one line; a `ValueError` says which entry is not as it should be."""
    from rich.text import Text

    found = _object(row, "the line")
    if "skipped" in found:
        yield Text(f"skipped: {_text(found, 'skipped')}", style="dim")
        return
    prompt = _prompt(_object(found.get("input"), "input").get("prompt", ""))
    if found.get("abstained") is True:
        yield Text.assemble((prompt, "bold"), ("(abstains)", "dim"))
        return
    if "meaning" in found:
        said = f"  means {_text(found, 'meaning')}, {_bound(found) or 'no bound'}"
        yield Text.assemble((prompt, "bold"), _text(found, "answer"), (said, "dim"))
        return
    responses = found["responses"] if "responses" in found else [found.get("response")]
    for each in _list({"responses": responses}, "responses"):
        response = _object(each, "a response")
        yield Text.assemble(
            (prompt, "bold"), *_coloured(response), ("  " + _summary(found, response), "dim")
        )


def _prompt(prompt: Any) -> str:
    return f"{shown(prompt if isinstance(prompt, str) else json.dumps(prompt))} → "


def _coloured(response: dict[str, Any]) -> list[tuple[str, str]]:
    pieces = [shown(each) for each in _list(response, "tokens", str)]
    amounts = [_number(each, "cheating") for each in _list(response, "cheating")]
    if not pieces or len(pieces) != len(amounts):
        raise ValueError(f"{len(pieces)} tokens but {len(amounts)} entries of cheating;")
    # The last token is the end. Where tokens carry no spaces of their own, words need them.
    is_whole = "".join(pieces[:-1]).strip() == _text(response, "text").strip()
    coloured = [
        (piece + ("" if is_whole else " "), f"on {_colour(amount)}")
        for piece, amount in zip(pieces[:-1], amounts[:-1], strict=True)
    ]
    return [*coloured, ("⏎", f"on {_colour(amounts[-1])}")]


def _colour(amount: float) -> str:
    strength = min(1.0, abs(amount) / FULL_COLOUR_NATS)
    faded, red = round(255 - 155 * strength), amount >= 0
    channels = (255, faded, faded) if red else (faded, faded, 255)
    return f"rgb({','.join(map(str, channels))})"


def _summary(row: dict[str, Any], response: dict[str, Any]) -> str:
    confidence = response.get("epistemic_confidence")
    said = "above any number"
    if confidence is not None:
        said = f"{_number(confidence, 'epistemic_confidence'):.3f}"
    total = math.fsum(_number(each, "cheating") for each in response["cheating"])
    parts = [f"confidence {said}", f"cheating {total:+.2f} nats"]
    if row.get("bound") is not None:
        parts.append(_bound(row))
    elif row.get("outside_theorem"):
        parts.append("no bound: the confidence is above 1, outside the theorem")
    return ", ".join(parts)


def _bound(row: dict[str, Any]) -> str:
    if row.get("bound") is None:
        return ""
    return f"bound {_number(row['bound'], 'bound'):.3f} {_text(row, 'rests_on')}"


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"no scores: {what} is no object;")
    return value


def _list(entries: dict[str, Any], name: str, kind: type = object) -> list[Any]:
    value = entries.get(name)
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise ValueError(f"no scores: {name} is no list{' of text' if kind is str else ''};")
    return value


def _text(entries: dict[str, Any], name: str) -> str:
    value = entries.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text;")
    return shown(value)


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        raise ValueError(f"{name} is no number;")
    return float(value)
