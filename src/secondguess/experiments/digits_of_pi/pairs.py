"""Questions and statements as tokens: the training data of the digits-of-pi model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch.quasirandom import SobolEngine

from secondguess._arrays import FloatArray, IntArray
from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.questions import (
    NUM_OFFSETS,
    digits_at,
    question,
    sample_offsets,
)
from secondguess.language.collating import Batch
from secondguess.language.formatting import Layout, PairFormat, PairFormatter
from secondguess.language.pair_arrays import PairLayout
from secondguess.language.tokenizer import word_tokenizer

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
        self,
        *,
        batch_size: int,
        seed: int,
        uniform_share: float = 0.0,
        even_draws: bool = False,
    ) -> Callable[[int], Batch]:
        """A function from the step to its batch: fresh offsets, two statements about each.

        Args:
            batch_size: pairs per step.
            seed: of all draws.
            uniform_share: how many questions are about any digit, all alike, see `offset_probs`.
            even_draws: whether the draws of all steps together are spread evenly, see
                `even_uniforms`, or are independent.
        """

        def batch_at(step: int) -> Batch:
            if even_draws:
                uniforms = even_uniforms(step, batch_size, seed=seed)
            else:
                uniforms = np.random.default_rng([seed, step]).random((3, batch_size))
            offsets = sample_offsets(uniforms[0], uniform_share=uniform_share)
            digits = digits_at(offsets)
            first, second = (
                self.sentence_tokens[grammar().sample(digits, u)] for u in uniforms[1:]
            )
            return self.layout.batch(self.prompt_tokens[offsets], first, second)

        return batch_at


def even_uniforms(step: int, batch_size: int, *, seed: int) -> FloatArray:
    """Numbers from 0 up to 1 for the offset and the two statements of each pair, `(3, batch_size)`.

    Each pair's three numbers are independent and uniform, so a pair is drawn as ever. But the pairs
    of a training are not independent of each other: together they are a scrambled Sobol sequence,
    which fills the cube evenly. Every digit, and every statement about it, then comes close to as
    often as it should, in all steps and in any few of them, and gradients are less noisy.

    >>> np.histogram(even_uniforms(0, 64, seed=0)[0], bins=8, range=(0, 1))[0]
    array([8, 8, 8, 8, 8, 8, 8, 8])
    """
    engine = SobolEngine(3, scramble=True, seed=seed)
    points = engine.fast_forward(step * batch_size).draw(batch_size, dtype=torch.float64).numpy().T
    # The points lie on a grid; rare digits need finer numbers.
    return points + np.random.default_rng([seed, step]).random(points.shape) / 2**engine.MAXBIT
