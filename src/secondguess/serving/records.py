"""Decisions as JSON: OpenAI's objects, each choice with an object `secondguess` of ours."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from secondguess.language.formatting import PairFormatter
from secondguess.language.marked import MarkedAnswers
from secondguess.language.meanings import FAILURE_RATE, ScoredMeaning
from secondguess.language.scoring import ScoredResponse
from secondguess.serving.answers import Choice
from secondguess.theory.bounds import hallucination_bound
from secondguess.theory.records import GapKind, RestsOn

Record = dict[str, Any]


def number(value: float) -> float | None:
    """A number that JSON has: None in place of infinity and NaN."""
    return float(value) if math.isfinite(value) else None


def candidate_record(
    formatter: PairFormatter, candidate: ScoredResponse | ScoredMeaning, gap: GapKind
) -> Record:
    """A scored response, token by token, or a meaning, whose scores are cautious ones."""
    judged = isinstance(candidate, ScoredMeaning)
    scores = candidate.cautious if judged else candidate.scores
    bound = hallucination_bound(scores)
    record: Record = {
        "text": candidate.text,
        "meaning": str(candidate.meaning) if judged else None,
        "times": candidate.num_draws if judged else 1,
        "confidence": number(float(scores.epistemic_confidence)),
        "gap": number(float(scores.confidence_gap(gap))),
        "bound": number(float(bound.value)),
        "outside_theorem": bool(bound.outside_theorem),
        "log_marginal": number(float(scores.log_marginal)),
        "log_self_conditional": number(float(scores.log_self_conditional)),
        "cut_off": candidate.cut_off,
    }
    if not judged:
        record["tokens"] = token_texts(formatter, candidate)
        record["token_cheating"] = [number(each) for each in candidate.cheating]
    return record


def choice_record(formatter: PairFormatter, choice: Choice, *, tokens: bool, all_: bool) -> Record:
    """The object `secondguess` of a choice.

    Args:
        formatter: of the model.
        choice: what was decided.
        tokens: whether to say how much each token cheats.
        all_: whether to list all candidates.
    """
    decision = choice.decision
    record: Record = {
        "abstained": decision.abstained,
        "confidence": None,
        "bound": None,
        "rests_on": str(RestsOn.CALIBRATED_PAIRS),
        "meaning": None,
        "max_hallucination_rate": choice.rate,
        "num_candidates": choice.num_samples,
        "guarantee": guarantee_record(choice.marked),
    }
    if any(isinstance(each, ScoredMeaning) for each in choice.candidates):
        record["failure_rate"] = FAILURE_RATE
    if decision.response is not None:
        given = candidate_record(formatter, decision.response, choice.gap)
        kept = ("confidence", "bound", "outside_theorem", "log_marginal", "log_self_conditional")
        record |= {key: given[key] for key in (*kept, "cut_off", "meaning")}
        if tokens:
            record["token_cheating"] = given.get("token_cheating")
    if all_:
        record["candidates"] = [
            candidate_record(formatter, each, choice.gap) for each in choice.candidates
        ]
    return record


def guarantee_record(marked: MarkedAnswers | None) -> Record | None:
    """What marked answers promise about all answers together, whatever the model is."""
    if marked is None:
        return None
    threshold = marked.threshold
    return {
        "max_gap": marked.max_gap,
        "chosen_at": marked.chosen_at,
        "max_error_rate": threshold.max_error_rate,
        "failure_rate": threshold.failure_rate,
        "num_marked": threshold.num_rows,
        "rests_on": str(threshold.rests_on),
    }


def refusal(choice: Choice) -> str:
    """Why nothing was said, in words for a person."""
    if choice.marked is not None:
        return (
            f"I don't know. I am less sure of what I would say than I must be, so that at most "
            f"{choice.marked.threshold.max_error_rate:.2g} of my answers are wrong."
        )
    return (
        f"I don't know. For none of the {choice.num_samples} answer(s) I considered is the "
        f"chance of being made up known to be at most {choice.rate:.2g}, the limit here."
    )


def finish_reason(choice: Choice) -> str:
    """`stop` for answers and abstentions, `length` for an answer that was cut off."""
    given = choice.decision.response
    return "length" if given is not None and given.cut_off else "stop"


def chat_choice(
    formatter: PairFormatter, index: int, choice: Choice, *, logprobs: bool, all_: bool
) -> Record:
    """A choice of `/v1/chat/completions`."""
    given = choice.decision.response
    return {
        "index": index,
        "message": {
            "role": "assistant",
            "content": None if given is None else given.text,
            "refusal": refusal(choice) if given is None else None,
        },
        "logprobs": _chat_logprobs(formatter, given) if logprobs else None,
        "finish_reason": finish_reason(choice),
        "secondguess": choice_record(formatter, choice, tokens=logprobs, all_=all_),
    }


def text_choice(
    formatter: PairFormatter, index: int, choice: Choice, *, logprobs: bool, all_: bool
) -> Record:
    """A choice of `/v1/completions`, which has no place for a refusal: its text is empty then."""
    given = choice.decision.response
    record = choice_record(formatter, choice, tokens=logprobs, all_=all_)
    if given is None:
        record["refusal"] = refusal(choice)
    return {
        "index": index,
        "text": "" if given is None else given.text,
        "logprobs": _text_logprobs(formatter, given) if logprobs and given else None,
        "finish_reason": finish_reason(choice),
        "secondguess": record,
    }


def completion(
    kind: str, model: str, prompts: Sequence[Sequence[int]], decided: Sequence[Choice]
) -> Record:
    """The object around the choices; `kind` is `chat.completion` or `text_completion`."""
    read = sum(map(len, prompts))
    written = sum(each.num_tokens for choice in decided for each in choice.candidates)
    return {
        "id": f"{'chatcmpl' if kind.startswith('chat') else 'cmpl'}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
        },
    }


def chat_chunks(whole: Record, choices: Sequence[Record], *, usage: bool) -> Iterator[Record]:
    """A finished chat completion as the pieces of a stream."""
    frame = {key: whole[key] for key in ("id", "created", "model")}
    frame["object"] = "chat.completion.chunk"
    none = {"usage": None} if usage else {}

    def piece(choice: Record, delta: Record, **others: Any) -> Record:
        part = {"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": None}
        return {**frame, **none, "choices": [part | others]}

    for choice in choices:
        message = choice["message"]
        said = {key: message[key] for key in ("content", "refusal") if message[key] is not None}
        yield piece(choice, {"role": "assistant", "content": "", "refusal": None})
        yield piece(choice, said, logprobs=choice["logprobs"])
        yield piece(
            choice,
            {},
            finish_reason=choice["finish_reason"],
            secondguess=choice["secondguess"],
        )
    if usage:
        yield {**frame, "choices": [], "usage": whole["usage"]}


def text_chunks(whole: Record, choices: Sequence[Record], *, usage: bool) -> Iterator[Record]:
    """A finished completion as the pieces of a stream."""
    frame = {key: whole[key] for key in ("id", "object", "created", "model")}
    none = {"usage": None} if usage else {}
    for choice in choices:
        yield {**frame, **none, "choices": [choice]}
    if usage:
        yield {**frame, "choices": [], "usage": whole["usage"]}


def token_texts(formatter: PairFormatter, response: ScoredResponse) -> list[str]:
    """The text that each token adds, so that they join to the response; "" for its end.

    A token by itself may have lost the space before it, or be a part of a letter: it adds nothing
    then, and the token that completes the letter adds all of it.
    """
    texts, said = [], ""
    for stop in range(1, len(response.tokens)):
        now = str(formatter.tokenizer.decode(list(response.tokens[:stop])))
        if now.endswith("\N{REPLACEMENT CHARACTER}") and stop < len(response.tokens) - 1:
            now = said
        texts.append(now[len(said) :])
        said = now
    return [*texts, ""]


def _pieces(formatter: PairFormatter, response: ScoredResponse) -> list[tuple[str, float]]:
    texts = token_texts(formatter, response)[:-1]
    return list(zip(texts, map(float, response.log_marginal), strict=False))


def _chat_logprobs(
    formatter: PairFormatter, given: ScoredResponse | ScoredMeaning | None
) -> Record | None:
    if isinstance(given, ScoredMeaning):
        return None
    content = [
        {
            "token": text,
            "logprob": max(logprob, -9999.0),
            "bytes": list(text.encode()),
            "top_logprobs": [],
        }
        for text, logprob in (_pieces(formatter, given) if given else [])
    ]
    return {"content": content, "refusal": None}


def _text_logprobs(
    formatter: PairFormatter, given: ScoredResponse | ScoredMeaning
) -> Record | None:
    if isinstance(given, ScoredMeaning):
        return None
    pieces = _pieces(formatter, given)
    offsets, at = [], 0
    for text, _ in pieces:
        offsets.append(at)
        at += len(text)
    return {
        "tokens": [text for text, _ in pieces],
        "token_logprobs": [max(logprob, -9999.0) for _, logprob in pieces],
        "top_logprobs": None,
        "text_offset": offsets,
    }
