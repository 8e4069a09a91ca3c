"""Scores equal plain full passes, whatever the family, layout, padding, batch size and dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from language.models import (
    FAMILIES,
    pair_model,
    pair_rows,
    plain_scores,
    ragged_texts,
    score_texts,
)

from secondguess.language.answering import answer
from secondguess.language.checking import check
from secondguess.language.collating import PaddingSide
from secondguess.language.formatting import EncodedRow, FormatError, Layout
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import score, score_pairs, score_tokens, totals

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def ragged_problem(num_prompts: int = 8, responses_each: int = 4) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(5)
    prompts = ragged_texts(rng, num_prompts, 20) * responses_each
    return prompts, ragged_texts(rng, len(prompts), 11)


def items_of(model: PairLanguageModel, prompts: list[str], firsts: list[str], seconds: list[str]):
    formatter = model.formatter
    return [
        (formatter.prompt_tokens(x), formatter.response_tokens(y1), formatter.response_tokens(y2))
        for x, y1, y2 in zip(prompts, firsts, seconds, strict=True)
    ]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize(("layout", "separator"), [("positions", ""), ("padded", "w3 w4")])
def test_equals_plain_passes_with_either_padding_and_any_batch_size(
    family: str, dtype: torch.dtype, layout: Layout, separator: str
) -> None:
    tolerance = TOLERANCES[dtype]
    model = pair_model(family, dtype=dtype, layout=layout, separator=separator)
    prompts, responses = ragged_problem()
    by_batch_size = {
        size: score_texts(model, prompts, responses, batch_size=size) for size in (1, 32)
    }
    items = items_of(model, prompts, responses, responses)
    sides: tuple[PaddingSide, PaddingSide] = ("left", "right")
    for side in sides:
        model.formatter.tokenizer.padding_side = side
        again = score_texts(model, prompts, responses, batch_size=32)
        expected = plain_scores(model, items, side)
        for scored in (*by_batch_size.values(), again):
            for ours, (marginal, conditional) in zip(scored, expected, strict=True):
                np.testing.assert_allclose(ours.log_marginal, marginal, rtol=0, atol=tolerance)
                np.testing.assert_allclose(
                    ours.log_self_conditional, conditional, rtol=0, atol=tolerance
                )
            np.testing.assert_allclose(
                totals(scored).log_marginal, [m.sum() for m, _ in expected], rtol=tolerance
            )
            np.testing.assert_allclose(
                totals(scored).log_self_conditional, [c.sum() for _, c in expected], rtol=tolerance
            )


def test_a_sliding_window_slides_alike() -> None:
    model = pair_model("mistral", dtype=torch.float64)
    prompts, responses = ragged_problem()
    scored = score_texts(model, prompts, responses)
    # Right padding leaves no hole in a row, so a plain pass is the truth.
    expected = plain_scores(model, items_of(model, prompts, responses, responses), "right")
    for ours, (marginal, conditional) in zip(scored, expected, strict=True):
        np.testing.assert_allclose(ours.log_marginal, marginal, rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.log_self_conditional, conditional, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_sum_to_totals_and_cheating_is_their_difference(family: str) -> None:
    scored = score_texts(pair_model(family), *ragged_problem())
    sums = totals(scored)
    for index, each in enumerate(scored):
        assert each.log_marginal.dtype == np.float64
        assert len(each.tokens) == len(each.log_marginal) == len(each.log_self_conditional)
        assert each.log_marginal.sum() == sums.log_marginal[index] == each.scores.log_marginal
        np.testing.assert_allclose(
            each.cheating.sum(), -sums.log_ratio[index], rtol=1e-12, atol=1e-12
        )


def test_pairs_of_different_responses_equal_plain_passes() -> None:
    model = pair_model("qwen2", dtype=torch.float64)
    prompts, firsts = ragged_problem()
    seconds = ragged_texts(np.random.default_rng(6), len(prompts), 11)
    expected = plain_scores(model, items_of(model, prompts, firsts, seconds), "left")
    first, second = score_pairs(model, pair_rows(prompts, firsts, seconds))
    np.testing.assert_allclose(first, [a.sum() for a, _ in expected], rtol=1e-10)
    np.testing.assert_allclose(second, [b.sum() for _, b in expected], rtol=1e-10)


@pytest.mark.parametrize("family", [*FAMILIES, "mistral"])
@pytest.mark.parametrize(("layout", "separator"), [("positions", ""), ("padded", "w3 w4")])
def test_a_first_response_with_several_second_ones_is_scored_alike(
    family: str, layout: Layout, separator: str
) -> None:
    model = pair_model(family, dtype=torch.float64, layout=layout, separator=separator)
    prompts, responses = ragged_problem(num_prompts=3, responses_each=3)
    by_prompt: dict[str, list[str]] = {}
    for prompt, response in zip(prompts, responses, strict=True):
        by_prompt.setdefault(prompt, []).append(response)
    every_pair = [(x, y1, y2) for x, group in by_prompt.items() for y1 in group for y2 in group]
    items = items_of(model, *(list(each) for each in zip(*every_pair, strict=True)))
    expected = plain_scores(model, items, "right")
    for batch_size in (2, 32):
        scored = score_tokens(model, items, batch_size=batch_size)
        for ours, (first, second) in zip(scored, expected, strict=True):
            np.testing.assert_allclose(ours[0], first, rtol=0, atol=1e-10)
            np.testing.assert_allclose(ours[1], second, rtol=0, atol=1e-10)


def test_each_prompt_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pair_model("llama")
    widths: list[tuple[int, int]] = []
    forward = model.network.forward

    def counting(*args: object, **kwargs: torch.Tensor) -> object:
        widths.append(tuple(kwargs["input_ids"].shape))  # pyright: ignore[reportArgumentType]
        return forward(*args, **kwargs)

    monkeypatch.setattr(model.network, "forward", counting)
    responses = ragged_texts(np.random.default_rng(0), 40, 5, shortest=5)
    score_texts(model, ["w1 w2 w3"] * 80, responses * 2, batch_size=20)
    # One pass over the 4 prompt tokens, then 40 distinct responses (y, end, y) in two batches.
    assert widths == [(1, 4), (20, 11), (20, 11)]


@pytest.mark.parametrize("family", [*FAMILIES, "mistral"])
def test_what_all_prompts_begin_with_is_read_once_and_scored_alike(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = pair_model(family, dtype=torch.float64)
    endings = ragged_texts(np.random.default_rng(3), 6, 5)
    prompts = [f"w1 w2 w3 w4 {text}" for text in endings]
    responses = ragged_texts(np.random.default_rng(4), 6, 4)
    expected = plain_scores(model, items_of(model, prompts, responses, responses), "right")
    widths: list[tuple[int, ...]] = []
    forward = model.network.forward

    def watched(*args: object, **kwargs: torch.Tensor) -> object:
        widths.append(tuple(kwargs["input_ids"].shape))
        return forward(*args, **kwargs)

    monkeypatch.setattr(model.network, "forward", watched)
    for ours, (first, second) in zip(score_texts(model, prompts, responses), expected, strict=True):
        np.testing.assert_allclose(ours.log_marginal, first, rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.log_self_conditional, second, rtol=0, atol=1e-10)
    assert widths[0] == (1, 5)  # with the token that begins a text


def test_the_order_of_the_items_does_not_matter() -> None:
    model = pair_model("gpt2")
    prompts, responses = ragged_problem()
    items = items_of(model, prompts, responses, responses)
    forwards = score_tokens(model, items, batch_size=8)
    backwards = score_tokens(model, items[::-1], batch_size=8)[::-1]
    for one, two in zip(forwards, backwards, strict=True):
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[1], two[1])


def test_encoded_rows_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pair_model("llama", separator="w5")
    rows = [{"prompt": "w1 w2", "responses": ["w3", "w4 w5"]}]
    expected = score(model, rows)
    encoded = [model.formatter.encode(row) for row in rows]

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("tokenised again")

    monkeypatch.setattr(model.formatter, "_tokens", refuse)
    assert score(model, encoded) == expected
    first, _ = score_pairs(model, encoded)
    assert first[0] == expected[0][0].log_marginal.sum()
    found = check(model, encoded * 2, rng=np.random.default_rng(0))
    assert found.log_first[0] == pytest.approx(first[0], abs=1e-5)
    prompt = EncodedRow(encoded[0].prompt)
    assert len(answer(model, [prompt], 0.5, rng=np.random.default_rng(0))) == 1


def test_refuses_rows_without_responses_and_empty_batches() -> None:
    with pytest.raises(FormatError, match=r"0 response\(s\); expected at least 1"):
        score(pair_model("gpt2"), [{"prompt": "w1", "responses": []}])
    with pytest.raises(ValueError, match="batch_size is 0"):
        score_texts(pair_model("gpt2"), ["w1"], ["w3"], batch_size=0)


def test_averaging_both_orders_makes_pairs_symmetric_and_no_less_likely() -> None:
    model = pair_model("llama")
    rng = np.random.default_rng(0)
    firsts, seconds = ragged_texts(rng, 6, 4), ragged_texts(rng, 6, 4)
    rows, turned = pair_rows(["w1"] * 6, firsts, seconds), pair_rows(["w1"] * 6, seconds, firsts)
    one, two = (sum(score_pairs(model, each)) for each in (rows, turned))
    both, both_turned = (sum(score_pairs(model, each, both_orders=True)) for each in (rows, turned))
    np.testing.assert_allclose(both, both_turned, atol=1e-6)
    np.testing.assert_allclose(both, np.logaddexp(one, two) - np.log(2), atol=1e-6)
    assert np.all(both >= (one + two) / 2 - 1e-9)
