"""Sampling with scores, and answers that are exact on a language small enough to enumerate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from language.models import (
    FAMILIES,
    network_of,
    pair_model,
    pair_rows,
    ragged_texts,
    score_texts,
)
from language.table_network import SPELLINGS, table_model
from worlds import World, random_world, two_point

from secondguess.language.answering import Strategy, answer
from secondguess.language.drawing import sample_firsts, sample_seconds
from secondguess.language.formatting import Layout
from secondguess.language.generation import Sampling, sample
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import score_pairs, totals
from secondguess.theory.decoding import decode_selective, decode_top1
from secondguess.theory.joints import joint_scores
from secondguess.theory.records import Decision, RestsOn, SelfCheatScores

LAYOUTS: tuple[Layout, ...] = ("positions", "padded")


def prompts_of(count: int) -> list[str]:
    return ragged_texts(np.random.default_rng(2), count // 4, 9) * 4


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", [*FAMILIES, "mistral"])
@pytest.mark.parametrize(
    "sampling", [None, Sampling(temperature=0.7, top_k=9, top_p=0.9, min_probability=0.005)]
)
def test_samples_carry_the_scores_of_the_model_at_temperature_1(
    family: str, layout: Layout, sampling: Sampling | None
) -> None:
    model = pair_model(family, dtype=torch.float64, layout=layout, separator="w5")
    prompts = prompts_of(24)
    drawn = sample(model, prompts, rng=np.random.default_rng(0), sampling=sampling, batch_size=10)
    scored = score_texts(model, prompts, [list(each.tokens) for each in drawn])
    if sampling is None:
        assert len({len(each.tokens) for each in drawn}) > 1
    for ours, expected in zip(drawn, scored, strict=True):
        assert ours == expected
        assert ours.text == expected.text
        np.testing.assert_allclose(ours.log_marginal, expected.log_marginal, rtol=0, atol=1e-10)
        np.testing.assert_allclose(
            ours.log_self_conditional, expected.log_self_conditional, rtol=0, atol=1e-10
        )


def test_the_batch_size_does_not_change_the_samples() -> None:
    model = pair_model("qwen2", dtype=torch.float64)
    prompts = prompts_of(24)
    one, many = (
        sample(model, prompts, rng=np.random.default_rng(0), batch_size=size) for size in (1, 24)
    )
    assert one == many


@pytest.mark.parametrize("family", [*FAMILIES, "mistral"])
def test_draws_that_share_their_beginnings_are_those_that_do_not(family: str) -> None:
    model = pair_model(family, dtype=torch.float64)
    prompts = [p for p in ragged_texts(np.random.default_rng(1), 3, 12) for _ in range(6)]
    alone = sample(model, prompts, rng=np.random.default_rng(2))
    for batch_size in (4, 32):
        shared = sample_firsts(model, prompts, rng=np.random.default_rng(2), batch_size=batch_size)
        assert [each.tokens for each in shared] == [each.tokens for each in alone]
        assert [each.cut_off for each in shared] == [each.cut_off for each in alone]
        for ours, theirs in zip(shared, alone, strict=True):
            np.testing.assert_allclose(ours.log_probs, theirs.log_marginal, rtol=0, atol=1e-10)


def test_greedy_sampling_is_what_generate_gives() -> None:
    network: Any = network_of("llama")
    model = pair_model("llama")
    prompts = ["w1 w2 w3", "w4 w5 w6"]
    drawn = sample(model, prompts, rng=np.random.default_rng(0), sampling=Sampling(top_k=1))
    ids = torch.tensor([model.formatter.prompt_tokens(prompt) for prompt in prompts])
    generated = network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=11,
        eos_token_id=0,
        pad_token_id=0,
    )[:, ids.shape[1] :].tolist()
    for ours, theirs in zip(drawn, generated, strict=True):
        kept = theirs[: theirs.index(0)] if 0 in theirs else theirs
        assert list(ours.tokens[:-1]) == kept


def test_no_token_below_the_cut_off_and_no_empty_response() -> None:
    model = pair_model("gpt2", response_length=4)
    plain, cut = (
        sample(model, ["w1"] * 200, rng=np.random.default_rng(0), sampling=sampling, batch_size=200)
        for sampling in (Sampling(), Sampling(min_probability=0.02))
    )
    for drawn in (plain, cut):
        assert {len(each.tokens) for each in drawn} <= {2, 3, 4}
    # The second token is the first that is chosen freely: behind the prompt the end is not allowed.
    lowest = [min(each.log_marginal[1] for each in drawn) for drawn in (plain, cut)]
    assert lowest[0] < np.log(0.02) <= lowest[1]


@pytest.mark.statistical
def test_samples_follow_the_models_distribution() -> None:
    model = table_model(two_point(), "positions")
    num_samples = 4000
    drawn = sample(
        model, ["x0"] * num_samples, rng=np.random.default_rng(0), batch_size=num_samples
    )
    counts = Counter(each.text for each in drawn)
    expected = two_point().calibrated_joint()[0].sum(axis=1)
    for text, prob in zip(SPELLINGS, expected, strict=False):
        # Six standard deviations: false alarms below 1e-8 for the three responses together.
        assert abs(counts[text] - num_samples * prob) < 6 * np.sqrt(num_samples * prob)
    assert set(counts) == {text for text, prob in zip(SPELLINGS, expected, strict=False) if prob}


@pytest.mark.statistical
@pytest.mark.parametrize("layout", LAYOUTS)
def test_second_samples_follow_the_conditional_distribution(layout: Layout) -> None:
    """Six standard deviations of each of three counts: false alarms below 1e-8."""
    world = two_point()
    model = table_model(world, layout)
    joint = world.calibrated_joint()[0]
    num_samples = 3000
    rows = [{"prompt": "x0", "responses": [SPELLINGS[1]]}] * num_samples
    drawn = sample_seconds(model, rows, rng=np.random.default_rng(0), batch_size=num_samples)
    expected = joint[1] / joint[1].sum()
    counts = Counter(model.formatter.text(tokens) for tokens, _ in drawn)
    for text, prob in zip(SPELLINGS, expected, strict=False):
        assert abs(counts[text] - num_samples * prob) <= 6 * np.sqrt(num_samples * prob)
    for tokens, log_probs in drawn[:50]:
        index = SPELLINGS.index(model.formatter.text(tokens))
        assert log_probs.sum() == pytest.approx(np.log(expected[index]), abs=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_second_samples_carry_their_log_probabilities(family: str, layout: Layout) -> None:
    model = pair_model(family, dtype=torch.float64, layout=layout, separator="w5")
    prompts = prompts_of(12)
    firsts = ragged_texts(np.random.default_rng(7), 12, 11)
    rows = [{"prompt": x, "responses": [y]} for x, y in zip(prompts, firsts, strict=True)]
    drawn = sample_seconds(model, rows, rng=np.random.default_rng(0), batch_size=5)
    pairs = pair_rows(prompts, firsts, [list(tokens) for tokens, _ in drawn])
    _, expected = score_pairs(model, pairs)
    np.testing.assert_allclose([each.sum() for _, each in drawn], expected, rtol=0, atol=1e-9)


def test_what_did_not_end_by_itself_says_so() -> None:
    model = pair_model("gpt2", response_length=4)
    drawn = sample(model, ["w1"] * 300, rng=np.random.default_rng(0), batch_size=300)
    longest = [each for each in drawn if len(each.tokens) == 4]
    assert not any(each.cut_off for each in drawn if len(each.tokens) < 4)
    # Behind three words this model ends a response now and then, so both kinds are there.
    assert {each.cut_off for each in longest} == {True, False}
    decisions = answer(model, ["w1"] * 300, 0.99, rng=np.random.default_rng(0), batch_size=300)
    assert [each.cut_off for each in decisions if each.response] == [
        each.response.cut_off for each in decisions if each.response
    ]
    assert any(each.cut_off for each in decisions)


def some_worlds() -> list[World]:
    rng = np.random.default_rng(11)
    random = [
        random_world(rng, num_inputs=6, num_classes=5, num_groups=3, sparsity=sparsity)
        for sparsity in (0.0, 0.5)
    ]
    return [two_point(), *random]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("index", range(3))
def test_scores_of_an_enumerable_language_equal_the_table(index: int, layout: Layout) -> None:
    world = some_worlds()[index]
    model = table_model(world, layout)
    expected = joint_scores(world.calibrated_joint())
    spelled = SPELLINGS[: world.num_classes]
    for row in range(len(world.input_probs)):
        possible = np.isfinite(expected.log_marginal[row])
        texts = [text for text, flag in zip(spelled, possible, strict=True) if flag]
        found = totals(score_texts(model, [f"x{row}"] * len(texts), texts))
        for name in ("epistemic_confidence", "epistemic_variance"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected[row], name)[possible], rtol=0, atol=1e-12
            )


@pytest.mark.parametrize("strategy", ["selective", "rejection", "top1"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("index", range(3))
def test_answers_equal_the_theory_layers(index: int, layout: Layout, strategy: Strategy) -> None:
    """The same decoder over the same samples, scored by the table instead of the model."""
    world = some_worlds()[index]
    model = table_model(world, layout)
    table = joint_scores(world.calibrated_joint())
    rate = float(np.quantile(table.confidence_gap()[np.isfinite(table.log_marginal)], 0.2)) + 1e-9
    num_candidates = 6
    prompts = [f"x{row}" for row in range(len(world.input_probs))] * 4

    rng = np.random.default_rng(3)

    def draw(rows: Sequence[int]) -> tuple[list[str], SelfCheatScores]:
        texts = [each.text for each in sample(model, [prompts[row] for row in rows], rng=rng)]
        inputs = [int(prompts[row][1:]) for row in rows]
        return texts, table[inputs, [SPELLINGS.index(text) for text in texts]]

    rows = range(len(prompts))
    expected: list[Decision[str]] = []
    if strategy == "selective":
        expected = decode_selective(*draw(rows), max_hallucination_rate=rate)
    elif strategy == "top1":
        texts, scores = draw(np.repeat(rows, num_candidates).tolist())
        for start in range(0, len(texts), num_candidates):
            piece = slice(start, start + num_candidates)
            expected.append(decode_top1(texts[piece], scores[piece], max_hallucination_rate=rate))
    else:
        expected = [Decision(None, None, None, None, num_candidates)] * len(prompts)
        for attempt in range(1, num_candidates + 1):
            waiting = [row for row in rows if expected[row].abstained]
            kept = decode_selective(*draw(waiting), max_hallucination_rate=rate)
            for row, decision in zip(waiting, kept, strict=True):
                if not decision.abstained:
                    expected[row] = replace(decision, num_candidates=attempt)
    found = answer(
        model,
        prompts,
        rate,
        strategy=strategy,
        num_candidates=num_candidates,
        rng=np.random.default_rng(3),
    )
    assert {decision.abstained for decision in found} == {False, True}
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.abstained == theirs.abstained
        assert ours.num_candidates == theirs.num_candidates
        if ours.response is not None and theirs.response is not None:
            assert ours.response.text == theirs.response
            assert ours.gap == pytest.approx(theirs.gap, rel=0, abs=1e-12)
            assert ours.bound is not None
            assert ours.bound.rests_on is RestsOn.CALIBRATED_PAIRS


def test_answered_rows_hallucinate_no_more_than_their_bounds_say() -> None:
    """Theorem 4.5 by enumeration: the world is finite, so the rate is exact, not estimated."""
    world = two_point()
    model = table_model(world, "positions")
    joint, rate = world.calibrated_joint(), 0.5
    answered = made_up = bounds = 0.0
    for row, input_prob in enumerate(world.input_probs):
        marginal = joint[row].sum(axis=1)
        texts = [text for text, p in zip(SPELLINGS, marginal, strict=False) if p > 0]
        gaps = totals(score_texts(model, [f"x{row}"] * len(texts), texts)).confidence_gap()
        for text, gap in zip(texts, gaps, strict=True):
            index = SPELLINGS.index(text)
            if gap <= rate:
                weight = input_prob * marginal[index]
                answered += weight
                made_up += weight * (world.true_probs[row, index] == 0)
                bounds += weight * gap
    assert 0 < made_up / answered <= bounds / answered + 1e-12
    # In this world the bound is tight.
    assert made_up / answered == pytest.approx(bounds / answered, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "temperature is 0"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_probability": 0.0}, r"min_probability is 0\.0"),
    ],
)
def test_refuses_impossible_sampling(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


def test_refuses_an_unknown_strategy() -> None:
    model: PairLanguageModel = pair_model("gpt2")
    with pytest.raises(ValueError, match=r"strategy is 'beam'; expected one of selective"):
        answer(model, ["w1"], 0.1, strategy="beam", rng=np.random.default_rng(0))  # pyright: ignore
