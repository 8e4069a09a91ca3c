"""What the server says when it refuses: one JSON shape, the one that OpenAI's clients read."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import ValidationError

MAX_MESSAGE = 500


class RefusedRequest(Exception):
    """A request that is not served, with the HTTP status and the words for its sender.

    >>> RefusedRequest(404, "there is no model 'gpt'", param="model").body()["error"]["param"]
    'model'

    Attributes:
        status: the HTTP status.
        message: what came, what was expected, what to do.
        param: the field of the request that it is about.
        code: a word that programs can compare.
        headers: of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        # Messages may quote the request, which is as long as its sender likes.
        self.message = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}..."
        self.param = param if param is None else param[:MAX_MESSAGE]
        self.status, self.code = status, code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """The JSON of the response."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": self.message,
                "type": {401: "authentication_error", 429: "rate_limit_error"}.get(
                    self.status, kind
                ),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """The response itself."""
        return JSONResponse(self.body(), self.status, self.headers)


def refused_fields(error: ValidationError) -> RefusedRequest:
    """What is wrong with the first bad field of a request."""
    first, *others = error.errors(include_url=False, include_input=False, include_context=False)
    param = ".".join(str(part) for part in first["loc"]) or None
    more = f" ({len(others)} more)" if others else ""
    if first["type"] == "extra_forbidden":
        return RefusedRequest(
            400,
            f"the field {param!r} is not known here; leave it out{more}.",
            param=param,
            code="unknown_parameter",
        )
    where = f"{param}: " if param else ""
    return RefusedRequest(400, f"{where}{first['msg']}{more}.", param=param, code=first["type"])
