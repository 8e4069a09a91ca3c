"""Recalibration: exact where the truth is known, the identity where nothing is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from language.table_network import SPELLINGS, TableNetwork, table_model
from scipy.special import expit, logit
from worlds import random_world

from secondguess.language import recalibrating, recalibration_fit
from secondguess.language.checking import Verdict, check
from secondguess.language.examples import tiny_pair_model
from secondguess.language.generation import sample
from secondguess.language.logit_lines import LogitLine
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibrating import recalibrate
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.language.recalibration_fit import (
    fit_first_lines,
    fit_recalibration,
    fit_repeat_line,
)
from secondguess.language.scoring import ScoredResponse, score, totals
from secondguess.theory.records import SelfCheatScores

WORLD = random_world(np.random.default_rng(2), num_inputs=30, num_classes=5, num_groups=12)


def exact_numbers() -> tuple[np.ndarray, np.ndarray]:
    """p(y|x) and p(y|y,x) of every input and response."""
    joint = WORLD.calibrated_joint()
    marginal = joint.sum(axis=2)
    return marginal, np.einsum("nkk->nk", joint) / marginal


def bent(probs: np.ndarray, slope: float, offset: float) -> np.ndarray:
    return expit(slope * logit(probs) + offset)


def test_what_is_right_stays_and_what_is_wrong_is_undone_exactly() -> None:
    marginal, repeat = exact_numbers()
    people = WORLD.input_probs[:, None] * marginal
    confidence = np.minimum(marginal / repeat, 1.0)
    bent_confidence = bent(confidence, 1.7, -0.4)
    for said_repeat, said in (
        (repeat, marginal),
        (bent(repeat, 2.0, 1.0), marginal),
        (repeat, repeat * bent_confidence),
        (bent(repeat, 2.0, 1.0), repeat * bent_confidence),
    ):
        scores = SelfCheatScores(np.log(said), np.log(said_repeat))
        found = fit_recalibration(
            scores,
            repeat,
            scores,
            given_weights=people,
            drawn_weights=WORLD.input_probs[:, None] * said,
            are_shares=True,
        )
        corrected = found(scores)
        np.testing.assert_allclose(np.exp(corrected.log_marginal), marginal, rtol=2e-3)
        np.testing.assert_allclose(corrected.epistemic_confidence, confidence, rtol=2e-3)


def test_lines_keep_order_and_bear_the_ends() -> None:
    correct = SequenceRecalibration(
        LogitLine(), LogitLine(1.2, 0.1), num_pairs=1, confidence=LogitLine(0.3, 1.0)
    )
    log_confidence = np.array([-np.inf, -300.0, -1.0, -1e-9, 0.0, 1e-9, 0.5, 3.0])
    repeat = np.full(8, -4.0)
    found = correct(SelfCheatScores(np.minimum(repeat + log_confidence, 0.0), repeat))
    assert np.all(np.diff(found.log_marginal) >= 0)
    assert found.log_marginal[0] == -np.inf
    # Nobody who hears an answer that cannot be repeated learns what it was worth.
    never = SelfCheatScores(np.array([-1.0, -np.inf]), np.array([-np.inf, -np.inf]))
    np.testing.assert_array_equal(correct(never).log_marginal, never.log_marginal)


def test_a_confidence_above_one_is_moved_as_its_reciprocal() -> None:
    correct = SequenceRecalibration(
        LogitLine(), LogitLine(), num_pairs=1, confidence=LogitLine(1.4, 0.3)
    )
    repeat = np.log([0.02, 0.02, 0.02])
    scores = SelfCheatScores(repeat + np.log([0.8, 1.0, 1 / 0.8]), repeat)
    below, one, above = correct(scores).epistemic_confidence
    assert one == pytest.approx(1)
    assert below > 0.85
    assert above == pytest.approx(1 / below)


def told(
    rng: np.random.Generator, true: np.ndarray, said: np.ndarray, count: int = 1
) -> tuple[SelfCheatScores, SelfCheatScores]:
    """Scores of what people said and of what the model drew, `(n, count)` each.

    Whoever is asked says one of two words, and always the same one. `true` are the chances of the
    first word, `said` those that the model has.
    """
    people, model = (
        np.log(np.where(rng.random((count, len(true))) < chances, said, 1 - said).T)
        for chances in (true, said)
    )
    certain = np.zeros_like(people)
    return SelfCheatScores(people, certain), SelfCheatScores(model, certain)


def mended(given: SelfCheatScores, drawn: SelfCheatScores, said: np.ndarray) -> np.ndarray:
    """What the lines make of the chances that the model has."""
    weights = np.full(given.log_marginal.shape, 1 / given.log_marginal.shape[1])
    first, confidence = fit_first_lines(given, drawn, weights, weights)
    correct = SequenceRecalibration(first, LogitLine(), num_pairs=1, confidence=confidence)
    return np.exp(correct(SelfCheatScores(np.log(said), np.zeros(len(said)))).log_marginal)


def worlds(rng: np.random.Generator, size: int) -> Iterator[np.ndarray]:
    """True chances of a word, many times over, and as often below a half as above."""
    while True:
        yield expit(rng.normal(0, rng.uniform(0.5, 3.0), size))


def cost(true: np.ndarray, said: np.ndarray) -> float:
    """Nats that all events together lose by what was said of them."""
    return float(np.sum(true * np.log(true / said) + (1 - true) * np.log((1 - true) / (1 - said))))


@pytest.mark.statistical
def test_what_is_right_all_but_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs less than two thirds of what the likeliest lines cost; the seed is fixed.

    Over 100 worlds, by more than four standard errors.
    """
    rng = np.random.default_rng(0)
    samples = [(true, told(rng, true, true)) for true in islice(worlds(rng, 400), 100)]
    costs = []
    for typical_error in (recalibration_fit._ERROR_OF_FIRSTS, 1e6):
        monkeypatch.setattr(recalibration_fit, "_ERROR_OF_FIRSTS", typical_error)
        costs.append([cost(true, mended(*both, true)) for true, both in samples])
    saved = np.array(costs[1]) * 2 / 3 - np.array(costs[0])
    assert saved.mean() > 4 * saved.std() / np.sqrt(len(saved))


@pytest.mark.statistical
@pytest.mark.parametrize("too_sure", [1.3, 1.5, 1 / 1.5])
def test_what_is_wrong_gets_better(too_sure: float) -> None:
    """Of 400 rows, by more than four standard errors over 100 worlds; the seed is fixed."""
    rng = np.random.default_rng(0)
    gains = []
    for true in islice(worlds(rng, 400), 100):
        said = bent(true, too_sure, 0.0)
        gains.append(cost(true, said) - cost(true, mended(*told(rng, true, said), said)))
    assert np.mean(gains) > 4 * np.std(gains) / np.sqrt(len(gains))


def test_what_is_clearly_wrong_is_mended() -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(0.1, 0.9, 4000)
    said = bent(true, 2.0, 0.0)
    found = mended(*told(rng, true, said), said)
    assert np.abs(found - true).mean() < 0.2 * np.abs(said - true).mean()
    assert np.abs(mended(*told(rng, true, true), true) - true).max() < 0.02


@pytest.mark.parametrize("log_wording", [np.log(1e-6), -100.0])
def test_no_wording_has_to_recur(log_wording: float) -> None:
    """A word is worded in a million ways, or in a long text: the confidence is the same."""
    rng = np.random.default_rng(0)
    true = rng.uniform(0.05, 0.95, 2000)
    given, drawn = told(rng, true, bent(true, 2.0, 0.0))
    repeats = np.ones((2000, 1))
    known = SelfCheatScores(np.log([0.3, 0.6, 0.9]), np.zeros(3))
    found = []
    for worded in (0.0, log_wording):
        people, model, said = (
            SelfCheatScores(each.log_marginal + worded, each.log_self_conditional + worded)
            for each in (given, drawn, known)
        )
        correct = fit_recalibration(people, repeats * (worded == 0), model)
        found.append(correct(said).epistemic_confidence)
    np.testing.assert_allclose(found[1], found[0], atol=0.03)
    np.testing.assert_allclose(found[1], bent(np.array([0.3, 0.6, 0.9]), 0.5, 0.0), atol=0.03)


def test_identical_lines_change_nothing_however_long_a_response_is() -> None:
    scores = SelfCheatScores(np.array([-0.1, -60.0, -400.0, -7.0]), np.array([-0.1, -55, -380, -9]))
    found = SequenceRecalibration(LogitLine(), LogitLine(), num_pairs=1)(scores)
    np.testing.assert_allclose(found.log_marginal, scores.log_marginal, rtol=1e-12)
    np.testing.assert_allclose(found.log_self_conditional, scores.log_self_conditional, rtol=1e-12)


def test_derivatives_are_those_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    repeat = -rng.exponential(3.0, (40, 2))
    scores = SelfCheatScores(np.minimum(repeat + rng.normal(-0.5, 1.0, (40, 2)), -1e-3), repeat)
    for sign in (-1, 1):
        side = recalibration_fit._Side.of(scores, rng.random((40, 2)), sign=sign)
        for numbers in rng.normal(0, 0.3, (5, 4)):
            _, slopes, _ = side.losses((-1.0, 0.5), numbers)
            for place, step in enumerate(1e-6 * np.eye(4)):
                above, below = (
                    side.losses((-1.0, 0.5), numbers + side_step)[0].sum()
                    for side_step in (step, -step)
                )
                assert slopes[:, place].sum() == pytest.approx((above - below) / 2e-6, rel=1e-5)


@pytest.mark.statistical
@pytest.mark.parametrize("size", [50, 200])
def test_few_rows_of_a_sharp_model_that_is_right_move_little(size: int) -> None:
    """Nine of ten answers are all but certain, and few rows tell anything; the seed is fixed."""
    rng = np.random.default_rng(0)
    asked, moved = np.array([0.1, 0.5, 0.9]), []
    for _ in range(20):
        true = np.where(rng.random(size) < 0.9, 0.99, 0.5)
        given, drawn = told(rng, true, true)
        correct = fit_recalibration(given, np.ones((size, 1)), drawn)
        certain = SelfCheatScores(np.log(asked), np.zeros(3))
        moved.append(correct(certain).epistemic_confidence - asked)
    assert np.quantile(np.abs(moved), 0.95, axis=0).max() < 0.05


def test_one_side_alone_is_refused() -> None:
    some = SelfCheatScores(np.full((60, 1), -1.0), np.full((60, 1), -0.5))
    impossible = SelfCheatScores(np.full((60, 1), -np.inf), np.full((60, 1), -0.5))
    with pytest.raises(ValueError, match="no response that people gave has a probability above 0"):
        fit_recalibration(impossible, np.zeros((60, 1)), some)
    with pytest.raises(ValueError, match="no response that the model drew"):
        fit_recalibration(some, np.zeros((60, 1)), impossible)
    with pytest.raises(ValueError, match="expected a row per prompt"):
        fit_recalibration(some[:, 0], np.zeros(60), some)


def test_responses_that_were_cut_off_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = table_model(WORLD, "positions"), np.random.default_rng(0)
    rows = held_out(rng, 200)
    plain = recalibrate(model, rows, rng=np.random.default_rng(1)).recalibration

    def cut(*args: object, **options: object) -> list[ScoredResponse]:
        found = sample(*args, **options)  # pyright: ignore[reportArgumentType]
        for place in range(0, len(found), 4):
            logs = found[place].log_marginal
            found[place] = replace(found[place], cut_off=True, log_marginal=logs - 9.0)
        return found

    monkeypatch.setattr(recalibrating, "sample", cut)
    with_cuts = recalibrate(model, rows, rng=np.random.default_rng(1)).recalibration
    assert plain is not None
    assert with_cuts is not None
    scores = SelfCheatScores(np.log([0.1, 0.3, 0.6]), np.log([0.2, 0.4, 0.7]))
    one, other = (each(scores).epistemic_confidence for each in (plain, with_cuts))
    np.testing.assert_allclose(one, other, atol=0.05)
    monkeypatch.setattr(
        recalibrating, "sample", lambda *a, **o: [replace(y, cut_off=True) for y in sample(*a, **o)]
    )
    with pytest.raises(ValueError, match="all 200 responses that the model drew were cut off"):
        recalibrate(model, rows, rng=rng)


def test_a_file_from_before_the_line_of_confidence_has_none(tmp_path: Path) -> None:
    found = SequenceRecalibration(LogitLine(0.5, 0.1), LogitLine(2.0, -0.3), num_pairs=7)
    found.save(tmp_path)
    path = tmp_path / "recalibration.json"
    content = json.loads(path.read_text())
    del content["confidence"]
    path.write_text(json.dumps(content))
    assert SequenceRecalibration.load(tmp_path) == found


def test_copies_and_more_of_the_same_count_as_their_row() -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(0.1, 0.9, 200)
    said = bent(true, 1.5, 0.0)
    given, drawn = told(rng, true, said)
    once = mended(given, drawn, said)
    copied = [
        SelfCheatScores(each.log_marginal.repeat(2, 1), np.zeros((200, 2)))
        for each in (given, drawn)
    ]
    np.testing.assert_allclose(mended(copied[0], copied[1], said), once, atol=1e-6)
    # A row of weight 0 is no row, and what no line can move counts nothing.
    weights = np.append(np.ones((200, 1)), np.zeros((50, 1)), axis=0)
    more = [
        SelfCheatScores(np.append(each.log_marginal, np.full((50, 1), -1.0), axis=0), 0 * weights)
        for each in (given, drawn)
    ]
    for one, same in zip(
        fit_first_lines(given, drawn, np.ones((200, 1)), np.ones((200, 1))),
        fit_first_lines(more[0], more[1], weights, weights),
        strict=True,
    ):
        assert (one.slope, one.offset) == pytest.approx((same.slope, same.offset), abs=1e-6)
    impossible = SelfCheatScores(np.full((9, 1), -np.inf), np.zeros((9, 1)))
    for nothing in (impossible, impossible[:0]):
        counts = np.ones(nothing.log_marginal.shape)
        assert fit_first_lines(nothing, nothing, counts, counts) == (LogitLine(), LogitLine())


def test_lines_that_cannot_be_told_apart_share_what_one_of_them_would_do() -> None:
    """Where p(y|y,x) is nearly one number, p(y|x) and C say nearly the same."""
    rng = np.random.default_rng(0)
    true = rng.uniform(0.05, 0.95, 1000)
    said = bent(true, 1.5, 0.0)
    given, drawn = told(rng, true, said)
    found = mended(given, drawn, said)
    people, model = (
        replace(each, log_self_conditional=-rng.uniform(0, 1e-3, (1000, 1)))
        for each in (given, drawn)
    )
    for each in (found, mended(people, model, said)):
        assert np.abs(each - true).mean() < 0.4 * np.abs(said - true).mean()


@pytest.mark.statistical
def test_many_responses_of_a_row_say_more_than_one() -> None:
    """50 people and 50 draws for each of 60 prompts, from a model that is too sure by a third.

    The seed is fixed; over 40 worlds they gain more by four standard errors.
    """
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(40):
        true = expit(rng.normal(0, 2, 60))
        said = bent(true, 4 / 3, 0.0)
        given, drawn = told(rng, true, said, 50)
        one, many = mended(given[:, :1], drawn[:, :1], said), mended(given, drawn, said)
        gains.append(cost(true, one) - cost(true, many))
    assert np.mean(gains) > 4 * np.std(gains) / np.sqrt(len(gains))


def test_what_always_or_never_repeats_has_a_finite_line() -> None:
    seen = np.log(np.random.default_rng(0).uniform(0.6, 1.0, 300))
    always, never = fit_repeat_line(seen, np.ones(300)), fit_repeat_line(seen, np.zeros(300))
    assert 0.99 < np.exp(always(np.log(0.6))) < 0.9999
    assert np.exp(never(np.log(0.99))) < 0.02
    with pytest.raises(ValueError, match="slope"):
        LogitLine(-1.0, 0.0)


def test_repeats_that_are_clearly_wrong_get_their_line_and_others_stay() -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(0.1, 0.9, 4000)
    assert fit_repeat_line(np.log(bent(true, 2.0, 0.0)), rng.random(4000) < true).slope < 0.6
    right = fit_repeat_line(np.log(true[:400]), rng.random(400) < true[:400])
    assert (right.slope, right.offset) == pytest.approx((1, 0), abs=0.02)


def test_a_share_of_many_people_counts_as_their_answers() -> None:
    """50 people for each of 300 events give nearly the line of 15,000 answers, one each does not.

    The model is too sure by 30 %. How much shares vary is estimated, hence the tolerance.
    """
    rng = np.random.default_rng(0)
    slopes = []
    for _ in range(30):
        true = expit(rng.normal(rng.normal(), rng.uniform(0.5, 2.0), 300))
        too_sure = np.log(bent(true, 1.3, 0.0))
        answers = rng.random((300, 50)) < true[:, None]
        lines = (
            fit_repeat_line(too_sure, answers.mean(axis=1)),
            fit_repeat_line(np.repeat(too_sure, 50), answers.ravel()),
            fit_repeat_line(too_sure, answers[:, 0]),
        )
        slopes.append([line.slope for line in lines])
    slopes = np.array(slopes)
    np.testing.assert_allclose(slopes[:, 0], slopes[:, 1], atol=0.01)
    shares, _, single = slopes.mean(axis=0)
    assert shares == pytest.approx(1 / 1.3, abs=0.02)
    assert shares + 0.02 < single < 1


def test_a_repeat_counts_as_often_as_its_row() -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(0.1, 0.9, 300)
    logs, events = np.log(bent(true, 2.0, 0.0)), rng.random(300) < true
    whole = fit_repeat_line(logs, events)
    assert whole.slope < fit_repeat_line(logs, events, np.full(300, 0.1)).slope < 1
    # Together they are a hundredth of an event.
    few = fit_repeat_line(logs, events, np.full(300, 1e-4 / 3))
    assert few.slope == pytest.approx(1, abs=1e-3)
    # Each row a tenth, ten times over, is the whole again.
    again = fit_repeat_line(np.tile(logs, 10), np.tile(events, 10), np.full(3000, 0.1))
    assert (again.slope, again.offset) == pytest.approx((whole.slope, whole.offset), abs=1e-4)


def test_where_all_repeat_an_answer_that_would_not_be_is_no_exception() -> None:
    """Pairs of what people say hold no such answer; drawn ones do, and their C was 20."""
    seen = np.log(np.random.default_rng(0).uniform(0.985, 1.0, 200))
    line = fit_repeat_line(seen, np.ones(200))
    for logs in (-30.0, np.log(0.985), 0.0):
        assert np.exp(line(logs)) == pytest.approx(201 / 202, abs=0.005)
    drawn = SelfCheatScores(np.log([0.2, 0.9]), np.array([-5.0, np.log(0.99)]))
    found = SequenceRecalibration(LogitLine(), line, num_pairs=200)(drawn)
    np.testing.assert_allclose(found.epistemic_confidence, [0.2, 0.9], rtol=0.01)
    # One pair that does not repeat, and the chance may depend on the answer again.
    all_but_one = np.append(np.ones(199), 0)
    assert np.exp(fit_repeat_line(seen, all_but_one)(-5.0)) < 0.1
    assert fit_repeat_line([], []) == LogitLine()


@pytest.mark.parametrize("few", [1, 40])
def test_the_ends_of_the_scale_do_not_decide(few: int) -> None:
    """Right predictions of 0 and 1 are no reason for a line; a wrong one of 1 is."""
    rng = np.random.default_rng(1)
    true = rng.uniform(0.1, 0.9, 400)
    logs, events = np.log(true), rng.random(400) < true
    alone = fit_repeat_line(logs, events)
    kept = fit_repeat_line(np.append(logs, np.zeros(few)), np.append(events, np.ones(few)))
    probs = np.log(np.linspace(0.1, 0.9, 9))
    np.testing.assert_allclose(np.exp(kept(probs)), np.exp(alone(probs)), atol=0.01)
    # No line moves what is impossible, so that it did not happen, or did, says nothing about one.
    for happened in (np.zeros(few), np.ones(few)):
        same = fit_repeat_line(np.append(logs, np.full(few, -np.inf)), np.append(events, happened))
        assert same == alone
    failed = np.concatenate([events, np.zeros(few)])
    assert fit_repeat_line(np.append(logs, np.zeros(few)), failed).slope < 0.9
    assert fit_repeat_line(np.full(few, -np.inf), np.zeros(few)) == LogitLine()


def hardly_looking() -> tuple[PairLanguageModel, np.ndarray]:
    """A model whose p(y2|y1,x) is a calibrated one's only to a tenth, and its joint table."""
    formatter = table_model(WORLD, "positions").formatter
    joint = 0.1 * WORLD.calibrated_joint() + 0.9 * WORLD.overconfident_joint()
    return PairLanguageModel(TableNetwork(formatter, joint).eval(), formatter), joint


def held_out(rng: np.random.Generator, count: int) -> list[dict[str, object]]:
    inputs = rng.choice(len(WORLD.input_probs), p=WORLD.input_probs, size=count)
    return [
        {
            "prompt": f"x{index}",
            "responses": [SPELLINGS[y] for y in rng.choice(5, p=WORLD.true_probs[index], size=2)],
        }
        for index in inputs
    ]


@pytest.mark.statistical
def test_a_model_that_hardly_looks_is_repaired_and_passes_its_check() -> None:
    """The seed is fixed; an accusation of a repaired model has a chance below 1e-3."""
    rng = np.random.default_rng(4)
    bad, _ = hardly_looking()  # it cheats too little
    fresh = held_out(rng, 400)
    before = check(bad, fresh, rng=rng)
    assert before.verdict in (Verdict.TOO_LITTLE, Verdict.NEVER)
    repaired = recalibrate(bad, held_out(rng, 400), rng=rng)
    after = check(repaired, fresh, rng=rng)
    assert after.recalibrated
    assert after.verdict is Verdict.NO_SIGN
    assert abs(after.repeat_excess.mean) < abs(before.repeat_excess.mean) / 3
    assert repaired.identity != bad.identity


def test_it_is_saved_with_the_model_and_used_by_scores(tmp_path: Path) -> None:
    model = tiny_pair_model()
    found = SequenceRecalibration(
        LogitLine(0.5, 0.1), LogitLine(2.0, -0.3), num_pairs=7, confidence=LogitLine(1.1, 0.2)
    )
    better = replace(model, recalibration=found)
    rows = [{"prompt": "flip", "responses": ["heads", "tails"]}]
    [plain], [scored] = score(model, rows), score(better, rows)
    np.testing.assert_array_equal(totals(scored).log_marginal, found(totals(plain)).log_marginal)
    assert scored[0].scores.epistemic_confidence == totals(scored).epistemic_confidence[0]
    better.save(tmp_path / "model")
    again = PairLanguageModel.load(tmp_path / "model")
    assert again.recalibration == found
    # One about meanings leaves the scores of wordings as they are.
    about_meanings = replace(better, recalibration=replace(found, of_meanings=True))
    [same] = score(about_meanings, rows)
    np.testing.assert_array_equal(totals(same).log_marginal, totals(plain).log_marginal)


def test_it_can_be_about_meanings() -> None:
    rng = np.random.default_rng(0)
    model = table_model(WORLD, "positions")
    rows = held_out(rng, 60)
    found = recalibrate(model, rows, rng=rng, meaning=len, num_samples=4).recalibration
    assert found is not None
    assert found.of_meanings
    with pytest.raises(ValueError, match="at least 50"):
        recalibrate(model, rows[:10], rng=rng)


@pytest.mark.statistical
def test_where_every_wording_is_a_meaning_both_are_corrected_alike() -> None:
    """But for their draws, and for y2, which only wordings look at; the seed is fixed."""
    bad, joint = hardly_looking()
    rng = np.random.default_rng(0)
    rows = held_out(rng, 300)
    marginal = joint.sum(axis=2)
    scores = SelfCheatScores(np.log(marginal), np.log(np.einsum("nkk->nk", joint) / marginal))
    wordings, meanings = (
        recalibrate(bad, rows, rng=rng, meaning=meaning, num_samples=3).recalibration
        for meaning in (None, str.strip)
    )
    assert wordings is not None
    assert meanings is not None
    before, one, other = (
        each.epistemic_confidence for each in (scores, wordings(scores), meanings(scores))
    )
    assert np.abs(one - other).mean() < 0.2 * np.abs(one - before).mean()
