"""The calibrated pair predictor of a small world, built by hand as a causal language model.

Each response of the world is spelled as a sequence of words, and the network's next-token
distributions are the exact conditionals of the world's joint p(y1, y2|x). It keeps the tokens and
positions it has read in an ordinary cache, so it is used like any model of `transformers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast
from worlds import World

from secondguess.language.formatting import Layout, PairFormat, PairFormatter
from secondguess.language.model import PairLanguageModel
from secondguess.language.tokenizer import word_tokenizer

SPELLINGS = ("a", "b a", "b b a", "b b b", "a b b a")
"""Five responses of unequal length with common beginnings, one of them a beginning of another."""

RESPONSE_LENGTH = 5


class TableNetwork(PreTrainedModel):
    """Logits from a table: `joints` is `(prompts, responses, responses)`."""

    def __init__(
        self, formatter: PairFormatter, joints: np.ndarray, spellings: Sequence[str] = SPELLINGS
    ) -> None:
        super().__init__(PreTrainedConfig())
        vocab_size = len(formatter.tokenizer)
        self.embedding = nn.Embedding(vocab_size, 1).double()
        self.joints = joints
        self.formatter = formatter
        self.responses = [formatter.response_tokens(text) for text in spellings[: joints.shape[-1]]]
        self.prompts = [formatter.prompt_tokens(f"x{index}") for index in range(len(joints))]

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def next_probs(self, tokens: list[int], positions: list[int]) -> np.ndarray:
        """The distribution of the token behind these."""
        probs = np.zeros(self.embedding.num_embeddings)
        num_prompt = len(self.prompts[0])
        if tuple(tokens[:num_prompt]) not in self.prompts:
            probs[:] = 1 / len(probs)
            return probs
        joint = self.joints[self.prompts.index(tuple(tokens[:num_prompt]))]
        start = num_prompt + RESPONSE_LENGTH
        behind = list(zip(tokens, positions, strict=True))[num_prompt:]
        first = [token for token, position in behind if position < start]
        second = [token for token, position in behind if position >= start]
        end = self.formatter.end
        if end in first:
            first = first[: first.index(end) + 1]
            weights, prefix = joint[self.responses.index(tuple(first))], second
        else:
            weights, prefix = joint.sum(axis=1), first
        for weight, response in zip(weights, self.responses, strict=True):
            if list(response[: len(prefix)]) == prefix and len(response) > len(prefix):
                probs[response[len(prefix)]] += weight
        return probs / probs.sum() if probs.sum() else np.full(len(probs), 1 / len(probs))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor,
        past_key_values: DynamicCache | None = None,
        use_cache: bool = True,
        logits_to_keep: int = 0,
        **unused: Any,
    ) -> CausalLMOutputWithPast:
        cache = DynamicCache() if past_key_values is None else past_key_values
        keys, values = cache.update(
            input_ids[:, None, :, None].double(), position_ids[:, None, :, None].double(), 0
        )
        num_past = keys.shape[2] - input_ids.shape[1]
        if attention_mask is None:  # as for any model of transformers: nothing is padding
            attention_mask = torch.ones(len(input_ids), keys.shape[2])
        logits = torch.full(
            (*input_ids.shape, self.embedding.num_embeddings), -torch.inf, dtype=torch.float64
        )
        for row in range(len(input_ids)):
            seen = attention_mask[row].bool()
            tokens, positions = keys[row, 0, :, 0].long(), values[row, 0, :, 0].long()
            for query in range(input_ids.shape[1]):
                upto = seen[: num_past + query + 1]
                probs = self.next_probs(
                    tokens[: len(upto)][upto].tolist(), positions[: len(upto)][upto].tolist()
                )
                with np.errstate(divide="ignore"):
                    logits[row, query] = torch.from_numpy(np.log(probs))
        return CausalLMOutputWithPast(
            logits=logits[:, -logits_to_keep:],  # pyright: ignore[reportArgumentType]
            past_key_values=cache,
        )


def table_model(world: World, layout: Layout) -> PairLanguageModel:
    """The pair model of a world with at most five responses; input i is the prompt `xi`."""
    joints = world.calibrated_joint()
    words = ["a", "b", *(f"x{index}" for index in range(len(joints)))]
    config = PairFormat(response_length=RESPONSE_LENGTH, layout=layout)
    formatter = PairFormatter(word_tokenizer(words), config, context_length=64)
    return PairLanguageModel(TableNetwork(formatter, joints).eval(), formatter)
