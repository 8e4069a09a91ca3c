"""Meanings: a calibrated pair predictor stays calibrated under any function, and sums are exact."""

from __future__ import annotations

import itertools
from collections.abc import Hashable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from language.table_network import SPELLINGS, table_model
from worlds import World, random_world, two_point, worlds

from secondguess.language.answering import answer
from secondguess.language.examples import tiny_pair_model
from secondguess.language.generation import Sampling
from secondguess.language.meaning_functions import by_pattern, normalised
from secondguess.language.meaning_sums import Draws
from secondguess.language.meanings import score_meanings

VOWELS = {"a": "short", "b a": "short", "b b a": "long", "b b b": "long", "a b b a": "long"}


def push_forward(table: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Sums over wordings, on the last two axes or on the last one of `(n, K)`."""
    indicator = (names[:, None] == np.unique(names)).astype(float)
    if table.ndim == 2:
        return table @ indicator
    return np.einsum("nij,im,jk->nmk", table, indicator, indicator)


@given(worlds(), st.data())
def test_a_calibrated_predictor_pushed_through_any_function_is_calibrated(
    world: World, data: st.DataObject
) -> None:
    names = np.array(
        data.draw(
            st.lists(st.integers(0, 2), min_size=world.num_classes, max_size=world.num_classes)
        )
    )
    meanings = World(world.input_probs, push_forward(world.true_probs, names), world.groups)
    np.testing.assert_allclose(
        push_forward(world.calibrated_joint(), names), meanings.calibrated_joint(), atol=1e-12
    )


def test_where_every_wording_was_drawn_the_sums_are_exact() -> None:
    world = random_world(np.random.default_rng(3), num_inputs=4, num_classes=5, num_groups=2)
    joint = world.calibrated_joint()
    names = np.array([VOWELS[each] for each in SPELLINGS])
    prompts = [f"x{index}" for index in range(len(joint))]
    scored = score_meanings(
        table_model(world, "positions"),
        prompts,
        VOWELS.__getitem__,
        rng=np.random.default_rng(0),
        num_samples=60,
    )
    order = list(np.unique(names))
    for index, meanings in enumerate(scored):
        pushed = push_forward(joint[index : index + 1], names)[0]
        for each in meanings:
            place = order.index(str(each.meaning))
            marginal, both = pushed.sum(axis=1)[place], pushed[place, place]
            assert np.exp(each.scores.log_marginal) == pytest.approx(marginal, rel=1e-6)
            confidence = marginal**2 / both
            assert each.scores.epistemic_confidence == pytest.approx(confidence, rel=1e-6)
            assert each.cautious.epistemic_confidence == pytest.approx(confidence, rel=1e-6)
        assert sum(each.num_draws for each in meanings) == 60
        # Two responses per draw, each with one word or more and its end.
        assert sum(each.num_tokens for each in meanings) >= 60 * 2 * 2


def test_with_a_generator_of_its_own_a_prompt_is_judged_as_if_alone() -> None:
    world = random_world(np.random.default_rng(3), num_inputs=4, num_classes=5, num_groups=2)
    model = table_model(world, "positions")
    prompts = ["x0", "x2", "x1"]

    def judged(*places: int) -> list[list[tuple[object, ...]]]:
        scored = score_meanings(
            model,
            [prompts[place] for place in places],
            VOWELS.__getitem__,
            rng=[np.random.default_rng(place) for place in places],
            num_samples=7,
        )
        return [
            [
                (each.meaning, each.num_draws, round(float(each.scores.log_marginal), 5))
                for each in meanings
            ]
            for meanings in scored
        ]

    assert judged(0, 1, 2) == [*judged(0), *judged(1), *judged(2)]


MEANING_OF: dict[tuple[int, ...], Hashable] = {(0,): "p", (1,): "p", (2,): "q"}


def _all_draws(joint: np.ndarray, num_draws: int):
    """Every outcome of a few draws of a pair, with its probability."""
    pairs = list(itertools.product(range(3), repeat=2))
    for chosen in itertools.product(pairs, repeat=num_draws):
        chance = float(np.prod([joint[pair] for pair in chosen]))
        yield chance, Draws.of([((a,), (b,)) for a, b in chosen], MEANING_OF.__getitem__)


def test_estimates_are_unbiased_given_the_draw_that_named_the_meaning() -> None:
    """Over all outcomes of three draws: whatever was drawn up to then, the rest averages out."""
    joint = random_world(np.random.default_rng(0), num_classes=3).calibrated_joint()[0]
    marginal = joint.sum(axis=1)

    def probs(one: tuple[int, ...], two: tuple[int, ...]) -> np.ndarray:
        return np.array([marginal[one[0]], joint[one[0], two[0]] / marginal[one[0]]])

    truth = {"p": (marginal[:2].sum(), joint[:2, :2].sum()), "q": (marginal[2], joint[2, 2])}
    totals: dict[tuple[str, tuple[object, ...]], np.ndarray] = {}
    for chance, draws in _all_draws(joint, 3):
        for name, sums in draws.summed(probs, failure_rate=0.1).items():
            named = [first for first, _ in draws.meanings].index(name)
            until_then = (str(name), tuple(draws.pairs[: named + 1]))
            found = chance * np.array([1.0, sums.probability, sums.joint])
            totals[until_then] = totals.get(until_then, np.zeros(3)) + found
            exact_least = sum(marginal[t[0]] for t in draws.drawn[name])
            assert exact_least <= truth[str(name)][0] + 1e-12
            unseen = 1 - sum(marginal[t[0]] for g in draws.drawn.values() for t in g)
            seen = [t[0] for t in draws.drawn[name]]
            assert joint[np.ix_(seen, seen)].sum() + 2 * unseen >= truth[str(name)][1] - 1e-12
    checked = 0
    for (name, until_then), (chance, *sums) in totals.items():
        if len(until_then) < 3:  # behind the last draw there is none to average over
            np.testing.assert_allclose(np.array(sums) / chance, truth[name], atol=1e-12)
            checked += 1
    # Nine first draws; behind each of them, those that name the other meaning.
    assert checked == 9 + 6 * 3 + 3 * 6


def test_only_the_meaning_drawn_first_and_those_asked_for_are_judged() -> None:
    world = random_world(np.random.default_rng(3), num_inputs=4, num_classes=5, num_groups=2)
    model = table_model(world, "positions")
    prompts = [f"x{index}" for index in range(4)]

    def judged(others: list[tuple[str, ...]] | None) -> list[dict[object, float]]:
        scored = score_meanings(
            model, prompts, VOWELS.__getitem__, rng=np.random.default_rng(0), num_samples=60,
            others=others,
        )  # fmt: skip
        return [{e.meaning: float(e.scores.epistemic_confidence) for e in each} for each in scored]

    everything, first_only, both = (judged(each) for each in (None, [()] * 4, [("long",)] * 4))
    for all_of_them, first, some in zip(everything, first_only, both, strict=True):
        assert list(first) == list(all_of_them)[:1]
        assert set(some) == {*first, "long"}
        for found in (first, some):
            for name, confidence in found.items():
                assert confidence == pytest.approx(all_of_them[name], rel=1e-6)


@pytest.mark.statistical
def test_cautious_scores_of_meanings_without_repeated_wordings_hold() -> None:
    """300 prompts at a failure rate of 0.1; more than 60 failures have a chance below 1e-7."""
    rng = np.random.default_rng(5)
    num_wordings, failures = 5000, 0
    for _ in range(300):
        # The truth has one of two meanings; the model does not know which, 3 to 1.
        sure = rng.dirichlet([3.0, 1.0])
        meaning = rng.choice(2, p=sure, size=60)
        pairs = [
            ((int(m), int(a)), (int(m), int(b)))
            for m, a, b in zip(meaning, *rng.integers(num_wordings, size=(2, 60)), strict=True)
        ]
        draws = Draws.of(pairs, lambda tokens: tokens[0])

        def probs(
            one: tuple[int, ...], two: tuple[int, ...], sure: np.ndarray = sure
        ) -> np.ndarray:
            return np.array([sure[one[0]] / num_wordings, 1 / num_wordings])

        for name, sums in draws.summed(probs, failure_rate=0.1).items():
            true_confidence = sure[int(str(name))]  # p(m)^2 / p(m, m), and p(m, m) = p(m)
            found = float(sums.scores(cautious=True).epistemic_confidence)
            if found > true_confidence + 1e-12:
                failures += 1
                break
    assert failures <= 60


def test_answers_are_judged_by_their_meaning() -> None:
    world = two_point()
    model = table_model(world, "positions")
    first_word = by_pattern(r"^(\w)")
    decisions = answer(
        model,
        ["x0", "x3"],
        0.3,
        rng=np.random.default_rng(0),
        meaning=first_word,
        num_candidates=40,
        strategy="top1",
    )
    # Responses 'a', 'b a', 'b b a': b means the second or the third. The model of group 1 knows
    # that both 'a' and 'b' are possible; that of group 0 knows it of 'b' but not of 'a'.
    assert [decision.response and decision.response.meaning for decision in decisions] == ["b", "a"]
    assert all(decision.bound is not None for decision in decisions)
    with pytest.raises(ValueError, match="together with meaning"):
        answer(
            model, ["x0"], 0.3, rng=np.random.default_rng(0), meaning=first_word,
            sampling=Sampling(top_k=1),
        )  # fmt: skip


def test_an_unknown_strategy_is_refused_with_meanings_too() -> None:
    with pytest.raises(ValueError, match="strategy"):
        answer(
            tiny_pair_model(), ["flip"], 0.3, rng=np.random.default_rng(0), meaning=normalised,
            strategy="best",  # pyright: ignore[reportArgumentType,reportCallIssue]
        )  # fmt: skip
