"""A word-level tokenizer for tabular vocabularies: every word or letter is one token.

It is an ordinary fast tokenizer of `transformers` (it saves, loads and decodes like one) that
refuses words it does not know instead of replacing them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

END_TOKEN = "_"
"""Ends a response, and fills the rest of it in the padded layout, as in the paper."""

START_TOKEN = "<BOS>"
"""Begins every prompt."""


def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer that splits at white space and knows exactly these words.

    >>> tokenizer = word_tokenizer(["<SEP>", "say", "a", "digit", "six"])
    >>> tokenizer("say a digit <SEP>").input_ids
    [1, 3, 4, 5, 2]
    >>> tokenizer.decode([6, 0])
    'six _'
    >>> tokenizer.eos_token, tokenizer.pad_token, tokenizer.bos_token
    ('_', '_', '<BOS>')

    Args:
        words: the vocabulary, without the end token `_` (0) and the start token `<BOS>` (1), which
            come first.
    """
    vocabulary = [END_TOKEN, START_TOKEN, *words]
    for word in vocabulary:
        if not word or word.split() != [word]:
            raise ValueError(f"words holds {word!r}; expected words without white space.")
    if len(set(vocabulary)) != len(vocabulary):
        repeated = next(word for word in vocabulary if vocabulary.count(word) > 1)
        raise ValueError(
            f"words holds {repeated!r} twice ({END_TOKEN} and {START_TOKEN} are always there); "
            f"expected every word once."
        )
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(vocabulary)}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    backend.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single=f"{START_TOKEN} $A", special_tokens=[(START_TOKEN, 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END_TOKEN,
        pad_token=END_TOKEN,
        bos_token=START_TOKEN,
        clean_up_tokenization_spaces=False,
    )
