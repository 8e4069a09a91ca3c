"""What the server notices about requests: how many, how fast, and those that meet a bug.

A plain ASGI middleware around all others, so that requests which were refused early count too. Of a
request, only the route that took it and the status of its response are kept: paths of strangers
reach neither the counters nor the log.
"""

from __future__ import annotations

import logging
import time
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from secondguess.serving.counters import Counters
from secondguess.serving.errors import RefusedRequest

log = logging.getLogger("secondguess.serving")


class WatchRequests:
    """Count requests, and answer those that meet a bug with status 500."""

    def __init__(self, app: ASGIApp, *, counters: Counters) -> None:
        self.app, self.counters = app, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, then count."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0
        self.counters.taken += 1

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self.counters.answered += 1

        try:
            await self.app(scope, receive, noted)
        except Exception as error:
            log.error("%s", described_bug(error))
            if status == 0:
                refusal = RefusedRequest(500, "the server failed; its log has the details.")
                await refusal.response()(scope, receive, noted)
        path = getattr(scope.get("route"), "path", "other")
        # A client that left got no response; 499 is what proxies write down for it.
        self.counters.requests.labels(path=path, status=str(status or 499)).inc()
        self.counters.seconds.labels(path=path).observe(time.perf_counter() - start)


def described_bug(error: BaseException) -> str:
    r"""Where an error came from, and its words with all that could fool a terminal escaped.

    >>> try:
    ...     raise RuntimeError("no such word: \x1b[2J\nall is well")
    ... except RuntimeError as error:
    ...     print(described_bug(error).splitlines()[-1])
    RuntimeError: 'no such word: \x1b[2J\nall is well'
    """
    where = "".join(traceback.format_tb(error.__traceback__))
    return f"a request met a bug:\n{where}{type(error).__name__}: {str(error)[:1000]!a}"
