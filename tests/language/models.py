"""Tiny random language models of several families, and the plain way to score with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from secondguess.language.collating import PaddingSide, collate_pairs
from secondguess.language.formatting import Layout, PairFormat, PairFormatter
from secondguess.language.model import PairLanguageModel, context_length
from secondguess.language.scoring import ScoredResponse, Tokens, score
from secondguess.language.tokenizer import word_tokenizer
from secondguess.models.transformer import (
    SinusoidalTransformerConfig,
    SinusoidalTransformerForCausalLM,
)

WORDS = [f"w{index}" for index in range(29)]
VOCAB_SIZE = len(WORDS) + 2

FAMILIES = ("gpt2", "llama", "qwen2", "qwen3", "sinusoidal")


def network_of(family: str, *, seed: int = 0, scale: float = 0.3) -> Any:
    """A random two-layer network; `scale` makes its predictions far from uniform."""
    torch.manual_seed(seed)
    rotary: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "initializer_range": scale,
    }
    match family:
        case "gpt2":
            config = GPT2Config(
                vocab_size=VOCAB_SIZE,
                n_embd=32,
                n_layer=2,
                n_head=4,
                n_positions=96,
                initializer_range=scale,
                bos_token_id=1,
                eos_token_id=0,
            )
            network = GPT2LMHeadModel(config)
        case "llama":
            network = LlamaForCausalLM(LlamaConfig(**rotary))
        case "qwen2":
            network = Qwen2ForCausalLM(Qwen2Config(**rotary))
        case "qwen3":
            network = Qwen3ForCausalLM(Qwen3Config(**rotary, head_dim=8))
        case "mistral":
            network = MistralForCausalLM(MistralConfig(**rotary, sliding_window=6))
        case _:
            config = SinusoidalTransformerConfig(
                vocab_size=VOCAB_SIZE,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=48,
                max_position_embeddings=96,
                initializer_range=scale,
            )
            network = SinusoidalTransformerForCausalLM(config)
    return network.eval()


def pair_model(
    family: str,
    *,
    dtype: torch.dtype = torch.float32,
    layout: Layout = "positions",
    separator: str = "",
    response_length: int = 12,
) -> PairLanguageModel:
    network = network_of(family).to(dtype)
    config = PairFormat(response_length=response_length, layout=layout, separator=separator)
    formatter = PairFormatter(
        word_tokenizer(WORDS), config, context_length=context_length(network.config)
    )
    return PairLanguageModel(network, formatter)


def ragged_texts(
    rng: np.random.Generator, count: int, longest: int, *, shortest: int = 1
) -> list[str]:
    lengths = rng.integers(shortest, longest + 1, size=count)
    return [" ".join(rng.choice(WORDS, size=length)) for length in lengths]


def score_texts(
    model: PairLanguageModel, prompts: Sequence[Any], responses: Sequence[Any], **options: Any
) -> list[ScoredResponse]:
    """Response i scored as an answer to prompt i."""
    rows = [
        {"prompt": prompt, "responses": [response]}
        for prompt, response in zip(prompts, responses, strict=True)
    ]
    return [scored for [scored] in score(model, rows, **options)]


def pair_rows(
    prompts: Sequence[Any], firsts: Sequence[Any], seconds: Sequence[Any]
) -> list[dict[str, Any]]:
    return [
        {"prompt": prompt, "responses": [first, second]}
        for prompt, first, second in zip(prompts, firsts, seconds, strict=True)
    ]


@torch.inference_mode()
def plain_scores(
    model: PairLanguageModel, items: list[tuple[Tokens, Tokens, Tokens]], side: PaddingSide
) -> list[tuple[np.ndarray, np.ndarray]]:
    """One full pass over prompt + y1 + y2, no cache, the whole log-softmax."""
    pairs = [model.formatter.lay_out(*item) for item in items]
    batch = collate_pairs(pairs, end=model.formatter.end, padding_side=side)
    labels = batch.pop("labels")
    logits = model.network(**batch, use_cache=False).logits
    log_probs = logits[:, :-1].log_softmax(dim=-1)
    results = []
    for row, (_, first, _) in enumerate(items):
        scored = (labels[row, 1:] >= 0).nonzero().squeeze(1)
        values = log_probs[row, scored, labels[row, 1:][scored]].double().numpy()
        results.append((values[: len(first)], values[len(first) :]))
    return results
