"""The sinusoidal transformer behaves like any causal language model of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from secondguess.models.transformer import (
    SinusoidalTransformerConfig,
    SinusoidalTransformerForCausalLM,
    register_transformer,
)


@pytest.fixture
def model() -> SinusoidalTransformerForCausalLM:
    torch.manual_seed(0)
    config = SinusoidalTransformerConfig(
        vocab_size=17,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    return SinusoidalTransformerForCausalLM(config).double().eval()


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(17, (3, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("config", "millions"),
    [
        (SinusoidalTransformerConfig(vocab_size=64), 19),
        (
            SinusoidalTransformerConfig(
                vocab_size=64,
                hidden_size=768,
                num_hidden_layers=12,
                num_attention_heads=12,
                intermediate_size=3072,
            ),
            85,
        ),
    ],
)
def test_has_the_size_of_the_papers_models(
    config: SinusoidalTransformerConfig, millions: int
) -> None:
    with torch.device("meta"):
        model = SinusoidalTransformerForCausalLM(config)
    assert round(model.num_parameters() / 1e6) == millions
    assert config.head_size == 64


def test_the_future_is_hidden(
    model: SinusoidalTransformerForCausalLM, tokens: torch.Tensor
) -> None:
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 17
    before, after = model(tokens).logits, model(changed).logits
    torch.testing.assert_close(before[:, :5], after[:, :5], rtol=0, atol=1e-12)
    assert (before[:, 5:] - after[:, 5:]).abs().min(dim=-1).values.max() > 0


@pytest.mark.parametrize("num_past", [1, 4, 8])
def test_a_cache_changes_nothing(
    model: SinusoidalTransformerForCausalLM, tokens: torch.Tensor, num_past: int
) -> None:
    whole = model(tokens).logits
    first = model(tokens[:, :num_past], use_cache=True)
    second = model(tokens[:, num_past:], past_key_values=first.past_key_values)
    parts = torch.cat([first.logits, second.logits], dim=1)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    assert second.past_key_values.get_seq_length() == 9


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("num_past", [0, 5])
def test_padding_changes_nothing(
    model: SinusoidalTransformerForCausalLM, tokens: torch.Tensor, side: str, num_past: int
) -> None:
    positions = torch.arange(9).expand(3, 9)
    mask = torch.ones_like(tokens)
    filler = torch.zeros(3, 2, dtype=torch.long)
    order = (lambda x: [filler, x]) if side == "left" else (lambda x: [x, filler])
    padded, positions, mask = (torch.cat(order(x), dim=1) for x in (tokens, positions, mask))
    real = slice(2, None) if side == "left" else slice(0, 9)
    past = None
    logits = []
    for part in (slice(0, num_past), slice(num_past, None)):
        if not padded[:, part].shape[1]:
            continue
        seen = mask[:, : (part.stop or padded.shape[1])]
        out = model(
            padded[:, part],
            attention_mask=seen,
            position_ids=positions[:, part],
            past_key_values=past,
            use_cache=True,
        )
        past = out.past_key_values
        logits.append(out.logits)
    torch.testing.assert_close(
        torch.cat(logits, dim=1)[:, real], model(tokens).logits, rtol=0, atol=1e-12
    )


def test_positions_are_the_callers(
    model: SinusoidalTransformerForCausalLM, tokens: torch.Tensor
) -> None:
    plain = model(tokens).logits
    jumping = torch.tensor([0, 1, 2, 3, 20, 21, 22, 23, 24]).expand(3, 9)
    jumped = model(tokens, position_ids=jumping).logits
    torch.testing.assert_close(jumped[:, :4], plain[:, :4], rtol=0, atol=1e-12)
    assert (jumped[:, 4:] - plain[:, 4:]).abs().max() > 1e-3


def test_survives_saving(
    model: SinusoidalTransformerForCausalLM, tokens: torch.Tensor, tmp_path: Path
) -> None:
    model.float().save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    register_transformer()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(loaded, SinusoidalTransformerForCausalLM)
    torch.testing.assert_close(loaded(tokens).logits, model(tokens).logits, rtol=0, atol=0)


def test_generates_greedily(model: Any, tokens: torch.Tensor) -> None:
    generated = model.generate(
        tokens, max_new_tokens=5, do_sample=False, pad_token_id=0, attention_mask=tokens * 0 + 1
    )
    expected = tokens
    for _ in range(5):
        following = model(expected).logits[:, -1].argmax(dim=-1, keepdim=True)
        expected = torch.cat([expected, following], dim=1)
    assert torch.equal(generated, expected)


def test_labels_give_the_mean_loss_of_what_is_scored(
    model: SinusoidalTransformerForCausalLM, tokens: torch.Tensor
) -> None:
    labels = tokens.clone()
    labels[:, :4] = -100
    output = model(tokens, labels=labels)
    log_probs = output.logits[:, 3:-1].log_softmax(dim=-1)
    expected = -log_probs.gather(-1, tokens[:, 4:, None]).mean()
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-6, atol=0)


def test_refuses_an_odd_width() -> None:
    with pytest.raises(ValueError, match="hidden_size is 9 with 3 heads"):
        SinusoidalTransformerConfig(hidden_size=9, num_attention_heads=3)
