"""Who samples and scores: a model in this process, or one that is served elsewhere.

An engine takes prompts and responses as tokens and gives back scored responses; everything else,
texts, decoders, files, is the same whichever engine is at work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from secondguess.language.formatting import EncodedRow, PairFormatter
from secondguess.language.generation import Sampling, sample
from secondguess.language.meaning_functions import Meaning
from secondguess.language.meanings import ScoredMeaning, score_meanings
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, ScoredResponse, Tokens, score


class Draw(NamedTuple):
    """One response to sample.

    Attributes:
        prompt: the tokens of the prompt.
        seed: with the prompt, the model and the sampling, decides the response.
        sampling: how tokens are chosen.
    """

    prompt: Tokens
    seed: tuple[int, ...]
    sampling: Sampling


class EngineError(ConnectionError):
    """An engine elsewhere cannot be reached, or does not do what it should."""


class Engine(Protocol):
    """What sampling and scoring need of a pair model, wherever it runs."""

    @property
    def formatter(self) -> PairFormatter:
        """The tokenizer and the pair format of the model."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """What tells its model from any other, as far as it is known."""
        ...

    def objection(self, sampling: Sampling) -> str | None:
        """Why it cannot sample so, or None."""
        ...

    def sample(self, draws: Sequence[Draw]) -> list[ScoredResponse]:
        """One scored response per draw."""
        ...

    def judge(
        self, prompt: Tokens, meaning: Meaning, *, seed: Sequence[int], num_samples: int
    ) -> list[ScoredMeaning]:
        """The meanings of sampled answers to a prompt; see `score_meanings`."""
        ...

    def score(self, items: Sequence[tuple[Tokens, Tokens]]) -> list[ScoredResponse]:
        """The scores of given responses: items are (prompt, response), both as tokens."""
        ...


class LocalEngine:
    """A pair model in this process.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> engine = LocalEngine(tiny_pair_model())
    >>> prompt = engine.formatter.prompt_tokens("flip")
    >>> first, again = engine.sample([Draw(prompt, (0,), Sampling())] * 2)
    >>> first == again
    True

    Args:
        model: the pair model.
        batch_size: how many sequences are in one pass.
    """

    def __init__(self, model: PairLanguageModel, *, batch_size: int = DEFAULT_BATCH_SIZE) -> None:
        self.model, self.batch_size = model, batch_size

    @property
    def formatter(self) -> PairFormatter:
        """The tokenizer and the pair format of the model."""
        return self.model.formatter

    @property
    def identity(self) -> dict[str, Any]:
        """That of the model."""
        return self.model.identity

    def objection(self, sampling: Sampling) -> str | None:
        """None: it can sample in every way."""
        return None

    def sample(self, draws: Sequence[Draw]) -> list[ScoredResponse]:
        """One scored response per draw; draws with equal sampling are drawn side by side."""
        results: dict[int, ScoredResponse] = {}
        for sampling in dict.fromkeys(draw.sampling for draw in draws):
            rows = [row for row, draw in enumerate(draws) if draw.sampling == sampling]
            drawn = sample(
                self.model,
                [EncodedRow(draws[row].prompt) for row in rows],
                rng=[np.random.default_rng(draws[row].seed) for row in rows],
                sampling=sampling,
                batch_size=self.batch_size,
            )
            results.update(zip(rows, drawn, strict=True))
        return [results[row] for row in range(len(draws))]

    def judge(
        self, prompt: Tokens, meaning: Meaning, *, seed: Sequence[int], num_samples: int
    ) -> list[ScoredMeaning]:
        """The meanings of sampled answers to a prompt; see `score_meanings`."""
        [found] = score_meanings(
            self.model,
            [EncodedRow(prompt)],
            meaning,
            rng=np.random.default_rng(seed),
            num_samples=num_samples,
            batch_size=self.batch_size,
        )
        return found

    def score(self, items: Sequence[tuple[Tokens, Tokens]]) -> list[ScoredResponse]:
        """The scores of given responses; equal prompts are computed once."""
        rows = [EncodedRow(prompt, (response,)) for prompt, response in items]
        return [scored for [scored] in score(self.model, rows, batch_size=self.batch_size)]
