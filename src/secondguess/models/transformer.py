"""The causal transformer of the paper's sequence tasks (appendices F.3.2 and F.4.2).

Pre-LayerNorm blocks and fixed sinusoidal positions, written as a Hugging Face causal language model
(cache, `position_ids`, `generate`, `save_pretrained`), so that the language layer uses it like any
other. It is not a replacement for the models of `transformers`: no dropout, no sliding window, one
attention path. Hidden states are `(batch, tokens, hidden_size)`, keys and values
`(batch, heads, tokens, head_size)`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast


class SinusoidalTransformerConfig(PreTrainedConfig):
    """Sizes of the transformer; the defaults are the 19-million-parameter model of appendix F.3.2.

    >>> SinusoidalTransformerConfig(vocab_size=64, hidden_size=32, num_attention_heads=2).head_size
    16

    Attributes:
        vocab_size: how many tokens there are.
        hidden_size: width of the residual stream; even, and a multiple of `num_attention_heads`.
        num_hidden_layers: how many blocks.
        num_attention_heads: how many heads a block has.
        intermediate_size: width inside the MLPs.
        max_position_embeddings: positions run from 0 to this number less one.
        initializer_range: standard deviation of the first weights; widths far below 512 learn
            sooner with more (0.1 to 0.2 for a width of 32).
        use_cache: whether a forward pass makes a cache if it is not told.
    """

    model_type = "secondguess_sinusoidal"
    keys_to_ignore_at_inference = ("past_key_values",)

    vocab_size: int = 256
    hidden_size: int = 512
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    max_position_embeddings: int = 1024
    initializer_range: float = 0.02
    use_cache: bool = True
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.hidden_size % 2 or self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size is {self.hidden_size} with {self.num_attention_heads} heads; "
                f"expected an even multiple of num_attention_heads."
            )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads


@lru_cache(maxsize=8)
def sinusoidal_positions(
    num_positions: int, width: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The fixed table of positions of Vaswani et al. (2017): `(num_positions, width)`.

    >>> sinusoidal_positions(2, 4, torch.float32, torch.device("cpu")).round(decimals=3)
    tensor([[0.0000, 0.0000, 1.0000, 1.0000],
            [0.8410, 0.0100, 0.5400, 1.0000]])
    """
    # A table first asked for while scoring must still serve training later.
    with torch.inference_mode(False):
        rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * -(math.log(1e4) / width))
        angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * rates
        return torch.cat([angles.sin(), angles.cos()], dim=1).to(device=device, dtype=dtype)


def _visible_tokens(
    attention_mask: Tensor | None, num_new: int, num_past: int, device: torch.device
) -> Tensor | None:
    """What new tokens may see, `(batch, 1, num_new, num_past + num_new)`; None for plain causal."""
    if attention_mask is not None:
        visible = attention_mask.bool()
        # Behind a causal mask only padding sees right padding, so it needs no mask of its own.
        right_padded = num_past == 0 and bool((visible[:, 1:] <= visible[:, :-1]).all())
        if right_padded or bool(visible.all()):
            attention_mask = None
    if attention_mask is None and (num_past == 0 or num_new == 1):
        return None
    total = num_past + num_new
    causal = torch.ones(num_new, total, dtype=torch.bool, device=device).tril(num_past)[None, None]
    if attention_mask is None:
        return causal
    # A padded query sees itself, so that no softmax is over nothing.
    itself = torch.eye(total, dtype=torch.bool, device=device)[num_past:]
    return causal & (attention_mask.bool()[:, None, None] | itself)


class _Block(nn.Module):
    def __init__(self, config: SinusoidalTransformerConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_size = config.head_size
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.attention_out = nn.Linear(config.hidden_size, config.hidden_size)
        self.mlp_norm = nn.LayerNorm(config.hidden_size)
        self.mlp_in = nn.Linear(config.hidden_size, config.intermediate_size)
        self.mlp_out = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor, mask: Tensor | None, cache: Cache | None) -> Tensor:
        batch, tokens, width = hidden.shape
        projected = self.query_key_value(self.attention_norm(hidden))
        query, key, value = (
            projected.view(batch, tokens, 3, -1, self.head_size).permute(2, 0, 3, 1, 4).unbind(0)
        )
        if cache is not None:
            key, value = cache.update(key, value, self.layer)
        seen = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None and tokens > 1
        )
        hidden = hidden + self.attention_out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return hidden + self.mlp_out(functional.gelu(self.mlp_in(self.mlp_norm(hidden))))


class SinusoidalTransformerForCausalLM(PreTrainedModel, GenerationMixin):
    """A pre-LayerNorm transformer with fixed sinusoidal positions, as a causal language model.

    >>> _ = torch.manual_seed(0)
    >>> config = SinusoidalTransformerConfig(
    ...     vocab_size=10, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=16, max_position_embeddings=32,
    ... )
    >>> model = SinusoidalTransformerForCausalLM(config)
    >>> model(torch.tensor([[1, 2, 3]])).logits.shape
    torch.Size([1, 3, 10])
    """

    config: SinusoidalTransformerConfig
    config_class = SinusoidalTransformerConfig
    base_model_prefix = "model"
    _supports_sdpa = True

    def __init__(self, config: SinusoidalTransformerConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(_Block(config, i) for i in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.embedding = value

    def get_output_embeddings(self) -> nn.Module:
        """The layer that gives the logits."""
        return self.head

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The weight matrices of the blocks: all but what reads tokens and what gives logits."""
        return [weight for weight in self.blocks.parameters() if weight.ndim == 2]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Embedding):
            # As large as the sines it is added to; 0.02 would drown tokens in positions.
            init.normal_(module.weight, std=1.0)
        if isinstance(module, _Block):
            # The residual stream sums 2 x num_hidden_layers terms (the GPT-2 scheme).
            std = self.config.initializer_range / math.sqrt(2 * self.config.num_hidden_layers)
            init.normal_(module.attention_out.weight, std=std)
            init.normal_(module.mlp_out.weight, std=std)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **loss_options: Any,
    ) -> CausalLMOutputWithPast:
        """Logits of the next token, and the mean loss of the labels where they are given.

        Args:
            input_ids: `(batch, new)` tokens.
            attention_mask: `(batch, past + new)`, 0 for padding on either side; None for none.
            position_ids: `(batch, new)`, any whole numbers below `max_position_embeddings`; counted
                from the cache's length if None.
            past_key_values: the cache of earlier tokens, extended in place.
            inputs_embeds: `(batch, new, hidden_size)`, instead of `input_ids`.
            labels: `(batch, new)`, shifted here; -100 is not scored.
            use_cache: whether to return a cache.
            logits_to_keep: how many last positions get logits (0: all), or their indices.
            **loss_options: passed to the loss of `transformers` (its Trainer does).
        """
        hidden = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        num_past = past_key_values.get_seq_length() if past_key_values is not None else 0
        num_new = hidden.shape[1]
        if position_ids is None:
            position_ids = torch.arange(num_past, num_past + num_new, device=hidden.device)[None]
        table = sinusoidal_positions(
            self.config.max_position_embeddings, hidden.shape[2], hidden.dtype, hidden.device
        )
        hidden = hidden + table[position_ids]
        mask = _visible_tokens(attention_mask, num_new, num_past, hidden.device)
        for block in self.blocks:
            hidden = block(hidden, mask, past_key_values)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.head(self.norm(hidden[:, kept]))
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits, labels, vocab_size=self.config.vocab_size, **loss_options
            )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=past_key_values if use_cache else None,
        )


def register_transformer() -> None:
    """Let `AutoModelForCausalLM.from_pretrained` load saved models of this class."""
    AutoConfig.register(
        SinusoidalTransformerConfig.model_type, SinusoidalTransformerConfig, exist_ok=True
    )
    AutoModelForCausalLM.register(
        SinusoidalTransformerConfig, SinusoidalTransformerForCausalLM, exist_ok=True
    )
