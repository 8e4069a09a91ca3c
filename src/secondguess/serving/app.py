"""The application: routes, and what stands around them.

`create_app` joins an engine with the handlers; `cli/serve.py` runs it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from secondguess.language.engines import Engine
from secondguess.serving.config import ServerConfig
from secondguess.serving.documents import described, refusals
from secondguess.serving.errors import RefusedRequest
from secondguess.serving.handlers import Handlers
from secondguess.serving.limits import LimitBody, RequireKey
from secondguess.serving.schemas import ChatRequest, CompletionRequest, ScoreRequest
from secondguess.serving.watching import WatchRequests


def create_app(engine: Engine, config: ServerConfig) -> FastAPI:
    """The application, ready for any ASGI server.

    >>> from secondguess.language.engines import LocalEngine
    >>> from secondguess.language.examples import tiny_pair_model
    >>> app = create_app(LocalEngine(tiny_pair_model()), ServerConfig(model_name="coins"))
    >>> "/v1/chat/completions" in app.openapi()["paths"]
    True
    """
    handlers = Handlers(engine, config)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        handlers.batcher.start()
        yield
        await handlers.batcher.stop()

    app = FastAPI(title="secondguess", lifespan=lifespan, docs_url=None, redoc_url=None)
    for path, handler, body in (
        ("/v1/chat/completions", handlers.chat, ChatRequest),
        ("/v1/completions", handlers.complete, CompletionRequest),
        ("/score", handlers.score, ScoreRequest),
    ):
        app.add_api_route(path, handler, methods=["POST"], **described(body, config.model_name))
    for path, handler, kind in (
        ("/metrics", handlers.metrics, PlainTextResponse),
        ("/", handlers.page, HTMLResponse),
    ):
        app.add_api_route(path, handler, methods=["GET"], response_class=kind)
    app.add_api_route("/health", handlers.health, methods=["GET"])
    for path, handler in (
        ("/v1/models", handlers.models),
        ("/v1/models/{name:path}", handlers.model),
    ):
        app.add_api_route(path, handler, methods=["GET"], responses=refusals(401, 404))
    app.add_exception_handler(RefusedRequest, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    # The last added is the outermost: a key is asked for before a body is read.
    app.add_middleware(LimitBody, max_bytes=config.max_body, seconds=min(config.timeout, 30))
    if config.api_key is not None:
        app.add_middleware(RequireKey, key=config.api_key)
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(WatchRequests, counters=handlers.counters)
    app.state.counters = handlers.counters
    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedRequest)
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return RefusedRequest(
        error.status_code, f"{error.detail}.", headers=dict(error.headers or {})
    ).response()
