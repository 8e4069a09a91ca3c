"""What the server says of itself: the page at `/`, and request schemas for its OpenAPI document."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from typing import Any

from pydantic import BaseModel


def described(body: type[BaseModel], model_name: str) -> dict[str, Any]:
    """The request's schema and the errors, for the OpenAPI document."""
    schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
    schema["properties"]["model"] = {"title": "Model", "enum": [model_name]}
    named = schema.pop("$defs", {})
    text = json.dumps(schema)
    # Every definition is put in place: a path item cannot add components.
    for _ in range(len(named) + 1):
        for name, definition in named.items():
            text = text.replace(
                json.dumps({"$ref": f"#/components/schemas/{name}"}), json.dumps(definition)
            )
    content = {"application/json": {"schema": json.loads(text)}}
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
        "responses": {
            200: {"description": "the answer", "content": {"text/event-stream": {}}},
            **refusals(400, 401, 404, 408, 413, 415, 429, 503),
        },
    }


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Statuses that a route may answer with, for the OpenAPI document.

    >>> list(refusals(401, 404))
    [401, 404]
    """
    return {status: {"description": "refused, in OpenAI's shape"} for status in statuses}


def page_and_policy() -> tuple[str, str]:
    """The page, and the policy that lets nothing but its own script and style run."""
    text = resources.files("secondguess.serving").joinpath("page.html").read_text("utf-8")
    hashes = {}
    for tag in ("script", "style"):
        inner = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        hashes[tag] = " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
            for each in inner
        )
    policy = (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy
