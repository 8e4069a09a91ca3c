"""What all rivals take and give, and the one thing that they ask of a model.

Costs are forward passes per question: one for each prompt that is read, one for each token that is
drawn, and one for each continuation that is scored, however many tokens it has. Batches make passes
cheaper, for all methods alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from secondguess._arrays import FloatArray
from secondguess.language.formatting import PairTokens
from secondguess.language.meaning_functions import Meaning, normalised
from secondguess.language.model import PairLanguageModel
from secondguess.language.prefixes import Prefix, Tokens
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, chunks

AskAgain = Callable[[str, str], str]
"""From a question and an answer to a prompt about both."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Questions, the answers to be judged, and further draws: lists with an entry per question.

    >>> asked = Asked(["flip"], ["heads"], [["heads", "tails"]])
    >>> len(asked)
    1

    Attributes:
        prompts: the questions, as the model is asked them.
        answers: the answers to be judged.
        samples: answers drawn from p(y|x), the same number per question.
        meaning: what an answer means.
        tokens_per_sample: mean length of a draw, by which draws are costed.
    """

    prompts: Sequence[str]
    answers: Sequence[str]
    samples: Sequence[Sequence[str]]
    meaning: Meaning = normalised
    tokens_per_sample: float = 1.0

    def __post_init__(self) -> None:
        sizes = (len(self.prompts), len(self.answers), len(self.samples))
        if len(set(sizes)) > 1 or not all(self.samples):
            raise ValueError(
                f"there are {sizes[0]} prompts, {sizes[1]} answers and {sizes[2]} lists of "
                f"samples; expected as many of each, and no list empty."
            )

    def __len__(self) -> int:
        return len(self.prompts)

    def meanings(self, question: int) -> list[list[str]]:
        """The draws for a question, grouped by their meaning, in the order they were drawn."""
        groups: dict[Any, list[str]] = {}
        for text in self.samples[question]:
            groups.setdefault(self.meaning(text), []).append(text)
        return list(groups.values())

    @property
    def drawing_passes(self) -> float:
        """What the draws for a question cost: its prompt, and every token."""
        return 1 + self.tokens_per_sample * float(np.mean([len(each) for each in self.samples]))


@dataclass(frozen=True, slots=True, eq=False)
class RivalScores:
    """Scores of answers.

    Attributes:
        values: `(questions,)`, higher for answers to be trusted more.
        passes: forward passes per question.
    """

    values: FloatArray
    passes: float


@torch.inference_mode()
def continuation_log_probs(
    model: PairLanguageModel,
    prompts: Sequence[str],
    continuations: Sequence[str],
    *,
    with_end: bool = True,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> FloatArray:
    """Log p(continuation|prompt), `(n,)`; equal prompts are read once.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> model = tiny_pair_model()
    >>> whole = continuation_log_probs(model, ["flip"], ["heads"])
    >>> beginning = continuation_log_probs(model, ["flip"], ["heads"], with_end=False)
    >>> bool(whole[0] < beginning[0])
    True

    Args:
        model: a pair model, of which p(y1|x) is asked.
        prompts: `n` texts.
        continuations: `n` texts.
        with_end: whether the continuation must end there; a beginning has no end.
        batch_size: how many sequences are in one pass.
    """
    formatter = model.formatter
    last = None if with_end else -1
    items = [
        (formatter.prompt_tokens(prompt), formatter.response_tokens(text)[:last])
        for prompt, text in zip(prompts, continuations, strict=True)
    ]
    by_prompt: dict[Tokens, set[Tokens]] = {}
    for prompt, tokens in items:
        by_prompt.setdefault(prompt, set()).add(tokens)
    found: dict[tuple[Tokens, Tokens], float] = {}
    order = sorted(by_prompt, key=lambda prompt: (len(prompt), prompt))
    for some in chunks(order, batch_size):
        prefix = Prefix.of(model, some)
        waiting = [(row, tokens) for row, prompt in enumerate(some) for tokens in by_prompt[prompt]]
        waiting.sort(key=lambda item: (len(item[1]), item))
        for batch in chunks(waiting, batch_size):
            texts = [tokens for _, tokens in batch]
            sums = _log_probs_behind(model, prefix.select([row for row, _ in batch]), texts)
            for (row, tokens), value in zip(batch, sums, strict=True):
                found[some[row], tokens] = value
    return np.array([found[item] for item in items])


def _log_probs_behind(
    model: PairLanguageModel, prefix: Prefix, texts: Sequence[Tokens]
) -> list[float]:
    """Log-probabilities of tokens behind a prefix, one text per row."""
    laid_out = [
        PairTokens(list(text), list(range(start, start + len(text))), [True] * len(text))
        for start, text in zip(prefix.starts, texts, strict=True)
    ]
    return [float(each.sum()) for each in prefix.scores(model, laid_out)]
