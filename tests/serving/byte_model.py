"""A small untrained pair model that reads and writes any text, byte by byte."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.model import PairLanguageModel
from secondguess.models.transformer import (
    SinusoidalTransformerConfig,
    SinusoidalTransformerForCausalLM,
)

CONTEXT = 128


def byte_tokenizer() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {"<end>": 0, **{letter: 1 + index for index, letter in enumerate(letters)}}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def byte_model(seed: int = 0, *, response_length: int = 8) -> PairLanguageModel:
    config = SinusoidalTransformerConfig(
        vocab_size=257,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=CONTEXT,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = SinusoidalTransformerForCausalLM(config).eval()
    formatter = PairFormatter(
        byte_tokenizer(), PairFormat(response_length=response_length), context_length=CONTEXT
    )
    return PairLanguageModel(network, formatter)
