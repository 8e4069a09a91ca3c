"""Beam search, and rejection without a limit, on languages small enough to enumerate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from language.models import pair_model, score_texts
from language.table_network import SPELLINGS, table_model
from worlds import World, random_world

from secondguess.language.answering import Strategy, answer
from secondguess.language.beams import beam_search
from secondguess.language.examples import tiny_pair_model
from secondguess.language.formatting import Layout
from secondguess.language.generation import Sampling, sample
from secondguess.language.scoring import totals
from secondguess.theory.joints import joint_scores

LAYOUTS: tuple[Layout, ...] = ("positions", "padded")


def world() -> World:
    rng = np.random.default_rng(11)
    return random_world(rng, num_inputs=6, num_classes=5, num_groups=3, sparsity=0.5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_with_enough_beams_nothing_is_missed(layout: Layout) -> None:
    table = joint_scores(world().calibrated_joint())
    prompts = [f"x{row}" for row in range(6)]
    for row, found in enumerate(beam_search(table_model(world(), layout), prompts, num_beams=20)):
        log_marginal = table.log_marginal[row]
        order = np.argsort(-log_marginal)[: np.isfinite(log_marginal).sum()]
        assert [each.text for each in found] == [SPELLINGS[index] for index in order]
        np.testing.assert_allclose(
            totals(found).log_marginal, log_marginal[order], rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(
            totals(found).log_self_conditional,
            table.log_self_conditional[row][order],
            rtol=0,
            atol=1e-12,
        )


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_one_beam_is_at_least_as_probable_as_the_greedy_response(family: str) -> None:
    """It passes the greedy response on its way."""
    model = pair_model(family, response_length=6)
    prompts = ["w1", "w2 w3 w4", "w1"]
    greedy = sample(model, prompts, rng=np.random.default_rng(0), sampling=Sampling(top_k=1))
    found = [one for [one] in beam_search(model, prompts, num_beams=1)]
    assert found[0] == found[2]
    assert all(totals(found).log_marginal >= totals(greedy).log_marginal - 1e-5)


def test_a_real_network_is_searched_completely_too() -> None:
    model = tiny_pair_model()
    words = [(first,) for first in range(1, 5)]
    words += [(*one, second) for one in words for second in range(1, 5)]
    every = score_texts(model, ["flip"] * len(words), [[*each, 0] for each in words])
    expected = sorted(every, key=lambda each: -float(each.scores.log_marginal))
    [found] = beam_search(model, ["flip"], num_beams=len(words))
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert not any(each.cut_off for each in found if len(each.tokens) == 2)
    [best] = beam_search(model, ["flip"], num_beams=4)
    assert len(best) == 4
    assert set(best) <= set(every)


def test_beams_make_both_decoders_exact() -> None:
    """The best of all responses, judged, and the argmax over S, which samples only approximate."""
    table = joint_scores(world().calibrated_joint())
    possible = np.isfinite(table.log_marginal)
    gaps = np.where(possible, table.confidence_gap(), np.inf)
    rate = float(np.quantile(gaps[possible], 0.2)) + 1e-9
    good = gaps <= rate
    best = np.arange(gaps.shape[1]) == table.log_marginal.argmax(axis=1)[:, None]
    judged: dict[Strategy, Any] = {"selective": good & best, "top1": good}
    for strategy, eligible in judged.items():
        decisions = answer(
            table_model(world(), "positions"),
            [f"x{row}" for row in range(6)],
            rate,
            strategy=strategy,
            beams=True,
            num_candidates=20,
            rng=np.random.default_rng(0),
        )
        assert {decision.abstained for decision in decisions} == {False, True}
        for row, decision in enumerate(decisions):
            log_marginal = np.where(eligible[row], table.log_marginal[row], -np.inf)
            expected = SPELLINGS[int(log_marginal.argmax())] if eligible[row].any() else None
            assert (decision.response.text if decision.response else None) == expected


def test_rejection_without_a_limit_ends_with_an_answer_and_tells_its_cost() -> None:
    """Its cost is geometric; here it is what a limit that nobody reaches gives, draw for draw."""
    table = joint_scores(world().calibrated_joint())
    shares = np.exp(table.log_marginal) * (table.confidence_gap() <= 0.4)
    row = int(np.argmin(np.where(shares.sum(axis=1) > 0, shares.sum(axis=1), np.inf)))
    model, prompts = table_model(world(), "positions"), [f"x{row}"] * 100
    unlimited, limited = (
        answer(
            model,
            prompts,
            0.4,
            strategy="rejection",
            num_candidates=limit,
            rng=np.random.default_rng(0),
        )
        for limit in (None, 10_000)
    )
    assert not any(each.abstained for each in unlimited)
    assert [each.num_candidates for each in unlimited] == [each.num_candidates for each in limited]
    assert max(each.num_candidates for each in unlimited) > 1
    # A mean of 100 geometric numbers, five of its standard errors: false alarm below 1e-4.
    chance = float(shares[row].sum())
    mean = np.mean([each.num_candidates for each in unlimited])
    assert abs(mean - 1 / chance) < 5 * np.sqrt(1 - chance) / chance / np.sqrt(100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_candidates": None}, "num_candidates is None; expected a number"),
        ({"strategy": "top1", "num_candidates": None}, "num_candidates is None"),
        ({"beams": True, "strategy": "rejection"}, "beams is given together with"),
        ({"beams": True, "sampling": Sampling(top_k=2)}, "expected 'selective' or 'top1' alone"),
        ({"beams": True, "meaning": str.lower}, "expected 'selective' or 'top1' alone"),
    ],
)
def test_refuses_what_it_cannot_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        answer(pair_model("gpt2"), ["w1"], 0.1, rng=np.random.default_rng(0), **options)
