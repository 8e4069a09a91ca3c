"""An engine with known scores: what it answers follows from the prompt and the seed alone."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from secondguess.language.engines import Draw, Question
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.generation import Sampling
from secondguess.language.meanings import ScoredMeaning
from secondguess.language.scoring import ScoredResponse, Tokens
from secondguess.language.tokenizer import word_tokenizer

WORDS = ["known", "unknown", "mixed", "rome", "oslo", "lima", "and", "so", "on"]


class KnownEngine:
    """Sure about the prompt `known`, unsure about `unknown`, and about half of `mixed`.

    `gate`, if it is set, must be opened before a batch is computed; `begun` counts batches that
    have begun, `batches` lists the sizes of those that passed the gate.
    """

    def __init__(self) -> None:
        self._formatter = PairFormatter(word_tokenizer(WORDS), PairFormat(response_length=6))
        self.gate: threading.Event | None = None
        self.begun = 0
        self.batches: list[int] = []
        self.fails_on: Tokens | None = None

    @property
    def formatter(self) -> PairFormatter:
        return self._formatter

    @property
    def identity(self) -> dict[str, Any]:
        return {"engine": "known"}

    def objection(self, sampling: Sampling) -> str | None:
        return None

    def sample(self, draws: Sequence[Draw]) -> list[ScoredResponse]:
        self.begun += bool(draws)
        if self.gate is not None and draws:
            assert self.gate.wait(30)
        if draws:
            self.batches.append(len(draws))
        if self.fails_on is not None and any(draw.prompt == self.fails_on for draw in draws):
            raise RuntimeError("a bug")
        places = ["rome", "oslo", "lima"]
        texts = [
            f"{places[np.random.default_rng(draw.seed).integers(3)]} and so on" for draw in draws
        ]
        return self.score(
            [
                (draw.prompt, self._formatter.response_tokens(text))
                for draw, text in zip(draws, texts, strict=True)
            ]
        )

    def judge(self, questions: Sequence[Question]) -> list[list[ScoredMeaning]]:
        """Meanings of samples, as if every wording of a meaning had been drawn."""
        drawn = iter(
            self.sample(
                [
                    Draw(question.prompt, (*question.seed, each), Sampling())
                    for question in questions
                    for each in range(question.num_samples)
                ]
            )
        )
        results = []
        for question in questions:
            found: dict[Hashable, list[ScoredResponse]] = {}
            for each in islice(drawn, question.num_samples):
                found.setdefault(question.meaning(each.text), []).append(each)
            results.append(
                [
                    ScoredMeaning(
                        name,
                        same[0].text,
                        len(same),
                        same[0].scores,
                        same[0].scores,
                        num_tokens=sum(each.num_tokens for each in same),
                    )
                    for name, same in found.items()
                ]
            )
        return results

    def score(self, items: Sequence[tuple[Tokens, Tokens]]) -> list[ScoredResponse]:
        return [self._scored(*item) for item in items]

    def _scored(self, prompt: Tokens, response: Tokens) -> ScoredResponse:
        known = self._formatter.prompt_tokens("known")
        mixed = self._formatter.prompt_tokens("mixed")
        text = self._formatter.text(response)
        sure = prompt == known or (prompt == mixed and text.startswith("rome"))
        first = np.full(len(response), -0.01)
        first[0] = np.log(1 / 3)
        second = first.copy()
        second[0] = np.log(0.34 if sure else 0.99)
        return ScoredResponse(response, text, first, second)
