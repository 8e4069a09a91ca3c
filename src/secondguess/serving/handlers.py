"""What each route does: read a request, have it decided, describe the decision.

Bodies are parsed by pydantic straight from their bytes, which limits their depth.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from pydantic import BaseModel, ValidationError

from secondguess.language.engines import Engine, EngineError
from secondguess.language.formatting import FormatError
from secondguess.language.scoring import Tokens
from secondguess.serving import records
from secondguess.serving.answers import Choice, decide_choices
from secondguess.serving.batching import Batcher, Job
from secondguess.serving.config import ServerConfig
from secondguess.serving.counters import Counters
from secondguess.serving.documents import page_and_policy
from secondguess.serving.errors import RefusedRequest, refused_fields
from secondguess.serving.formats import text_check
from secondguess.serving.schemas import (
    ChatRequest,
    CompletionRequest,
    Decoding,
    Message,
    ScoreRequest,
)
from secondguess.serving.watching import log

BodyT = TypeVar("BodyT", bound=BaseModel)
ResultT = TypeVar("ResultT")


class Handlers:
    """The handlers, and what they share: one engine, one line before it, one set of counters."""

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
        deciding = decide_choices(
            self.batcher, [prompt], body, self.config, max_tokens=body.max_new_tokens, fits=fits
        )
        choices = await self._decided(request, deciding)
        logprobs, listed = bool(body.logprobs), body.return_candidates
        described = [
            records.chat_choice(self.engine.formatter, *each, logprobs=logprobs, all_=listed)
            for each in enumerate(choices)
        ]
        whole = records.completion("chat.completion", self.config.model_name, [prompt], choices)
        if body.stream:
            return _stream(records.chat_chunks(whole, described, usage=_wants_usage(body)))
        return JSONResponse(whole | {"choices": described})

    async def complete(self, request: Request) -> Response:
        """Complete prompts, or abstain."""
        body = await _parsed(request, CompletionRequest)
        self._check_model(body.model)
        several = isinstance(body.prompt, list) and not isinstance(body.prompt[0], int)
        prompts = [self._prompt(each) for each in (body.prompt if several else [body.prompt])]
        deciding = decide_choices(
            self.batcher, prompts, body, self.config, max_tokens=body.max_tokens
        )
        choices = await self._decided(request, deciding)
        logprobs, listed = body.logprobs is not None, body.return_candidates
        described = [
            records.text_choice(self.engine.formatter, *each, logprobs=logprobs, all_=listed)
            for each in enumerate(choices)
        ]
        whole = records.completion("text_completion", self.config.model_name, prompts, choices)
        if body.stream:
            return _stream(records.text_chunks(whole, described, usage=_wants_usage(body)))
        return JSONResponse(whole | {"choices": described})

    async def score(self, request: Request) -> Response:
        """Score given responses to one prompt."""
        body = await _parsed(request, ScoreRequest)
        if body.model is not None:
            self._check_model(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise RefusedRequest(400, "expected either 'prompt' or 'messages'.", param="prompt")
        if body.messages is not None:
            prompt = self._chat_prompt(body.messages)
        else:
            prompt = self._prompt(body.prompt)
        try:
            tokens = [self.engine.formatter.response_tokens(each) for each in body.responses]
        except FormatError as error:
            raise RefusedRequest(400, str(error), param="responses") from None
        job = Job([(prompt, each) for each in tokens])
        scored = await self._patiently(request, self.batcher.run(job))
        gap = self.config.defaults.gap
        found = [records.candidate_record(self.engine.formatter, each, gap) for each in scored]
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
        headers = {"Content-Security-Policy": self._policy, "X-Content-Type-Options": "nosniff"}
        return HTMLResponse(self._page, headers=headers)

    async def _decided(self, request: Request, work: Awaitable[list[Choice]]) -> list[Choice]:
        choices = await self._patiently(request, work)
        for choice in choices:
            outcome = "abstained" if choice.decision.abstained else "answered"
            self.counters.decisions.labels(outcome=outcome).inc()
        return choices

    async def _patiently(self, request: Request, work: Awaitable[ResultT]) -> ResultT:
        """Wait for the work, unless its client goes away or its time is over: then drop it."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                {task, gone}, timeout=self.config.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if task.done():
                return _result(task)
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

    def _prompt(self, prompt: Any, param: str = "prompt") -> Tokens:
        try:
            return self.engine.formatter.prompt_tokens(prompt)
        except FormatError as error:
            raise RefusedRequest(400, str(error), param=param) from None

    def _chat_prompt(self, messages: list[Message]) -> Tokens:
        if self.uses_template:
            said = [{"role": each.role, "content": each.text} for each in messages]
            return self._prompt(said, "messages")
        if len(messages) != 1 or messages[0].role != "user":
            raise RefusedRequest(
                400,
                "this model answers prompts, not chats; expected one message of the role 'user'.",
                param="messages",
            )
        return self._prompt(messages[0].text, "messages")

    def _check_model(self, name: str) -> None:
        if name != self.config.model_name:
            raise RefusedRequest(
                404,
                f"there is no such model; the one here is {self.config.model_name!r}.",
                param="model",
                code="model_not_found",
            )

    def _model(self) -> dict[str, Any]:
        defaults, finding = self.config.defaults, self.config.finding
        return {
            "id": self.config.model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "secondguess",
            "secondguess": {
                "max_hallucination_rate": defaults.max_hallucination_rate,
                "strategy": defaults.strategy,
                "num_candidates": defaults.num_candidates,
                "resolution": None if finding is None else finding.resolution,
                "max_tokens": self.engine.formatter.config.response_length - 1,
                "meaning": self.config.meaning,
                "guarantee": records.guarantee_record(self.config.marked),
            },
        }


async def _parsed(request: Request, kind: type[BodyT]) -> BodyT:
    # A browser lets pages of other sites send anything but JSON without asking us first.
    stated = request.headers.get("content-type", "")
    if stated.partition(";")[0].strip().lower() != "application/json":
        raise RefusedRequest(
            415, "the body is not declared as JSON; send 'Content-Type: application/json'."
        )
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise refused_fields(error) from None


def _result(task: asyncio.Future[ResultT]) -> ResultT:
    try:
        return task.result()
    except EngineError as error:
        log.error("%s", ascii(str(error)))
        raise RefusedRequest(
            503,
            "the engine behind this server is away; try again later.",
            code="engine_unavailable",
            headers={"Retry-After": "5"},
        ) from None


def _wants_usage(body: Decoding) -> bool:
    return body.stream_options is not None and body.stream_options.include_usage


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
