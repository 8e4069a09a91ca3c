"""Rivals of answers: exact on a model whose distributions are a table."""

from __future__ import annotations

import numpy as np
import pytest
from language.table_network import SPELLINGS, table_model
from worlds import World, random_world

from secondguess.baselines.answers import (
    RIVALS,
    Asked,
    log_probability,
    mutual_information,
    p_true,
    semantic_entropy,
    verbalised,
)
from secondguess.baselines.answers.asking import continuation_log_probs
from secondguess.language.examples import tiny_pair_model
from secondguess.language.model import PairLanguageModel

QUESTION = "x0"
ANSWERS: list[str] = list(SPELLINGS)


def world() -> World:
    """Input 0 is the question; input 1 + i is the prompt that tells answer i."""
    return random_world(np.random.default_rng(5), num_inputs=6, num_classes=5, num_groups=6)


def told(question: str, answer: str) -> str:
    assert question == QUESTION
    return f"x{1 + ANSWERS.index(answer)}"


@pytest.fixture(scope="module")
def model() -> PairLanguageModel:
    return table_model(world(), "positions")


@pytest.fixture(scope="module")
def probs() -> np.ndarray:
    """`(prompts, answers)`: p(y|x)."""
    return world().group_moments()[0]


def test_log_probabilities_are_those_of_the_table(
    model: PairLanguageModel, probs: np.ndarray
) -> None:
    asked = Asked([QUESTION] * 5, ANSWERS, [["a"]] * 5)
    total = log_probability.total(model, asked)
    np.testing.assert_allclose(total.values, np.log(probs[0]), atol=1e-6)
    lengths = np.array([1 + len(text.split()) for text in ANSWERS])
    mean = log_probability.mean_per_token(model, asked)
    np.testing.assert_allclose(mean.values, np.log(probs[0]) / lengths, atol=1e-6)


def test_beginnings_are_sums_over_what_begins_so(
    model: PairLanguageModel, probs: np.ndarray
) -> None:
    logs = continuation_log_probs(model, [QUESTION] * 2, ["b", "b b"], with_end=False)
    np.testing.assert_allclose(np.exp(logs), [probs[0, 1:4].sum(), probs[0, 2:4].sum()], atol=1e-6)


def test_p_true_is_the_share_of_true_among_true_and_false(
    model: PairLanguageModel, probs: np.ndarray
) -> None:
    asked = Asked([QUESTION] * 2, ["a", "b b a"], [["a"]] * 2)
    found = p_true.score(model, asked, ask=told, words=("a", "b"))
    true = probs[[1, 3]][:, [0, 4]].sum(axis=1)
    np.testing.assert_allclose(np.exp(found.values), true, atol=1e-6)


def test_verbalised_confidence_is_the_mean_of_its_words(
    model: PairLanguageModel, probs: np.ndarray
) -> None:
    found = verbalised.score(
        model, Asked([QUESTION], ["b a"], [["a"]]), ask=told, words={"a b": 1.0, "b b": 0.5}
    )
    high, low = probs[2, 4], probs[2, 2:4].sum()
    np.testing.assert_allclose(found.values, [(high + 0.5 * low) / (high + low)], atol=1e-6)


def test_mutual_information_is_that_of_the_enumerated_joint(
    model: PairLanguageModel, probs: np.ndarray
) -> None:
    asked = Asked([QUESTION], ["a"], [[*ANSWERS, "a", "a"]])
    found = mutual_information.score(model, asked, ask=told)
    joint = probs[0][:, None] * probs[1:]
    apart = probs[0][:, None] * joint.sum(axis=0)
    assert -found.values[0] == pytest.approx(np.sum(joint * np.log(joint / apart)), abs=1e-6)
    # Draws, then six prompts with five continuations each.
    assert found.passes == pytest.approx(1 + 7 + 6 + 30)


def test_answers_that_say_the_same_count_as_one(model: PairLanguageModel) -> None:
    def same(text: str) -> str:
        return "all"

    asked = Asked([QUESTION], ["a"], [ANSWERS], meaning=same)
    assert mutual_information.score(model, asked, ask=told).values == pytest.approx(0, abs=1e-9)
    assert semantic_entropy.score(model, asked).values == pytest.approx(0)


def test_an_independent_second_answer_carries_no_information() -> None:
    log_first = np.log([0.2, 0.3, 0.5])
    assert mutual_information.mutual_information(
        log_first, np.tile(log_first, (3, 1))
    ) == pytest.approx(0, abs=1e-12)


def test_told_scores_are_marginal_and_told_conditional(
    model: PairLanguageModel, probs: np.ndarray
) -> None:
    scores = mutual_information.told_scores(model, [QUESTION], ["b b b"], ask=told)
    np.testing.assert_allclose(np.exp(scores.log_marginal), probs[0, 3], atol=1e-6)
    np.testing.assert_allclose(np.exp(scores.log_self_conditional), probs[4, 3], atol=1e-6)


@pytest.mark.parametrize("name", [name for name in RIVALS if "log" in name or "entropy" in name])
def test_rivals_without_prompts_of_their_own_judge_every_answer(name: str) -> None:
    asked = Asked(["flip", "flip"], ["heads", "tails"], [["heads", "tails"]] * 2)
    found = RIVALS[name](tiny_pair_model(), asked)
    assert found.values.shape == (2,)
    assert found.passes > 0


def test_lists_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="1 prompts, 2 answers and 1 lists"):
        Asked(["flip"], ["heads", "tails"], [["heads"]])
