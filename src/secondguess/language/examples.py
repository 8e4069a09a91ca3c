"""A pair model small enough for examples; it has random weights and knows nothing."""

from __future__ import annotations

import torch

from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.model import PairLanguageModel
from secondguess.language.tokenizer import word_tokenizer
from secondguess.models.transformer import (
    SinusoidalTransformerConfig,
    SinusoidalTransformerForCausalLM,
)


def tiny_pair_model(seed: int = 0) -> PairLanguageModel:
    """A model of the words flip, heads and tails.

    >>> tiny_pair_model().network.num_parameters()
    696
    """
    config = SinusoidalTransformerConfig(
        vocab_size=5,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        bos_token_id=1,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = SinusoidalTransformerForCausalLM(config).eval()
    formatter = PairFormatter(
        word_tokenizer(["flip", "heads", "tails"]),
        PairFormat(response_length=3),
        context_length=config.max_position_embeddings,
    )
    return PairLanguageModel(network, formatter)
