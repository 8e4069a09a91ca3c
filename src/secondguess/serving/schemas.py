"""What a request may hold: OpenAI's fields that mean something here, and our own.

A field that is not listed is refused, never ignored: a client that sends `tools` must not believe
that they were used. Our own fields stand beside OpenAI's (`extra_body=` of its Python client).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from secondguess.language.answering import Strategy
from secondguess.theory.records import GapKind

MAX_CANDIDATES = 64
MAX_CHOICES = 16

Rate = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, strict=True)]], Field(min_length=1)]


class Strict(BaseModel):
    """A request of which every field is known and has the type it should have."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TextPart(Strict):
    """A piece of a message."""

    type: Literal["text"]
    text: str


class Message(Strict):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1)]
    name: str | None = None

    @property
    def text(self) -> str:
        """What it says."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class JsonSchema(Strict):
    """A schema that answers must fit."""

    name: str
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(Strict):
    """Which texts count as answers: candidates that do not fit are not considered."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(Strict):
    """What a stream holds beside the answer."""

    include_usage: bool = False
    include_obfuscation: bool = False


class Decoding(Strict):
    """What the three ways of asking share.

    Attributes:
        model: the name under `/v1/models`.
        n: how many answers, each decided by itself.
        temperature: of the sampling, 0 for the likeliest tokens; scores use 1.
        top_p: only the likeliest tokens that together reach this probability.
        seed: the same seed gives the same answer.
        stop: where an answer ends; the end itself is left out.
        stream: server-sent events, sent once the decision is made.
        max_hallucination_rate: the largest bound that is still answered.
        strategy: `selective`, `rejection` or `top1`.
        num_candidates: how many samples one answer may cost.
        min_probability: no token less likely than this is sampled.
        gap: how confidences above 1 are treated.
        return_candidates: whether to list all samples with their scores.
    """

    model: str
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: (
        Annotated[str, Field(min_length=1)]
        | Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=4)]
        | None
    ) = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    max_hallucination_rate: Rate | None = None
    strategy: Strategy | None = None
    num_candidates: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)] | None = None
    min_probability: Rate | None = None
    gap: GapKind | None = None
    return_candidates: bool = False

    @property
    def resampled(self) -> list[str]:
        """The fields by which the request samples in another way than the model itself."""
        other = {
            "temperature": self.temperature not in (None, 1),
            "top_p": self.top_p not in (None, 1),
            "min_probability": self.min_probability is not None,
            "stop": bool(self.stops),
        }
        return [name for name, found in other.items() if found]

    @property
    def decides_otherwise(self) -> bool:
        """Whether the request decides in another way than the operator."""
        chosen = (self.max_hallucination_rate, self.strategy, self.num_candidates, self.gap)
        return any(each is not None for each in chosen)

    @property
    def stops(self) -> list[str]:
        """The stop texts as a list."""
        return [self.stop] if isinstance(self.stop, str) else (self.stop or [])


class ChatRequest(Decoding):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    response_format: ResponseFormat | None = None

    @property
    def max_new_tokens(self) -> int | None:
        """How many tokens an answer may have."""
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(Decoding):
    """The body of `/v1/completions`."""

    prompt: str | TokenIds | Annotated[list[str | TokenIds], Field(min_length=1, max_length=128)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=1)] | None = None


class ScoreRequest(Strict):
    """The body of `/score`: responses of yours to one prompt."""

    model: str | None = None
    prompt: str | TokenIds | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    responses: Annotated[
        list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=256)
    ]
