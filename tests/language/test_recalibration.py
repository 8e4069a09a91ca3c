"""Recalibration: exact where the truth is known, the identity where nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from language.table_network import SPELLINGS, TableNetwork, table_model
from scipy.special import expit, logit
from worlds import random_world

from secondguess.language.checking import Verdict, check
from secondguess.language.examples import tiny_pair_model
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibrating import recalibrate
from secondguess.language.recalibration import (
    LogitLine,
    SequenceRecalibration,
    fit_line,
    fit_repeat_line,
)
from secondguess.language.scoring import score, totals
from secondguess.theory.records import SelfCheatScores

WORLD = random_world(np.random.default_rng(2), num_inputs=30, num_classes=5, num_groups=12)


def exact_numbers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p(y|x), p(y|y,x) and p(x, y) over all inputs and responses."""
    joint = WORLD.calibrated_joint()
    marginal = joint.sum(axis=2)
    repeat = np.einsum("nkk->nk", joint) / marginal
    weights = WORLD.input_probs[:, None] * marginal
    return marginal.ravel(), repeat.ravel(), weights.ravel()


def test_what_is_right_stays_and_what_is_wrong_is_undone_exactly() -> None:
    marginal, repeat, weights = exact_numbers()
    right = fit_line(np.log(repeat), repeat, weights)
    assert (right.slope, right.offset) == pytest.approx((1.0, 0.0), abs=1e-4)
    # Too sure, and biased: the inverse of the line is found, and the confidence is exact again.
    lines = []
    for truth, slope, offset in ((marginal, 1.7, -0.4), (repeat, 2.0, 1.0)):
        distorted = np.log(expit(slope * logit(truth) + offset))
        lines.append(fit_line(distorted, truth, weights))
        assert lines[-1].slope == pytest.approx(1 / slope, rel=1e-3)
        assert lines[-1].offset == pytest.approx(-offset / slope, abs=1e-3)
    distorted = SelfCheatScores(
        np.log(expit(1.7 * logit(marginal) - 0.4)), np.log(expit(2.0 * logit(repeat) + 1.0))
    )
    found = SequenceRecalibration(*lines, num_pairs=1)(distorted)
    np.testing.assert_allclose(found.epistemic_confidence, marginal / repeat, rtol=2e-3)


def test_lines_keep_order_and_bear_the_ends() -> None:
    line = LogitLine(0.3, 1.0)
    logs = np.array([-np.inf, -300.0, -1.0, -1e-9, 0.0])
    moved = line(logs)
    assert np.all(np.diff(moved) >= 0)
    assert moved[0] == -np.inf
    assert np.all(moved <= 0)


def test_what_always_or_never_happened_has_a_finite_line() -> None:
    seen = np.log(np.random.default_rng(0).uniform(0.6, 1.0, 300))
    always, never = fit_line(seen, np.ones(300)), fit_line(seen, np.zeros(300))
    assert 0.99 < np.exp(always(np.log(0.6))) < 0.9999
    assert np.exp(never(np.log(0.99))) < 0.01
    with pytest.raises(ValueError, match="slope"):
        LogitLine(-1.0, 0.0)


def worlds(rng: np.random.Generator, size: int, widest: float) -> Iterator[np.ndarray]:
    """True probabilities of some events, many times over."""
    while True:
        yield expit(rng.normal(rng.normal(), rng.uniform(0.5, widest), size))


def cost(true: np.ndarray, said: np.ndarray) -> float:
    """Nats that all events together lose by what was said of them."""
    return float(np.sum(true * np.log(true / said) + (1 - true) * np.log((1 - true) / (1 - said))))


@pytest.mark.statistical
def test_what_is_right_all_but_stays() -> None:
    """It costs less than a third of a nat over all events; the likeliest line costs one (Wilks).

    The seed is fixed; the mean over 300 worlds is lower by more than four standard errors.
    """
    rng = np.random.default_rng(0)
    costs = []
    for true in islice(worlds(rng, 400, 3.0), 300):
        line = fit_line(np.log(true), rng.random(400) < true)
        costs.append(cost(true, np.exp(line(np.log(true)))))
    assert np.mean(costs) + 4 * np.std(costs) / np.sqrt(len(costs)) < 1 / 3


@pytest.mark.statistical
@pytest.mark.parametrize("too_sure", [1.15, 1.3, 1.5])
def test_what_is_slightly_wrong_gets_better(too_sure: float) -> None:
    """Of 400 events, by more than four standard errors over 300 worlds; the seed is fixed."""
    rng = np.random.default_rng(0)
    gains = []
    for true in islice(worlds(rng, 400, 3.0), 300):
        said = np.log(expit(too_sure * logit(true)))
        line = fit_line(said, rng.random(400) < true)
        gains.append(cost(true, np.exp(said)) - cost(true, np.exp(line(said))))
    assert np.mean(gains) > 4 * np.std(gains) / np.sqrt(len(gains))


def test_what_is_clearly_wrong_gets_its_line() -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(0.1, 0.9, 4000)
    line = fit_line(np.log(expit(2 * logit(true))), rng.random(4000) < true)
    assert line.slope == pytest.approx(0.5, abs=0.1)
    # 0.93 for what always happens: the gain is 14 nats.
    always = fit_line(np.full(200, np.log(0.93)), np.ones(200))
    assert np.exp(always(np.log(0.93))) > 0.99
    # 20 events cannot tell 0.93 from 1.
    some = fit_line(np.full(20, np.log(0.93)), np.ones(20))
    assert np.exp(some(np.log(0.93))) == pytest.approx(0.93, abs=0.005)


def test_a_share_of_many_people_counts_as_their_answers() -> None:
    """50 people for each of 300 events give the line of 15,000 answers, and one for each does not.

    The model is too sure by 15 %. How much shares vary is estimated, hence the tolerance.
    """
    rng = np.random.default_rng(0)
    slopes = []
    for true in islice(worlds(rng, 300, 2.0), 30):
        too_sure = np.log(expit(1.15 * logit(true)))
        answers = rng.random((300, 50)) < true[:, None]
        lines = (
            fit_line(too_sure, answers.mean(axis=1)),
            fit_line(np.repeat(too_sure, 50), answers.ravel()),
            fit_line(too_sure, answers[:, 0]),
        )
        slopes.append([line.slope for line in lines])
    slopes = np.array(slopes)
    np.testing.assert_allclose(slopes[:, 0], slopes[:, 1], atol=0.01)
    shares, _, single = slopes.mean(axis=0)
    assert shares == pytest.approx(1 / 1.15, abs=0.02)
    assert shares + 0.02 < single < 1


def test_a_gain_counts_as_often_as_its_row() -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(0.1, 0.9, 300)
    logs, events = np.log(expit(2 * logit(true))), rng.random(300) < true
    whole = fit_line(logs, events)
    assert whole.slope < fit_line(logs, events, np.full(300, 0.1)).slope < 1
    # Together they are a hundredth of an event.
    assert fit_line(logs, events, np.full(300, 1e-4 / 3)).slope == pytest.approx(1, abs=1e-3)
    # Each row a tenth, ten times over, is the whole again.
    again = fit_line(np.tile(logs, 10), np.tile(events, 10), np.full(3000, 0.1))
    assert (again.slope, again.offset) == pytest.approx((whole.slope, whole.offset), abs=1e-4)


def test_where_all_repeat_an_answer_that_would_not_be_is_no_exception() -> None:
    """Pairs of what people say hold no such answer; drawn ones do, and their C was 20."""
    seen = np.log(np.random.default_rng(0).uniform(0.985, 1.0, 200))
    plain = fit_line(seen, np.ones(200))  # calibrated, as far as can be seen
    assert np.exp(plain(-5.0)) == pytest.approx(np.exp(-5.0), rel=0.1)
    line = fit_repeat_line(seen, np.ones(200))
    for logs in (-30.0, np.log(0.985), 0.0):
        assert np.exp(line(logs)) == pytest.approx(201 / 202, abs=0.005)
    drawn = SelfCheatScores(np.log([0.2, 0.9]), np.array([-5.0, np.log(0.99)]))
    found = SequenceRecalibration(LogitLine(), line, num_pairs=200)(drawn)
    np.testing.assert_allclose(found.epistemic_confidence, [0.2, 0.9], rtol=0.01)
    # One pair that does not repeat, and the chance may depend on the answer again.
    all_but_one = np.append(np.ones(199), 0)
    assert fit_repeat_line(seen, all_but_one) == fit_line(seen, all_but_one)
    assert fit_repeat_line([], []) == LogitLine()


@pytest.mark.parametrize("few", [1, 40])
def test_the_ends_of_the_scale_do_not_decide(few: int) -> None:
    """Right predictions of 0 and 1 are no reason for a line; a wrong one of 1 is."""
    rng = np.random.default_rng(1)
    true = rng.uniform(0.1, 0.9, 400)
    logs, events = np.log(true), rng.random(400) < true
    alone = fit_line(logs, events)
    kept = fit_line(np.append(logs, np.zeros(few)), np.append(events, np.ones(few)))
    probs = np.log(np.linspace(0.1, 0.9, 9))
    np.testing.assert_allclose(np.exp(kept(probs)), np.exp(alone(probs)), atol=0.01)
    # No line moves what is impossible, so that it did not happen, or did, says nothing about one.
    for happened in (np.zeros(few), np.ones(few)):
        same = fit_line(np.append(logs, np.full(few, -np.inf)), np.append(events, happened))
        assert same == alone
    failed = np.concatenate([events, np.zeros(few)])
    assert fit_line(np.append(logs, np.zeros(few)), failed).slope < 0.9
    assert fit_line(np.full(few, -np.inf), np.zeros(few)) == LogitLine()


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
    model = table_model(WORLD, "positions")
    # p(y2|y1,x) is that of a calibrated model only to a tenth: it cheats too little.
    joint = 0.1 * WORLD.calibrated_joint() + 0.9 * WORLD.overconfident_joint()
    network = TableNetwork(model.formatter, joint).eval()
    bad = PairLanguageModel(network, model.formatter)
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
    found = SequenceRecalibration(LogitLine(0.5, 0.1), LogitLine(2.0, -0.3), num_pairs=7)
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
