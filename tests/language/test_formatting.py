"""Pairs as tokens: what is laid out where, what is scored, what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from secondguess.language.collating import NOT_SCORED, PaddingSide, PairCollator, collate_pairs
from secondguess.language.formatting import (
    EncodedRow,
    FormatError,
    Layout,
    PairFormat,
    PairFormatter,
)
from secondguess.language.tokenizer import word_tokenizer

WORDS = ["<SEP>", "say", "it", "is", "one", "two", "three"]
LAYOUTS: tuple[Layout, ...] = ("positions", "padded")


def formatter_of(
    layout: Layout = "positions", separator: str = "", context_length: int | None = None
) -> PairFormatter:
    config = PairFormat(response_length=5, layout=layout, separator=separator)
    return PairFormatter(word_tokenizer(WORDS), config, context_length=context_length)


@pytest.mark.parametrize("separator", ["", "<SEP>"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_second_response_starts_where_it_always_starts(layout: Layout, separator: str) -> None:
    formatter = formatter_of(layout, separator)
    prompt = formatter.prompt_tokens("say it")
    second = formatter.response_tokens("two")
    starts, predicted_from = set(), set()
    for text in ("one", "it is one", "it is one two"):
        pair = formatter.lay_out(prompt, formatter.response_tokens(text), second)
        index = len(pair.tokens) - len(second)
        assert tuple(pair.tokens[index:]) == second
        starts.add(pair.positions[index])
        predicted_from.add(pair.positions[index - 1])
        assert np.all(np.diff(pair.positions) > 0)
    shift = 5 + len(formatter.separator)
    assert starts == {len(prompt) + shift}
    assert predicted_from == {len(prompt) + shift - 1}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_responses_and_their_ends_are_scored(layout: Layout) -> None:
    formatter = formatter_of(layout, "<SEP>")
    row = formatter.encode({"prompt": "say", "responses": ["it is one", "two"]})
    pair = formatter.lay_out(row.prompt, *row.responses)
    scored = [token for token, flag in zip(pair.tokens, pair.scored, strict=True) if flag]
    assert tuple(scored) == row.responses[0] + row.responses[1]


def test_the_default_layout_adds_no_token_and_the_padded_one_fills_up() -> None:
    for layout, num_tokens in zip(LAYOUTS, (2 + 2 + 4, 2 + 5 + 4), strict=True):
        formatter = formatter_of(layout)
        row = formatter.encode({"prompt": "say", "responses": ["two", "it is one"]})
        assert len(formatter.lay_out(row.prompt, *row.responses).tokens) == num_tokens


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_neither_seen_nor_scored(side: PaddingSide) -> None:
    formatter = formatter_of()
    rows = [
        formatter.encode({"prompt": "say", "responses": ["one", "two"]}),
        formatter.encode({"prompt": "say it", "responses": ["it is one", "it is two"]}),
    ]
    pairs = [formatter.lay_out(row.prompt, *row.responses) for row in rows]
    batch = collate_pairs(pairs, end=formatter.end, padding_side=side)
    short = len(pairs[0].tokens)
    real = slice(-short, None) if side == "left" else slice(0, short)
    assert batch["input_ids"][0, real].tolist() == pairs[0].tokens
    assert batch["position_ids"][0, real].tolist() == pairs[0].positions
    assert batch["attention_mask"].sum(dim=1).tolist() == [len(pair.tokens) for pair in pairs]
    assert (batch["labels"][batch["attention_mask"] == 0] == NOT_SCORED).all()


def test_the_second_response_sees_the_first_although_positions_jump() -> None:
    """`transformers` takes a jump for the border of packed sequences unless it gets a mask."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=16, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    model = GPT2LMHeadModel(config).eval()
    formatter = formatter_of()
    prompt, second = formatter.prompt_tokens("say"), formatter.response_tokens("two")
    firsts = [formatter.response_tokens(text) for text in ("one", "three")]
    pairs = [formatter.lay_out(prompt, first, second) for first in firsts]
    batch = collate_pairs(pairs, end=formatter.end)
    last = model(**batch).logits[:, -2]
    assert (last[0] - last[1]).abs().max() > 1e-4


def test_draws_every_ordered_pair_equally_often() -> None:
    formatter = formatter_of()
    collator = PairCollator(formatter)
    row = formatter.encode({"prompt": "say", "responses": ["one", "two", "three"]})
    batch = collator.collate([row] * 6000, np.random.default_rng(0))
    counts = Counter(map(tuple, batch["input_ids"][:, [2, 4]].tolist()))
    assert len(counts) == 6
    # Six standard deviations of a count: false alarms below 2e-8.
    assert max(abs(count - 1000) for count in counts.values()) < 6 * np.sqrt(6000 * 5 / 36)


def draws(loader: DataLoader[Any]) -> list[int]:
    return [int(first) for batch in loader for first in batch["input_ids"][:, 2]]


# torch advises against more workers than cores; what they draw does not depend on it.
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_epoch_draws_anew_also_in_workers(num_workers: int) -> None:
    rows = [{"prompt": "say", "responses": ["one", "two", "three"]}] * 64
    loader = DataLoader(
        rows,  # pyright: ignore[reportArgumentType]
        batch_size=8,
        collate_fn=PairCollator(formatter_of()),
        num_workers=num_workers,
        generator=torch.Generator().manual_seed(0),
    )
    first, second = draws(loader), draws(loader)
    assert first != second
    assert first[:32] != first[32:]


def test_the_same_seed_gives_the_same_batches() -> None:
    rows = [{"prompt": "say", "responses": ["one", "two", "three"]}] * 8
    one, two = (PairCollator(formatter_of(), seed=3) for _ in range(2))
    for _ in range(3):
        assert torch.equal(one(rows)["input_ids"], two(rows)["input_ids"])


def test_tokens_pass_as_they_are() -> None:
    formatter = formatter_of()
    text = formatter.encode({"prompt": "say it", "responses": ["one", "two"]})
    tokens = {"prompt": list(text.prompt), "responses": [list(each) for each in text.responses]}
    assert formatter.encode(tokens) == text
    assert isinstance(text, EncodedRow)
    assert formatter.text(text.responses[0]) == "one"


def test_chat_messages_go_through_the_template() -> None:
    tokenizer = word_tokenizer([*WORDS, "user:", "assistant:"])
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    formatter = PairFormatter(tokenizer, PairFormat(response_length=4))
    tokens = formatter.prompt_tokens([{"role": "user", "content": "say one"}])
    assert tokenizer.decode(list(tokens)) == "user: say one assistant:"


def test_the_format_is_saved_beside_the_model(tmp_path: Path) -> None:
    config = PairFormat(response_length=7, layout="padded", separator="<SEP>")
    config.save(tmp_path)
    assert PairFormat.load(tmp_path) == config
    with pytest.raises(ValueError, match="was not trained on pairs"):
        PairFormat.load(tmp_path / "elsewhere")
    (tmp_path / "pair_format.json").write_text(
        '{"kind": "secondguess pair format", "format": 1, "response_length": 7, "colour": 1}'
    )
    with pytest.raises(ValueError, match=r"pair_format.json has the unknown entry 'colour'"):
        PairFormat.load(tmp_path)


BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "say", "responses": ["one"]}, r"has 1 response\(s\); expected at least 2"),
    ({"prompt": "say", "responses": ["one", ""]}, "a response is empty"),
    ({"prompt": "say", "responses": "one"}, "expected a list of responses"),
    ({"prompt": "say", "responses": ["one", 3.5]}, "a response is 3.5; expected text"),
    ({"prompt": "say", "responses": ["one", "it is it is it"]}, "has 6 tokens with its end"),
    ({"prompt": "say", "responses": ["one", "one _ two"]}, "end token '_' before its end"),
    ({"prompt": "say", "responses": ["one", "four"]}, "cannot encode 'four'"),
    ({"prompt": "say say say say", "responses": ["one", "two"]}, "has 5 tokens.*at most 4"),
    ({"prompt": 3, "responses": ["one", "two"]}, "the prompt is 3"),
    ({"prompt": [], "responses": ["one", "two"]}, "the prompt is empty"),
    ({"prompt": [{"role": "user", "content": "say"}], "responses": ["one", "two"]}, "no chat temp"),
    ({"labels": 1}, r"keys \['labels'\]; expected prompt and responses.*remove_unused_columns"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_refuses_what_cannot_become_a_pair(row: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        formatter_of(context_length=14).encode(row)


def test_refuses_a_context_without_room_and_a_tokenizer_without_end() -> None:
    with pytest.raises(ValueError, match="leave no room for a prompt in the model's context of 10"):
        formatter_of(context_length=10)
    tokenizer = word_tokenizer(WORDS)
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="no end token"):
        PairFormatter(tokenizer, PairFormat(response_length=4))


def test_refuses_an_impossible_format() -> None:
    with pytest.raises(ValueError, match="response_length is 1"):
        PairFormat(response_length=1)
    with pytest.raises(ValueError, match="layout is 'pad'"):
        PairFormat(response_length=3, layout="pad")  # pyright: ignore[reportArgumentType]


def test_the_word_tokenizer_survives_saving(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(WORDS)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded("say one").input_ids == tokenizer("say one").input_ids
    assert loaded.eos_token_id == tokenizer.eos_token_id == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "a"], "'a' twice"),
        (["_"], "'_' twice"),
        (["a b"], "without white space"),
        ([""], "holds ''"),
    ],
)
def test_the_word_tokenizer_refuses_bad_vocabularies(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        word_tokenizer(words)
