"""Evaluation on predictors whose calibration is known: one that knows digits, one that does not."""

import numpy as np
import pytest
from experiments.pi_worlds import balanced_offsets, knowing
from experiments.smallest import SMALLEST

from secondguess.experiments.digits_of_pi.evaluation import (
    MALFORMED,
    Statements,
    columns_of,
    draw_statements,
    exact_statements,
    known_digits,
    overall_bound,
    reliability_bins,
    sampled_statements,
)
from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.outliers import explain_outliers
from secondguess.experiments.digits_of_pi.pairs import PiPairs
from secondguess.experiments.digits_of_pi.rankings import (
    CONFIDENCE,
    RIVALS,
    cluster_sizes,
    curves,
    ranking_gaps,
    rates_at,
)
from secondguess.experiments.sequence_models import fresh_transformer
from secondguess.language import rankers
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import ScoredResponse, totals
from secondguess.theory.records import SelfCheatScores


def test_a_calibrated_predictor_keeps_its_promise_exactly():
    statements = knowing(balanced_offsets(20), 0)
    bound = overall_bound(statements)
    assert bound.hallucination_rate <= bound.promised_rate + 1e-12
    assert bound.outlier_share == 0
    bins = reliability_bins(statements, num_bins=5)
    assert (np.diff(bins.confidence) > -1e-9).all()
    assert bins.weight.sum() == pytest.approx(1)
    [single_bin] = reliability_bins(statements, num_bins=1).hallucination_rate
    assert single_bin == pytest.approx(bound.hallucination_rate)
    # Statements true of one digit only meet the bound with equality: C = 1/10 and 9/10 are false.
    single = (grammar().probs > 0).sum(axis=0) == 1
    confidence = statements.scores.epistemic_confidence
    np.testing.assert_allclose(confidence[:, single], 0.1, atol=1e-12)


def test_known_digits_are_counted():
    offsets = np.arange(1, 201)
    statements = knowing(offsets, 100)
    np.testing.assert_allclose(statements.share_correct[:100], 1)
    running = np.cumsum(statements.share_correct) / offsets
    expected = int(np.flatnonzero(running >= 0.95)[-1]) + 1
    assert known_digits(statements) == expected
    assert 100 < known_digits(statements) < 112
    assert known_digits(knowing(offsets, 0)) == 0


def test_outliers_are_counted_apart():
    statements = knowing(balanced_offsets(5), 0)
    wild = statements.scores.log_self_conditional.copy()
    wild[:, 0] = statements.scores.log_marginal[:, 0] - 3
    outlying = Statements(
        statements.offsets,
        statements.columns,
        statements.num_tokens,
        SelfCheatScores(statements.scores.log_marginal, wild),
        statements.weights,
    )
    bound = overall_bound(outlying)
    weight = statements.weights[:, 0].mean()
    assert bound.outlier_share == pytest.approx(weight, rel=1e-9)
    assert bound.outlier_hallucination_rate == pytest.approx(0.9)  # "It's zero" of balanced digits
    assert bound.outlier_malformed_share == 0


def test_cluster_sizes_count_equal_meanings_in_a_group():
    meanings = np.array([[4, 4, 7, 4, 4, 4], [MALFORMED, MALFORMED, 2, 2, 2, 1]])
    np.testing.assert_array_equal(
        cluster_sizes(meanings, group_size=3), [[2, 2, 1, 3, 3, 3], [1, 1, 1, 2, 2, 1]]
    )
    np.testing.assert_array_equal(
        cluster_sizes(meanings, group_size=6), [[5, 5, 1, 5, 5, 5], [1, 1, 3, 3, 3, 1]]
    )
    with pytest.raises(ValueError, match="groups of 4"):
        cluster_sizes(meanings, group_size=4)


def test_rankings_are_those_of_the_language_layer():
    rng = np.random.default_rng(0)
    columns = rng.integers(MALFORMED, 60, size=(1, 20))
    texts = ["gibberish" if c == MALFORMED else grammar().sentences[c] for c in columns[0]]
    responses = [
        ScoredResponse(
            tuple(range(count)), text, np.log(rng.random(count)), np.log(rng.random(count))
        )
        for text, count in zip(texts, rng.integers(2, 10, size=20).tolist(), strict=True)
    ]
    scores = totals(responses)
    statements = Statements(
        np.array([5]),
        columns,
        np.array([[len(each.tokens) for each in responses]]),
        scores[None],
        np.full((1, 20), 1 / 20),
    )

    def same(one: ScoredResponse, two: ScoredResponse) -> bool:
        meaning = grammar().meaning(one.text)
        return meaning is not None and meaning == grammar().meaning(two.text)

    expected = [
        rankers.total_log_probability,
        rankers.mean_token_log_probability,
        rankers.clustered(same, group_size=10),
        rankers.clustered(same, group_size=20),
        rankers.epistemic_confidence(),
    ]
    for ranker, gap in zip(expected, ranking_gaps(statements).values(), strict=True):
        np.testing.assert_allclose(-gap[0], ranker(responses))


def test_columns_of_texts():
    columns = columns_of([*grammar().sentences, "It's", "Sure, zero"])
    assert columns.tolist() == [*range(441), MALFORMED, MALFORMED]


@pytest.fixture(scope="module")
def random_model() -> tuple[PairLanguageModel, PiPairs]:
    pairs = PiPairs()
    return fresh_transformer(pairs.layout.formatter, **SMALLEST, num_positions=64), pairs


def test_samples_and_exact_scores_agree_on_the_same_sentence(random_model):
    model, pairs = random_model
    offsets = np.array([1, 7])
    drawn = draw_statements(
        model, pairs, offsets, num_samples=20, rng=np.random.default_rng(0), batch_size=16
    )
    samples = sampled_statements(offsets, drawn)
    assert samples.columns.shape == (2, 20)
    assert (samples.columns == MALFORMED).all()  # random weights say nothing sensible
    assert not samples.is_true.any()
    assert (samples.num_tokens <= 10).all()
    exact = exact_statements(model, pairs, offsets)
    assert exact.weights.shape == (2, 441)
    assert (exact.weights.sum(axis=1) <= 1).all()
    gaps = ranking_gaps(samples)
    assert list(gaps) == [*RIVALS, CONFIDENCE]
    for name, curve in curves(samples, gaps, rng=np.random.default_rng(0)).items():
        assert (curve.hallucination_rate == 1).all(), name
        rates = rates_at(gaps[name], samples.is_true, [0.5], rng=np.random.default_rng(0))
        assert rates == [(1.0, 0.0)]


def test_the_standard_error_of_a_ranking_covers_when_digits_differ():
    # The truth of a digit is all or nothing, so 40 samples of it are no more than one.
    rng = np.random.default_rng(0)
    num_digits, num_samples, share, repetitions = 200, 40, 0.3, 400
    covered = 0
    for _ in range(repetitions):
        is_true = np.repeat(rng.random((num_digits, 1)) >= share, num_samples, axis=1)
        gap = rng.random((num_digits, num_samples))
        ((rate, error),) = rates_at(gap, is_true, [0.5], rng=rng)
        covered += abs(rate - share) <= 2 * error
    # Two normal standard errors cover 95.4 %; below 92 % of 400 has a chance of 0.002.
    assert covered >= 0.92 * repetitions


def said(model, text: str, confidence: float) -> ScoredResponse:
    """A response whose probability falls or rises so that its confidence is the given one."""
    end = model.formatter.end
    tokens = (*model.formatter.tokenizer.encode(text, add_special_tokens=False), end)
    first = np.full(len(tokens), -1.0)
    return ScoredResponse(tokens, text, first, first - np.log(confidence) / len(tokens))


def test_outliers_are_counted_and_what_follows_them_is_the_conditional(random_model):
    model, pairs = random_model
    offsets = np.array([1, 2])  # the digits 1 and 4
    malformed, false = "It's spelled with letters", "It's an even number"
    drawn = [
        said(model, "It's 1", 0.9),
        said(model, "It's 1", 1.6),
        said(model, false, 20.0),
        said(model, "It's 4", 1.0),
        said(model, malformed, 100.0),
        said(model, "It's 4", 1.4),
    ]
    statements = sampled_statements(offsets, drawn)
    found = explain_outliers(model, pairs, statements, drawn, np.array([0.25, 0.75]))
    counts = [(band["count"], band["false"], band["malformed"]) for band in found["bands"]]
    assert counts == [(1, 0, 0), (0, 0, 0), (2, 2, 1)]
    assert [each["text"] for each in found["examples"]] == [malformed, false, "It's 1"]
    assert [each["digit"] for each in found["examples"]] == [4, 1, 1]

    def after(offset: int, first: ScoredResponse) -> np.ndarray:
        prompt = np.repeat(pairs.prompt_tokens[[offset]], 441, axis=0)
        y1 = np.full(pairs.sentence_tokens.shape, model.formatter.end)
        y1[:, : len(first.tokens)] = first.tokens
        return np.exp(pairs.layout.log_probs(model.network, prompt, y1, pairs.sentence_tokens)[1])

    assert found["malformed"]["count"] == 1
    sentences = after(2, drawn[4]).sum()
    assert found["malformed"]["share_sentences_after"] == pytest.approx(sentences, rel=1e-5)


def test_without_outliers_nothing_is_explained(random_model):
    model, pairs = random_model
    drawn = [said(model, "It's 1", 1.0)]
    offsets = np.array([1])
    statements = sampled_statements(offsets, drawn)
    found = explain_outliers(model, pairs, statements, drawn, np.array([1.0]))
    assert (found["examples"], found["malformed"]["share_sentences_after"]) == ([], None)
