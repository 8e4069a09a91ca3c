"""Questions and statements as tokens: the training data of the digits-of-pi model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch

from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.questions import (
    NUM_OFFSETS,
    digits_at,
    drawing_probs,
    offset_probs,
    question,
    sample_offsets,
)
from secondguess.experiments.sequences import WEIGHTS, Batch, PairLayout
from secondguess.language.formatting import Layout, PairFormat, PairFormatter
from secondguess.language.tokenizer import word_tokenizer
from secondguess.theory.checks import IntArray

SEPARATOR = "<SEP>"
RESPONSE_LENGTH = 10


def vocabulary() -> list[str]:
    """Every word of questions and statements, in a fixed order."""
    texts = [question(1234), question(5678), question(90), *grammar().sentences]
    return [SEPARATOR, *sorted({word for text in texts for word in text.split()})]


class PiPairs:
    """The pairs that a model of digits of pi is trained on, as tokens.

    >>> pairs = PiPairs()
    >>> batch = pairs.source(batch_size=2, seed=0)(0)
    >>> print(pairs.layout.formatter.tokenizer.decode(batch["input_ids"][0]))
    <BOS> Tell me about digit 0 0 2 5 of pi. <SEP> It is an odd number _ <SEP> Sure, that's 3 _ _ _

    The separator stands before each response; the paper's examples show it before the first only.

    Args:
        layout: how pairs are laid out; the paper's is `padded`.
    """

    def __init__(self, layout: Layout = "positions") -> None:
        formatter = PairFormatter(
            word_tokenizer(vocabulary()),
            PairFormat(response_length=RESPONSE_LENGTH, layout=layout, separator=SEPARATOR),
        )
        self.layout = PairLayout(
            formatter=formatter, prompt_length=len(formatter.prompt_tokens(question(1)))
        )

    @cached_property
    def sentence_tokens(self) -> IntArray:
        """The tokens of each sentence of the grammar, `(441, 10)`."""
        return self.layout.response_tokens(list(grammar().sentences))

    @cached_property
    def prompt_tokens(self) -> IntArray:
        """The tokens of each question by offset, `(10_000, prompt_length)`; row 0 is row 1."""
        formatter = self.layout.formatter
        base = np.array(formatter.prompt_tokens(question(1)))
        ids = formatter.tokenizer.get_vocab()
        numerals = np.array([ids[numeral] for numeral in "0123456789"])
        # All questions are alike but for their four numerals: BOS, then "Tell me about digit".
        offsets = np.arange(NUM_OFFSETS + 1).clip(1)
        prompts = np.tile(base, (len(offsets), 1))
        prompts[:, 5:9] = numerals[offsets[:, None] // np.array([1000, 100, 10, 1]) % 10]
        return prompts

    def source(
        self, *, batch_size: int, seed: int, flat_share: float = 0.0
    ) -> Callable[[int], Batch]:
        """A function from the step to its batch: fresh offsets, two statements about each.

        Args:
            batch_size: pairs a step.
            seed: of all draws.
            flat_share: how many of the offsets come from a flatter distribution, see
                `drawing_probs`; the batch then has weights that make up for it.
        """
        weights = offset_probs() / np.maximum(drawing_probs(flat_share), np.finfo(float).tiny)

        def batch_at(step: int) -> Batch:
            rng = np.random.default_rng([seed, step])
            offsets = sample_offsets(batch_size, rng, flat_share=flat_share)
            digits = digits_at(offsets)
            first, second = (self.sentence_tokens[grammar().sample(digits, rng)] for _ in "12")
            batch = self.layout.batch(self.prompt_tokens[offsets], first, second)
            if flat_share:
                batch[WEIGHTS] = torch.from_numpy(weights[offsets].astype(np.float32))
            return batch

        return batch_at
