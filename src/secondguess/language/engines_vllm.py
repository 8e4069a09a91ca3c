"""A pair model that a vLLM server holds, for models that need many GPUs or machines.

Sampling and scoring go to the server as tokens, never as text, which it would put a token before.
Only the `padded` layout can be served: vLLM numbers positions itself and takes no `position_ids`,
so that a `positions` model would be read wrongly and without a complaint. The tokenizer and the
format come from a folder of the model, whose weights are not read.

A response is drawn by one request and scored by another, which reads prompt, y, y whole: requests
for `prompt_logprobs` do not use the server's cache of prefixes.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from transformers import AutoConfig, AutoTokenizer

from secondguess._arrays import FloatArray
from secondguess._files import manifest_digest
from secondguess.language.engines import Draw, EngineError, Question
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.generation import Sampling
from secondguess.language.meanings import DrawnPairs, ScoredMeaning, TokenScores, judge_pairs
from secondguess.language.model import context_length
from secondguess.language.recalibration import SequenceRecalibration, wordings_only
from secondguess.language.scoring import ScoredResponse, Tokens, chunks

PairItem = tuple[Tokens, Tokens, Tokens]
"""A prompt, a y1 and a y2."""

CONCURRENCY = 32
"""Requests to the server at the same time; it batches them."""


class VllmEngine:
    """A pair model behind a vLLM server.

    Args:
        address: of the server, such as `http://127.0.0.1:8001`.
        formatter: the tokenizer and the pair format of the model, in the `padded` layout.
        batch_size: how many responses are scored per request.
        timeout: seconds that a request may take.
        transport: how requests travel; for tests.
    """

    def __init__(
        self,
        address: str,
        formatter: PairFormatter,
        *,
        batch_size: int = 32,
        timeout: float = 600.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        _check_layout(formatter.config)
        self._formatter, self.batch_size = formatter, batch_size
        transport = transport or httpx.HTTPTransport(
            retries=2, limits=httpx.Limits(max_connections=CONCURRENCY)
        )
        self._client = httpx.Client(base_url=address, timeout=timeout, transport=transport)
        self._pool = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="vllm")
        weakref.finalize(self, _close, self._client, self._pool)
        self.address = address
        self._digest: str | None = None
        self._recalibration: SequenceRecalibration | None = None
        self.model_name = self._check_server()

    @classmethod
    def connect(cls, address: str, folder: Path | str, *, batch_size: int = 32) -> VllmEngine:
        """The model in a folder, as a server holds it; its weights are not read here."""
        settings = PairFormat.load(folder)
        _check_layout(settings)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        formatter = PairFormatter(tokenizer, settings, context_length=context_length(config))
        engine = cls(address, formatter, batch_size=batch_size)
        engine._recalibration = SequenceRecalibration.load(folder)
        engine._digest = manifest_digest(Path(folder))
        return engine

    @property
    def formatter(self) -> PairFormatter:
        """The tokenizer and the pair format of the model."""
        return self._formatter

    @property
    def identity(self) -> dict[str, Any]:
        """The served model's name, the format, and a digest of the folder's manifest, if any."""
        return {
            "engine": "vllm",
            "served": self.model_name,
            "manifest": self._digest,
            "format": asdict(self._formatter.config),
        }

    def objection(self, sampling: Sampling) -> str | None:
        """Why the server cannot sample so, or None."""
        if sampling.min_probability is not None:
            return "vLLM has no min_probability; leave it out (top_p and top_k are understood)."
        return None

    def sample(self, draws: Sequence[Draw]) -> list[ScoredResponse]:
        """One scored response per draw; equal responses to one prompt are scored once."""
        if not draws:
            return []
        drawn = list(self._pool.map(self._draw, draws))
        items = [(draw.prompt, tokens) for draw, (tokens, _) in zip(draws, drawn, strict=True)]
        return [
            replace(scored, cut_off=cut)
            for scored, (_, cut) in zip(self.score(items), drawn, strict=True)
        ]

    def judge(self, questions: Sequence[Question]) -> list[list[ScoredMeaning]]:
        """The meanings of sampled answers to each question; see `score_meanings`."""
        draws = [
            Draw(question.prompt, (*question.seed, each), Sampling())
            for question in questions
            for each in range(question.num_samples)
        ]
        firsts = list(self._pool.map(self._draw, draws))
        behind = [
            draw._replace(
                prompt=tuple(self._formatter.lay_out(draw.prompt, y1, ()).tokens),
                seed=(*draw.seed, 1),
            )
            for draw, (y1, _) in zip(draws, firsts, strict=True)
        ]
        seconds = self._pool.map(self._draw, behind)
        pairs = iter([(y1, y2) for (y1, _), (y2, _) in zip(firsts, seconds, strict=True)])
        cut_off = frozenset(tokens for tokens, cut in firsts if cut)
        results = []
        for question in questions:
            drawn = DrawnPairs(question.prompt, list(islice(pairs, question.num_samples)), cut_off)
            results += judge_pairs(
                [drawn],
                question.meaning,
                self._formatter,
                self._score_pairs,
                recalibration=self._recalibration,
            )
        return results

    def score(self, items: Sequence[tuple[Tokens, Tokens]]) -> list[ScoredResponse]:
        """The scores of given responses; equal ones are scored once."""
        recalibration = wordings_only(self._recalibration)
        scored = self._score_pairs([(prompt, y, y) for prompt, y in items])
        return [
            ScoredResponse(y, self._formatter.text(y), *each, recalibration=recalibration)
            for (_, y), each in zip(items, scored, strict=True)
        ]

    def _draw(self, draw: Draw) -> tuple[Tokens, bool]:
        """A response and whether it was cut off, as `generation.sample` defines both."""
        end, length = self._formatter.end, self._formatter.config.response_length
        sampling = draw.sampling
        if objection := self.objection(sampling):
            raise ValueError(objection)
        [choice] = self._completions(
            [draw.prompt],
            max_tokens=length,
            min_tokens=1,
            seed=int(np.random.SeedSequence(draw.seed).generate_state(1, np.uint64)[0] >> 1),
            temperature=sampling.temperature,
            top_k=sampling.top_k or 0,
            top_p=sampling.top_p or 1.0,
            stop_token_ids=[end],
        )
        drawn = tuple(choice["token_ids"])
        before = drawn[: drawn.index(end)] if end in drawn else drawn[: length - 1]
        return (*before, end), end not in drawn

    def _score_pairs(self, items: Sequence[PairItem]) -> TokenScores:
        """What each token of y1 and of y2 after it costs, for items (x, y1, y2)."""
        batches = list(chunks(list(dict.fromkeys(items)), self.batch_size))
        known: dict[PairItem, tuple[FloatArray, FloatArray]] = {}
        for batch, scored in zip(batches, self._pool.map(self._score, batches), strict=True):
            known.update(zip(batch, scored, strict=True))
        return [known[item] for item in items]

    def _score(self, items: Sequence[PairItem]) -> TokenScores:
        laid_out = [self._formatter.lay_out(*item) for item in items]
        choices = self._completions(
            # The last token is the end: it is not read but predicted, being the only one allowed.
            [each.tokens[:-1] for each in laid_out],
            max_tokens=1,
            temperature=0.0,
            logprobs=0,
            prompt_logprobs=0,
            allowed_token_ids=[self._formatter.end],
        )
        results = []
        for (_, first, _), each, choice in zip(items, laid_out, choices, strict=True):
            read = choice["prompt_logprobs"]
            if len(read) != len(each.tokens) - 1:
                raise EngineError(
                    f"the server at {self.address} read {len(read)} tokens of "
                    f"{len(each.tokens) - 1}; expected it to take tokens as they are."
                )
            pairs = zip(each.tokens[1:-1], read[1:], strict=True)
            log_probs = [_log_prob(found[str(token)]["logprob"]) for token, found in pairs]
            log_probs.append(_log_prob(choice["logprobs"]["token_logprobs"][0]))
            scored = np.array(log_probs)[np.array(each.scored[1:])]
            results.append((scored[: len(first)], scored[len(first) :]))
        return results

    def _completions(self, prompts: Sequence[Sequence[int]], **options: Any) -> list[Any]:
        """One choice per prompt."""
        body = {
            "model": self.model_name,
            "prompt": [list(tokens) for tokens in prompts],
            "return_token_ids": True,
            **options,
        }
        answer = self._call("POST", "/v1/completions", json=body)
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        if len(choices) != len(prompts):
            raise EngineError(
                f"the server at {self.address} gave {len(choices)} choices for {len(prompts)} "
                f"prompts; expected a vLLM server."
            )
        return choices

    def _check_server(self) -> str:
        """The name of the served model, whose context must be long enough."""
        [served, *_] = self._call("GET", "/v1/models")["data"]
        length, limit = served.get("max_model_len"), self._formatter.max_prompt_length
        needed = self._formatter.context_length
        if length is not None and (limit is None or (needed is not None and length < needed)):
            # Prompts that the server has no room for are refused here, by their length.
            self._formatter = PairFormatter(
                self._formatter.tokenizer, self._formatter.config, context_length=length
            )
        return str(served["id"])

    def _call(self, method: str, path: str, **options: Any) -> Any:
        try:
            response = self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            raise EngineError(
                f"no answer from the engine at {self.address} ({error}); is vLLM running there?"
            ) from None
        if response.status_code != 200:
            raise EngineError(
                f"the engine at {self.address} refused a request with status "
                f"{response.status_code}: {response.text[:300]!a}"
            )
        return response.json()


def _check_layout(settings: PairFormat) -> None:
    if settings.layout != "padded":
        raise ValueError(
            f"the model has the layout {settings.layout!r}, which vLLM cannot serve because it "
            f"numbers positions itself; expected 'padded'. Train it on from its folder in that "
            f"layout (secondguess fit DATA --model FOLDER --layout padded), or leave --engine out."
        )


def _close(client: httpx.Client, pool: ThreadPoolExecutor) -> None:
    pool.shutdown(wait=False)
    client.close()


def _log_prob(value: float) -> float:
    """JSON has no infinity: vLLM writes -9999 in its place."""
    return -math.inf if value <= -9999 else value
