"""Which texts fit the `response_format` of a request.

Candidates that do not fit are not considered, so that a client that asks for JSON gets JSON or an
abstention. Patterns and references to other documents in a schema are refused: a pattern may take
forever, and nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from secondguess.serving.errors import RefusedRequest
from secondguess.serving.schemas import ResponseFormat

_REFUSED_KEYWORDS = ("pattern", "patternProperties", "$dynamicRef")


def text_check(response_format: ResponseFormat | None) -> Callable[[str], bool]:
    """A function that says whether a text fits.

    >>> fits = text_check(ResponseFormat(type="json_object"))
    >>> fits('{"city": "Rome"}'), fits("Rome")
    (True, False)
    """
    if response_format is None or response_format.type == "text":
        return lambda text: True
    schema: dict[str, Any] = {"type": "object"}
    if response_format.type == "json_schema":
        if response_format.json_schema is None:
            raise RefusedRequest(
                400, "json_schema is missing; expected a schema.", param="response_format"
            )
        schema = response_format.json_schema.schema_ or {}
    _check_keywords(schema)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise RefusedRequest(
            400, f"the schema is not valid: {error.message}.", param="response_format"
        ) from None
    validator = Draft202012Validator(schema)

    def fits(text: str) -> bool:
        try:
            return validator.is_valid(json.loads(text))
        except (ValueError, RecursionError):
            return False

    return fits


def _check_keywords(schema: object) -> None:
    """Refuse what could hang or fetch, at any depth (the depth of a body is limited)."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        if not isinstance(part, dict):
            continue
        for keyword in _REFUSED_KEYWORDS:
            if keyword in part:
                raise RefusedRequest(
                    400,
                    f"the schema has {keyword!r}, which is not supported here; leave it out.",
                    param="response_format",
                )
        reference = part.get("$ref", "#")
        if not (isinstance(reference, str) and reference.startswith("#")):
            raise RefusedRequest(
                400,
                "the schema refers to another document; expected references that begin with '#'.",
                param="response_format",
            )
        waiting.extend(part.values())
