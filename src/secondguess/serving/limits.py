"""What is checked of a request before anybody reads it: its key, its size, its patience.

These are plain ASGI middlewares, because a body must be counted while it arrives.
"""

from __future__ import annotations

import asyncio
import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from secondguess.serving.errors import RefusedRequest

OPEN_PATHS = frozenset({"/", "/health", "/metrics"})
"""What is answered without a key."""


class RequireKey:
    """Refuse requests that do not carry the key, compared in constant time."""

    def __init__(self, app: ASGIApp, *, key: str) -> None:
        self.app, self._key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse with status 401."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(key.strip(), self._key):
            await self.app(scope, receive, send)
            return
        refusal = RefusedRequest(
            401,
            "the API key is missing or wrong; send 'Authorization: Bearer KEY'.",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal.response()(scope, receive, send)


class LimitBody:
    """Refuse bodies that are too large, or that take too long to arrive.

    Args:
        app: what the request goes to.
        max_bytes: of a body.
        seconds: within which a body must be complete.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, seconds: float) -> None:
        self.app, self.max_bytes, self.seconds = app, max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, then pass it on whole, or refuse with status 413 or 408."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.seconds):
                body = await self._read(scope, receive)
        except RefusedRequest as refusal:
            await refusal.response()(scope, receive, send)
            return
        except TimeoutError:
            refusal = RefusedRequest(
                408,
                f"the body did not arrive within {self.seconds:g} seconds.",
                headers={"Connection": "close"},
            )
            await refusal.response()(scope, receive, send)
            return
        if body is None:  # the client has gone
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, replayed, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if stated.isdigit() and int(stated) > self.max_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.max_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> RefusedRequest:
        return RefusedRequest(
            413,
            f"the body has more than {self.max_bytes:,} bytes; send a shorter one.",
            headers={"Connection": "close"},
        )
