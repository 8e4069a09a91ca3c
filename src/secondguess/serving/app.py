"""The server itself: routes, and what stands around them.

`create_app` joins an engine with the routes; `cli/serve.py` runs it. Bodies are parsed by pydantic
straight from their bytes, which limits their depth, and nothing of a request reaches a log.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from secondguess.language.engines import Engine
from secondguess.language.formatting import FormatError
from secondguess.language.scoring import Tokens
from secondguess.serving import records
from secondguess.serving.answers import Defaults, decide_choices
from secondguess.serving.batching import Batcher, Job
from secondguess.serving.counters import Counters
from secondguess.serving.documents import described, page_and_policy
from secondguess.serving.errors import RefusedRequest, refused_fields
from secondguess.serving.formats import text_check
from secondguess.serving.limits import LimitBody, RequireKey
from secondguess.serving.schemas import ChatRequest, CompletionRequest, Message, ScoreRequest

BodyT = TypeVar("BodyT", bound=BaseModel)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What the operator decides.

    Attributes:
        model_name: the name of the model in requests and answers.
        defaults: how requests are answered that do not say how.
        chat: whether messages go through the tokenizer's chat template; otherwise the text of the
            one user message is the prompt. None: whether there is a template.
        max_batch: how many responses are computed side by side.
        max_waiting: how many requests may wait in line.
        max_body: bytes of a request.
        timeout: seconds after which a request is given up.
        api_key: what requests must carry; None for no key.
        cors_origins: pages of which sites may call this server.
    """

    model_name: str
    defaults: Defaults = field(default_factory=Defaults)
    chat: bool | None = None
    max_batch: int = 64
    max_waiting: int = 256
    max_body: int = 1_000_000
    timeout: float = 120.0
    api_key: str | None = None
    cors_origins: tuple[str, ...] = ()


def create_app(engine: Engine, config: ServerConfig) -> FastAPI:
    """The application, ready for any ASGI server."""
    server = _Server(engine, config)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        server.batcher.start()
        yield
        await server.batcher.stop()

    app = FastAPI(title="secondguess", lifespan=lifespan, docs_url=None, redoc_url=None)
    for path, handler, body in (
        ("/v1/chat/completions", server.chat, ChatRequest),
        ("/v1/completions", server.complete, CompletionRequest),
        ("/score", server.score, ScoreRequest),
    ):
        app.add_api_route(path, handler, methods=["POST"], **described(body))
    app.add_api_route("/v1/models", server.models, methods=["GET"])
    app.add_api_route("/v1/models/{name:path}", server.model, methods=["GET"])
    app.add_api_route("/health", server.health, methods=["GET"])
    app.add_api_route("/metrics", server.metrics, methods=["GET"], response_class=PlainTextResponse)
    app.add_api_route("/", server.page, methods=["GET"], response_class=HTMLResponse)
    app.add_exception_handler(RefusedRequest, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _bug)
    app.middleware("http")(server.count)
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
    return app


class _Server:
    """The handlers, and what they share."""

    def __init__(self, engine: Engine, config: ServerConfig) -> None:
        self.engine, self.config = engine, config
        self.counters = Counters()
        self.batcher = Batcher(
            engine,
            max_rows=config.max_batch,
            max_waiting=config.max_waiting,
            watcher=self.counters,
        )
        template = getattr(engine.formatter.tokenizer, "chat_template", None)
        self.uses_template = bool(template) if config.chat is None else config.chat
        self._created = int(time.time())
        self._page, self._policy = page_and_policy()

    async def chat(self, request: Request) -> Response:
        """Answer a chat, or abstain."""
        body = await _parsed(request, ChatRequest)
        self._check_model(body.model)
        prompt = self._chat_prompt(body.messages)
        fits = text_check(body.response_format)
        choices = await self._patiently(
            request,
            decide_choices(
                self.batcher,
                [prompt],
                body,
                self.config.defaults,
                max_tokens=body.max_new_tokens,
                fits=fits,
            ),
        )
        self._count_decisions(choices)
        described = [
            records.chat_choice(
                self.engine.formatter,
                index,
                choice,
                logprobs=bool(body.logprobs),
                all_=body.return_candidates,
            )
            for index, choice in enumerate(choices)
        ]
        whole = records.completion("chat.completion", self.config.model_name, [prompt], choices)
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            return _stream(records.chat_chunks(whole, described, usage=usage))
        return JSONResponse(whole | {"choices": described})

    async def complete(self, request: Request) -> Response:
        """Complete prompts, or abstain."""
        body = await _parsed(request, CompletionRequest)
        self._check_model(body.model)
        listed = isinstance(body.prompt, list) and not isinstance(body.prompt[0], int)
        prompts = [self._prompt(each) for each in (body.prompt if listed else [body.prompt])]
        choices = await self._patiently(
            request,
            decide_choices(
                self.batcher, prompts, body, self.config.defaults, max_tokens=body.max_tokens
            ),
        )
        self._count_decisions(choices)
        described = [
            records.text_choice(
                self.engine.formatter,
                index,
                choice,
                logprobs=body.logprobs is not None,
                all_=body.return_candidates,
            )
            for index, choice in enumerate(choices)
        ]
        whole = records.completion("text_completion", self.config.model_name, prompts, choices)
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            return _stream(records.text_chunks(whole, described, usage=usage))
        return JSONResponse(whole | {"choices": described})

    async def score(self, request: Request) -> Response:
        """Score given responses to one prompt."""
        body = await _parsed(request, ScoreRequest)
        if body.model is not None:
            self._check_model(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise RefusedRequest(400, "expected either 'prompt' or 'messages'.", param="prompt")
        prompt = (
            self._prompt(body.prompt) if body.prompt else self._chat_prompt(body.messages or [])
        )
        try:
            tokens = [self.engine.formatter.response_tokens(each) for each in body.responses]
        except FormatError as error:
            raise RefusedRequest(400, str(error), param="responses") from None
        job = Job(items=[(prompt, each) for each in tokens])
        scored = await self._patiently(request, self.batcher.run(job))
        found = [records.candidate_record(self.engine.formatter, each) for each in scored]
        rests_on = str(records.RestsOn.CALIBRATED_PAIRS)
        return JSONResponse({"model": self.config.model_name, "rests_on": rests_on, "data": found})

    async def models(self) -> dict[str, Any]:
        """The one model."""
        return {"object": "list", "data": [self._model()]}

    async def model(self, name: str) -> dict[str, Any]:
        """The one model, by its name."""
        self._check_model(name)
        return self._model()

    async def health(self) -> dict[str, str]:
        """Whether it is there."""
        return {"status": "ok"}

    async def metrics(self) -> PlainTextResponse:
        """Counters for Prometheus."""
        self.counters.waiting.set(self.batcher.waiting)
        return PlainTextResponse(self.counters.text(), media_type="text/plain; version=0.0.4")

    async def page(self) -> HTMLResponse:
        """The page to play with."""
        return HTMLResponse(self._page, headers={"Content-Security-Policy": self._policy})

    async def count(
        self, request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Count a request by the route that took it: paths of strangers are not kept."""
        start = time.perf_counter()
        response = await call_next(request)
        path = getattr(request.scope.get("route"), "path", "other")
        self.counters.requests.labels(path=path, status=str(response.status_code)).inc()
        self.counters.seconds.labels(path=path).observe(time.perf_counter() - start)
        return response

    async def _patiently(self, request: Request, work: Awaitable[ResultT]) -> ResultT:
        """Wait for the work, unless its client goes away or its time is over: then drop it."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                {task, gone}, timeout=self.config.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if task.done():
                return task.result()
            if gone.done():
                raise RefusedRequest(499, "the client has gone.")
            raise RefusedRequest(
                503,
                f"there was no answer within {self.config.timeout:g} seconds; try again later.",
                code="timeout",
                headers={"Retry-After": "5"},
            )
        finally:
            task.cancel()
            gone.cancel()

    def _prompt(self, prompt: Any) -> Tokens:
        try:
            return self.engine.formatter.prompt_tokens(prompt)
        except FormatError as error:
            raise RefusedRequest(400, str(error), param="prompt") from None

    def _chat_prompt(self, messages: list[Message]) -> Tokens:
        if self.uses_template:
            said = [{"role": each.role, "content": each.text} for each in messages]
            try:
                return self.engine.formatter.prompt_tokens(said)
            except FormatError as error:
                raise RefusedRequest(400, str(error), param="messages") from None
        if len(messages) != 1 or messages[0].role != "user":
            raise RefusedRequest(
                400,
                "this model answers prompts, not chats; expected one message of the role 'user'.",
                param="messages",
            )
        return self._prompt(messages[0].text)

    def _check_model(self, name: str) -> None:
        if name != self.config.model_name:
            raise RefusedRequest(
                404,
                f"there is no such model; the one here is {self.config.model_name!r}.",
                param="model",
                code="model_not_found",
            )

    def _model(self) -> dict[str, Any]:
        defaults = self.config.defaults
        return {
            "id": self.config.model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "secondguess",
            "secondguess": {
                "max_hallucination_rate": defaults.max_hallucination_rate,
                "strategy": defaults.strategy,
                "num_candidates": defaults.num_candidates,
                "max_tokens": self.engine.formatter.config.response_length - 1,
            },
        }

    def _count_decisions(self, choices: list[Any]) -> None:
        for choice in choices:
            outcome = "abstained" if choice.decision.abstained else "answered"
            self.counters.decisions.labels(outcome=outcome).inc()


async def _parsed(request: Request, kind: type[BodyT]) -> BodyT:
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise refused_fields(error) from None


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _stream(chunks: Iterator[dict[str, Any]]) -> StreamingResponse:
    def events() -> Iterator[str]:
        for chunk in chunks:
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(
        events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
    )


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedRequest)
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return RefusedRequest(
        error.status_code, f"{error.detail}.", headers=dict(error.headers or {})
    ).response()


async def _bug(request: Request, error: Exception) -> Response:
    return RefusedRequest(500, "the server failed; its log has the details.").response()
