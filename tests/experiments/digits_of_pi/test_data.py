"""The truth about statements on digits of pi: enumerable, so checked without sampling noise."""

import numpy as np
import pytest

from secondguess.experiments.digits_of_pi.grammar import HAZY, grammar
from secondguess.experiments.digits_of_pi.questions import (
    digits_at,
    digits_of_pi,
    offset_probs,
    question,
    sample_offsets,
)


def test_every_digit_has_a_distribution_over_441_sentences():
    table = grammar()
    assert table.probs.shape == (10, 441)
    assert len(set(table.sentences)) == 441
    np.testing.assert_allclose(table.probs.sum(axis=1), 1, atol=1e-12)
    # Each digit can be spoken of in 8 intros x 7 phrases, and hazily.
    assert ((table.probs > 0).sum(axis=1) == 57).all()
    assert (table.probs[:, table.index[HAZY]] == 0.01).all()


def test_probabilities_multiply_along_the_derivation():
    table = grammar()
    expected = 0.99 * 0.087 * 0.56 * 0.384 * 0.323
    assert table.prob("Sure, that is the number nine", 9) == pytest.approx(expected, rel=1e-14)
    assert table.prob("That's spelled with 5 letters", [3, 7, 8]) == pytest.approx(
        [0.99 * 0.218 * 0.12] * 3, rel=1e-14
    )
    assert table.prob("That's the number", [3]) == 0


def test_entropies_are_those_of_the_reading_notes():
    np.testing.assert_allclose(grammar().entropies(), [3.848, 5.681, 9.891], atol=5e-4)


def test_knowing_one_response_of_a_pair_is_worth_what_it_tells_about_the_digit():
    _, unknown, pair = grammar().entropies()
    table = grammar()
    # H(Y1, Y2) = H(Y1) + E[H(Y2 | Y1)], with Y2 predicted through the posterior over digits.
    posterior = table.probs / table.probs.sum(axis=0)
    second = np.einsum("dc,ds->cs", posterior, table.probs)
    surprise = -(second * np.log(np.where(second > 0, second, 1))).sum(axis=1)
    assert pair == pytest.approx(unknown + table.probs.mean(axis=0) @ surprise, abs=1e-10)


def test_equivalence_joins_styles_and_separates_facts():
    table = grammar()
    assert len(set(table.meanings.tolist())) == 10 + 2 + 10 + 3 + 1
    alike = ["It's 3", "Sure, that is three", "That's the number 3", "It is the number three"]
    assert len({table.meaning(sentence) for sentence in alike}) == 1
    apart = ["It's 4", "It's spelled F O U R", "It's spelled with 4 letters", "It's an even number"]
    assert len({table.meaning(sentence) for sentence in apart}) == 4
    assert table.meaning("It's spelled F O U") is None


def test_truth_depends_on_meaning_alone():
    table = grammar()
    for meaning in set(table.meanings.tolist()):
        support = table.probs[:, table.meanings == meaning] > 0
        assert (support == support[:, :1]).all()


@pytest.mark.statistical
def test_sampling_follows_the_table():
    """The largest of 441 z-scores exceeds 5 by chance with probability below 3e-4."""
    draws = 200_000
    columns = grammar().sample(np.full(draws, 6), np.random.default_rng(0).random(draws))
    counts = np.bincount(columns, minlength=441)
    probs = grammar().probs[6]
    assert (counts[probs == 0] == 0).all()
    possible = probs > 0
    spread = np.sqrt(draws * probs[possible] * (1 - probs[possible]))
    assert (np.abs(counts[possible] - draws * probs[possible]) < 5 * spread).all()


def test_digits_match_a_second_formula():
    # Machin: pi = 16 arctan(1/5) - 4 arctan(1/239), in whole numbers.
    def scaled_arctan_of_inverse(x: int, unit: int) -> int:
        total, term, n = 0, unit // x, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term //= x * x
            n += 2
        return total

    unit = 10**10_030
    pi = 16 * scaled_arctan_of_inverse(5, unit) - 4 * scaled_arctan_of_inverse(239, unit)
    pi //= 10**31  # what is left has the 9,999 decimals, without those that rounding spoilt
    digits = []
    while pi:
        pi, digit = divmod(pi, 10)
        digits.append(digit)
    assert digits_of_pi().tolist() == digits[::-1]


def test_digits_asked_in_the_printed_examples():
    assert digits_at([126, 48, 12, 15]).tolist() == [4, 5, 9, 3]
    with pytest.raises(ValueError, match="an offset from 1 to 9999"):
        digits_at([0])


def test_offset_probabilities_are_the_integral_over_rates():
    from scipy.integrate import quad

    probs = offset_probs()
    assert probs.shape == (10_000,)
    assert probs.sum() == pytest.approx(1, abs=1e-12)
    for offset in (2, 50, 800):
        ratio, _ = quad(lambda q, i=offset: q * (1 - q) ** (i - 1), 0.001, 0.1, epsabs=1e-14)
        first, _ = quad(lambda q: q, 0.001, 0.1)
        assert probs[offset] / probs[1] == pytest.approx(ratio / first, rel=1e-9)


@pytest.mark.statistical
def test_sampled_offsets_follow_their_probabilities():
    """Each of three z-scores beyond 4.5 by chance: below 3e-5 in all."""
    draws = 200_000
    offsets = sample_offsets(np.random.default_rng(1).random(draws))
    assert offsets.min() >= 1
    assert offsets.max() < 10_000
    below = offset_probs().cumsum()
    for limit in (5, 50, 500):
        spread = np.sqrt(below[limit] * (1 - below[limit]) / draws)
        assert abs((offsets <= limit).mean() - below[limit]) < 4.5 * spread


def test_questions_name_the_offset_in_four_places():
    assert question(126) == "Tell me about digit 0 1 2 6 of pi."
    with pytest.raises(ValueError, match="offset is 10000"):
        question(10_000)
