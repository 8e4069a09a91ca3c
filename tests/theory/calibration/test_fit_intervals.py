"""Certified intervals from counts, from end to end, on worlds whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from secondguess.theory.calibration.fit_inflation import fit_variance_inflation
from secondguess.theory.calibration.fit_intervals import (
    MAX_CHOOSING_ROWS,
    divided,
    fit_intervals,
)
from secondguess.theory.calibration.interval_plan import CountRows, IntervalMethod, plan_intervals
from secondguess.theory.calibration.interval_stream import IntervalStream
from secondguess.theory.calibration.pair_counts import PairCountStream


def binary_world(rng, n, k):
    """A predictor that is off by a tenth, and states twice its variance."""
    true_probs = rng.beta(1, 3, n)
    probs = np.clip(true_probs + rng.normal(0, 0.1, n), 0, 1)
    return true_probs, probs, np.full(n, 0.02), rng.binomial(k, true_probs), np.full(n, k)


def class_world(rng, n, k):
    true_probs = rng.dirichlet([0.2, 0.5, 1.0], n)
    probs = 0.7 * true_probs + 0.3 / 3
    return true_probs, probs, np.full((n, 3), 0.01), rng.multinomial(k, true_probs)


def failures_allowed(replicates, failure_rate, false_alarm=1e-6):
    return stats.binom.isf(false_alarm, replicates, failure_rate)


@pytest.mark.statistical
@pytest.mark.parametrize("method", ["pairs", "counts", "auto"])
@pytest.mark.parametrize("k", [2, 20])
def test_the_failure_rate_is_kept(method, k):
    """100 calibration sets, failure rate 0.2; false alarms with probability 1e-6, seed fixed."""
    rng = np.random.default_rng([k, 0])
    fresh = binary_world(rng, 20_000, k)
    failures = 0
    for replicate in range(100):
        _, *rows = binary_world(rng, 300, k)
        fitted = fit_intervals(
            *rows, miss_rate=0.2, failure_rate=0.2, method=method, seed=replicate
        )
        failures += fitted.interval(fresh[1], fresh[2]).contains(fresh[0]).mean() < 0.8
    assert failures <= failures_allowed(100, 0.2)


@pytest.mark.statistical
def test_a_test_that_detects_too_little_would_be_caught(monkeypatch):
    """The control of the test above: with thresholds that lie, the truth is missed too often."""
    from secondguess.theory.calibration import counts

    honest = counts.upper_thresholds
    monkeypatch.setattr(counts, "upper_thresholds", lambda k, rate: 0.5 * honest(k, rate))
    rng = np.random.default_rng(0)
    fresh = binary_world(rng, 20_000, 20)
    failures = 0
    for replicate in range(40):
        _, *rows = binary_world(rng, 300, 20)
        fitted = fit_intervals(
            *rows, miss_rate=0.2, failure_rate=0.2, method="counts", seed=replicate
        )
        failures += fitted.interval(fresh[1], fresh[2]).contains(fresh[0]).mean() < 0.8
    assert failures > failures_allowed(40, 0.2)


def test_the_order_of_the_rows_does_not_decide():
    """Sorted by label or shuffled: the widths agree within what chance does."""
    rng = np.random.default_rng(5)
    _, *rows = binary_world(rng, 3000, 10)
    by_label = np.argsort(rows[2])
    for method in ("pairs", "counts"):
        as_drawn = fit_intervals(*rows, method=method)
        sorted_rows = fit_intervals(*(row[by_label] for row in rows), method=method)
        widths = [f.interval(rows[0], rows[1]).width.mean() for f in (as_drawn, sorted_rows)]
        assert 0.8 < widths[0] / widths[1] < 1.25


def test_counts_beat_pairs_where_there_are_many_responses_and_auto_knows():
    rng = np.random.default_rng(1)
    _, *rows = binary_world(rng, 2000, 50)
    fitted = {m: fit_intervals(*rows, method=m) for m in ("pairs", "counts", "auto")}
    widths = {m: f.interval(rows[0], rows[1]).width.mean() for m, f in fitted.items()}
    assert widths["counts"] < 0.8 * widths["pairs"]
    assert fitted["auto"].methods == fitted["counts"].methods == ("counts",)
    assert widths["auto"] <= 1.05 * widths["counts"]


def test_classes_by_themselves_and_jointly():
    rng = np.random.default_rng(2)
    _, *rows = class_world(rng, 4000, 30)
    for method in ("pairs", "counts"):
        apart = fit_intervals(*rows, method=method, failure_rate=0.003)
        together = fit_intervals(*rows, method=method, failure_rate=0.003, jointly=True)
        fresh_probs, *fresh = class_world(rng, 20_000, 30)
        by_class = apart.interval(fresh[0], fresh[1])
        assert len(apart.parts) == 3
        assert [part.failure_rate for part in apart.parts] == [0.001] * 3
        assert (by_class.contains(fresh_probs).mean(axis=0) >= 0.9).all()
        joint = together.interval(fresh[0], fresh[1])
        assert joint.contains(fresh_probs).all(axis=1).mean() >= 0.9
        assert joint.lower.min() >= 0
        assert joint.upper.max() <= 1


def test_one_row_of_each_group_is_used():
    rng = np.random.default_rng(3)
    _, *rows = binary_world(rng, 600, 5)
    groups = np.repeat(np.arange(200), 3)
    fitted = fit_intervals(*rows, groups=groups, method="counts", miss_rate=0.3)
    assert fitted.parts[0].num_rows + fitted.num_choosing == 200
    repeated = [np.repeat(row[::3], 3) for row in rows]
    again = fit_intervals(*repeated, groups=groups, method="counts", miss_rate=0.3)
    assert again.parts[0].num_rows == fitted.parts[0].num_rows


def test_pieces_read_by_several_processes_in_any_order_give_the_same():
    rng = np.random.default_rng(8)
    cases: tuple[tuple[int, IntervalMethod], ...] = ((2, "auto"), (50, "counts"), (5, "pairs"))
    for k, method in cases:
        _, probs, variance, ones, totals = binary_world(rng, 3000, k)
        rows = CountRows(probs, variance, ones, totals)
        fitted = fit_intervals(*rows, method=method, seed=3)
        chooses, certifies = divided(3000, seed=3)
        plan = plan_intervals(
            rows.take(chooses),
            num_certifying=int(certifies.sum()),
            fewest_responses=k,
            miss_rate=0.1,
            failure_rate=0.05,
            method=method,
            seed=3,
        )
        streams = []
        for start, stop in ((2000, 3000), (0, 700), (700, 2000)):
            stream = IntervalStream(plan, fewest_responses=k)
            part = np.arange(start, stop)
            stream.update(rows.take(part), start, used=certifies[part])
            streams.append(stream)
        for other in streams[1:]:
            streams[0].merge(other)
        assert streams[0].result() == fitted.parts


def test_rows_that_choose_are_as_many_for_few_and_a_share_of_many():
    for size in (2, 9, 100, 5000):
        chooses, certifies = divided(size)
        assert chooses.sum() == min(max(size // 5, 1), MAX_CHOOSING_ROWS)
        assert (chooses ^ certifies).all()
    chooses, _ = divided(100_000)
    assert abs(int(chooses.sum()) - MAX_CHOOSING_ROWS) < 300
    groups = np.repeat(np.arange(50), np.arange(1, 51))
    chooses, certifies = divided(len(groups), groups)
    assert chooses.sum() == 10
    assert len(np.unique(groups[chooses | certifies])) == 50
    assert (chooses | certifies).sum() == 50


@pytest.mark.parametrize(("responses", "share"), [([2, 3, 3], 0.8), ([2, 4, 40], 0.5)])
def test_both_hold_together_and_a_typical_row_says_how_much_each_gets(responses, share):
    """Whatever a row may have at least: one poor row does not decide."""
    rng = np.random.default_rng(0)
    totals = np.resize(responses, 90)
    truths = rng.random(90)
    rows = CountRows(truths, np.full(90, 0.02), rng.binomial(totals, truths), totals)
    plan = plan_intervals(
        rows,
        num_certifying=360,
        fewest_responses=2,
        miss_rate=0.1,
        failure_rate=0.05,
        method="auto",
    )
    assert plan.share_of_pairs == share
    if plan.counts and plan.cutoffs:
        assert plan.failure_rates == pytest.approx(((1 - share) * 0.05, share * 0.05))


def test_the_choice_takes_a_share_and_no_more_than_needed():
    rng = np.random.default_rng(4)
    _, *rows = binary_world(rng, 12_000, 5)
    assert fit_intervals(*rows).num_choosing == MAX_CHOOSING_ROWS
    assert fit_intervals(*(row[:100] for row in rows)).num_choosing == 20


def test_pairs_from_counts_are_algorithm_1():
    rng = np.random.default_rng(6)
    _, probs, variance, ones, k = binary_world(rng, 500, 7)
    responses = rng.permuted(np.arange(7) < ones[:, None], axis=1)
    stream = PairCountStream(min_variance=0.01, fewest_responses=7)
    stream.update(probs, variance, ones, k)
    from_counts = stream.result(0.05)
    from_table = fit_variance_inflation(
        probs, variance, responses, min_variance=0.01, failure_rate=0.05
    )
    assert from_counts.mean == pytest.approx(from_table.mean, abs=1e-12)
    assert from_counts.value == pytest.approx(from_table.value, rel=1e-9)


def test_complaints_say_what_to_do():
    with pytest.raises(ValueError, match="num_responses is missing"):
        fit_intervals([0.5, 0.5], [0.1, 0.1], [1, 1])
    with pytest.raises(ValueError, match="needs two responses per row"):
        fit_intervals([0.5, 0.5], [0.1, 0.1], [1, 1], [1, 2], method="pairs")
    with pytest.raises(ValueError, match="expected one of auto, pairs, counts"):
        fit_intervals([0.5, 0.5], [0.1, 0.1], [1, 1], 2, method="moments")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"groups has shape \(1,\)"):
        fit_intervals([0.5, 0.5], [0.1, 0.1], [1, 1], 2, groups=[1])
