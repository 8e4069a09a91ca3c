"""Which texts fit the `response_format` of a request.

Candidates that do not fit are not considered, so that a client that asks for JSON gets JSON or an
abstention. Patterns and references to other documents in a schema are refused: a pattern may take
forever, and nothing is fetched. References inside a schema may branch without end, so that only so
many are followed per text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry

from secondguess.serving.errors import RefusedRequest
from secondguess.serving.schemas import ResponseFormat

_REFUSED_KEYWORDS = (
    *("pattern", "patternProperties"),
    *("$id", "$anchor", "$dynamicRef", "$schema"),
)
_NAMED_SCHEMAS = ("properties", "$defs", "definitions", "dependentSchemas")
_DATA = ("enum", "const", "default", "examples")
_LOCAL_REFERENCE = re.compile(r"#(/(\$defs|definitions)/[^/]+)?")
MAX_REFERENCES = 1000
"""How many references are followed to check one text."""


def text_check(response_format: ResponseFormat | None) -> Callable[[str], bool] | None:
    """A function that says whether a text fits, or None if every text does.

    >>> fits = text_check(ResponseFormat(type="json_object"))
    >>> fits('{"city": "Rome"}'), fits("Rome")
    (True, False)
    """
    if response_format is None or response_format.type == "text":
        return None
    schema: dict[str, Any] = {"type": "object"}
    if response_format.type == "json_schema":
        if response_format.json_schema is None:
            raise RefusedRequest(
                400, "json_schema is missing; expected a schema.", param="response_format"
            )
        schema = dict(response_format.json_schema.schema_ or {})
        schema.pop("$schema", None)  # generators add it; every schema is read as draft 2020-12
    _check_keywords(schema)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise RefusedRequest(
            400, f"the schema is not valid: {error.message}.", param="response_format"
        ) from None
    except RecursionError:
        raise RefusedRequest(
            400, "the schema is too deep; send a flatter one.", param="response_format"
        ) from None

    def fits(text: str) -> bool:
        # A registry of its own has no way to fetch anything.
        validator = _budgeted()(schema, registry=Registry())
        try:
            return validator.is_valid(json.loads(text))
        except Exception:
            # Not JSON, too deep, a number beyond floats, a reference to nowhere or to too many:
            # whatever it stumbles over, the text is not known to fit.
            return False

    return fits


def _budgeted() -> Any:
    """A validator that follows only so many references."""
    follow = Draft202012Validator.VALIDATORS["$ref"]
    followed = 0

    def counted(
        validator: Any, reference: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        nonlocal followed
        followed += 1
        if followed > MAX_REFERENCES:
            raise RecursionError
        yield from follow(validator, reference, instance, schema) or ()

    return extend(Draft202012Validator, {"$ref": counted})


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
        if not (isinstance(reference, str) and _LOCAL_REFERENCE.fullmatch(reference)):
            raise RefusedRequest(
                400,
                "the schema has a $ref that is not supported here; expected '#' or '#/$defs/NAME'.",
                param="response_format",
            )
        for keyword, inner in part.items():
            if keyword in _NAMED_SCHEMAS and isinstance(inner, dict):
                waiting.extend(inner.values())  # its keys are names, not keywords
            elif keyword not in _DATA:
                waiting.append(inner)
