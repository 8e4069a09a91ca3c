"""What the operator decides: how the server answers by default, and what it puts up with."""

from __future__ import annotations

from dataclasses import dataclass, field

from secondguess.language.answering import Strategy
from secondguess.language.findings import CheckFinding
from secondguess.language.marked import MarkedAnswers
from secondguess.theory.records import GapKind


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """How requests are answered that do not say how.

    Attributes:
        max_hallucination_rate: the largest bound that is still answered.
        strategy: `selective`, `rejection` or `top1`.
        num_candidates: how many samples one answer may cost.
        min_probability: no token less likely than this is sampled.
        gap: how confidences above 1 are treated.
    """

    max_hallucination_rate: float = 0.1
    strategy: Strategy = "rejection"
    num_candidates: int = 10
    min_probability: float | None = None
    gap: GapKind = "absolute"


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What the operator decides.

    >>> ServerConfig(model_name="coins").defaults.strategy
    'rejection'

    Attributes:
        model_name: the name of the model in requests and answers.
        defaults: how requests are answered that do not say how.
        chat: whether messages go through the tokenizer's chat template; otherwise the text of the
            one user message is the prompt. None: whether there is a template.
        meaning: what answers mean, in the words of `meaning_from`: then it is meanings that are
            judged, not wordings.
        marked: what marked answers guarantee of answers to requests that change nothing about how
            they are decided; these are chosen as the marked ones were.
        finding: what `check` found about the model; a rate that it does not support is refused.
        max_batch: how many responses are computed side by side.
        max_waiting: how many requests may wait in line.
        max_samples: how many responses one request may draw in all.
        max_body: bytes of a request.
        timeout: seconds after which a request is given up.
        api_key: what requests must carry; None for no key.
        cors_origins: pages of which sites may call this server.
    """

    model_name: str
    defaults: Defaults = field(default_factory=Defaults)
    chat: bool | None = None
    meaning: str | None = None
    marked: MarkedAnswers | None = None
    finding: CheckFinding | None = None
    max_batch: int = 64
    max_waiting: int = 256
    max_samples: int = 2048
    max_body: int = 1_000_000
    timeout: float = 120.0
    api_key: str | None = None
    cors_origins: tuple[str, ...] = ()
