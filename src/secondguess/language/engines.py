"""Who samples and scores: a model in this process, or one that is served elsewhere.

An engine takes prompts and responses as tokens and gives back scored responses; everything else,
texts, decoders, files, is the same whichever engine is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from secondguess.language.formatting import EncodedRow, PairFormatter
from secondguess.language.generation import Sampling, sample
from secondguess.language.meaning_functions import Meaning
from secondguess.language.meanings import ScoredMeaning, score_meanings
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, ScoredResponse, Tokens, score

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


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


class Question(NamedTuple):
    """A prompt whose sampled answers are judged by what they mean.

    Attributes:
        prompt: the tokens of the prompt.
        seed: as in `Draw`.
        num_samples: pairs of responses drawn; see `score_meanings`.
        meaning: f, a function of the text.
    """

    prompt: Tokens
    seed: tuple[int, ...]
    num_samples: int
    meaning: Meaning


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

    def judge(self, questions: Sequence[Question]) -> list[list[ScoredMeaning]]:
        """The meanings of sampled answers to each question; see `score_meanings`."""
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

        def together(same: Sequence[Draw]) -> list[ScoredResponse]:
            return sample(
                self.model,
                [EncodedRow(draw.prompt) for draw in same],
                rng=[np.random.default_rng(draw.seed) for draw in same],
                sampling=same[0].sampling,
                batch_size=self.batch_size,
            )

        return by_kind(draws, lambda draw: draw.sampling, together)

    def judge(self, questions: Sequence[Question]) -> list[list[ScoredMeaning]]:
        """The meanings of sampled answers; questions of one kind are answered side by side."""

        def together(same: Sequence[Question]) -> list[list[ScoredMeaning]]:
            return score_meanings(
                self.model,
                [EncodedRow(question.prompt) for question in same],
                same[0].meaning,
                rng=[np.random.default_rng(question.seed) for question in same],
                num_samples=same[0].num_samples,
                batch_size=self.batch_size,
            )

        return by_kind(questions, lambda each: (each.num_samples, each.meaning), together)

    def score(self, items: Sequence[tuple[Tokens, Tokens]]) -> list[ScoredResponse]:
        """The scores of given responses; equal prompts are computed once."""
        rows = [EncodedRow(prompt, (response,)) for prompt, response in items]
        return [scored for [scored] in score(self.model, rows, batch_size=self.batch_size)]


def by_kind(
    tasks: Sequence[TaskT],
    kind: Callable[[TaskT], Hashable],
    work: Callable[[Sequence[TaskT]], list[ResultT]],
) -> list[ResultT]:
    """The results of tasks in their order; those of one kind are worked on together."""
    results: dict[int, ResultT] = {}
    for each in dict.fromkeys(map(kind, tasks)):
        rows = [row for row, task in enumerate(tasks) if kind(task) == each]
        results.update(zip(rows, work([tasks[row] for row in rows]), strict=True))
    return [results[row] for row in range(len(tasks))]
