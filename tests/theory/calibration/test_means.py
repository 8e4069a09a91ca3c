"""Bounds for a bounded mean: exact sums, Jensen, one root, shards, coverage, bad input."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondguess.theory.calibration.betting import Parts, Wealth, stakes
from secondguess.theory.calibration.means import (
    BoundedMean,
    mean_interval,
    mean_lower_bound,
    mean_upper_bound,
)
from secondguess.theory.calibration.scatter import NUM_PARTS, order_of_parts, parts_of
from secondguess.theory.calibration.tally import Grid, Tally

METHODS = ("betting", "bernstein", "hoeffding")


def read(values, low, high):
    stream = BoundedMean(low, high)
    stream.update(values)
    return Parts.of(stream._tally)


def by_hand(rows):
    """Parts on [0, 1] from lists of values, without a grid."""
    sizes = [len(row) for row in rows]
    return Parts(
        count=np.array(sizes, dtype=float),
        total=np.array([float(sum(row)) for row in rows]),
        first=np.cumsum([0, *sizes[:-1]]),
        weights=np.ones(sum(sizes)),
        values=np.concatenate([np.asarray(row, dtype=float) for row in rows]),
        bottom=0.0,
        top=1.0,
    )


def test_parts_are_a_function_of_the_position_with_equal_shares():
    """Chi-square of the shares over a million positions; false alarm about 1e-6."""
    parts = parts_of(0, 1_000_000)
    counts = np.bincount(parts, minlength=NUM_PARTS)
    expected = 1e6 / NUM_PARTS
    assert len(counts) == NUM_PARTS
    assert ((counts - expected) ** 2 / expected).sum() < NUM_PARTS + 5 * np.sqrt(2 * NUM_PARTS)
    for start in (1, 2, 3, 777, 123_456):
        assert (parts_of(start, 1000) == parts[start : start + 1000]).all()
    # Neighbours are as good as independent: sorted files are scattered evenly.
    late = parts >= NUM_PARTS // 2
    assert abs(np.mean(late[1:] & late[:-1]) - 0.25) < 0.0025
    assert (parts_of(0, 1000, seed=1) != parts[:1000]).mean() > 0.9


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-6, 1e6),
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
)
def test_the_grid_keeps_the_number_and_the_sum_of_the_values(low, width, shares):
    origin = min(max(0.0, low), low + width)
    low, high = low - origin, low + width - origin
    values = np.clip(low + np.array(shares) * width, low, high)
    grid = Grid.over(low, high)
    cells, units = grid.cells(values)
    assert grid.points[0] <= low
    assert grid.points[-1] >= high
    assert (np.diff(grid.ends) >= 0).all()
    assert (grid.ends[cells] <= units).all()
    assert (units <= grid.ends[cells + 1]).all()
    assert np.abs(units * grid.unit - values).max() <= grid.unit / 2 * (1 + 1e-9)
    tally = Tally(grid, 1)
    tally.add(values, np.zeros(len(values), dtype=np.int64))
    parts = Parts.of(tally)
    assert (parts.weights >= 0).all()
    assert parts.weights.sum() == pytest.approx(len(values), rel=1e-12)
    assert parts.total[0] == units.sum() * grid.unit
    assert parts.moment(1)[0] == pytest.approx(parts.total[0], rel=1e-9, abs=1e-9 * width)


@given(
    st.integers(0, 2**32),
    st.integers(1, 300),
    st.sampled_from([(0.0, 1.0), (-2500.0, 10000.0), (3.0, 3.5)]),
    st.floats(1e-3, 0.5),
)
@settings(deadline=None, max_examples=60)
def test_with_equal_stakes_binning_never_lowers_the_bound(seed, size, ends, failure_rate):
    """Jensen: the binned log-wealth is below the unbinned one at every candidate mean."""
    low, high = ends
    rng = np.random.default_rng(seed)
    values = low + (high - low) * rng.beta(rng.uniform(0.05, 3), rng.uniform(0.05, 3), size=size)
    parts = read(values, low, high)
    log_level = -np.log(failure_rate)
    fractions = stakes(parts, log_level)
    binned = Wealth.of(parts, fractions)
    origin = min(max(0.0, low), high)
    stream = BoundedMean(low, high)
    stream.update(values)
    place = order_of_parts(stream._tally.entries().content())[parts_of(0, size)]
    _, row = np.unique(place, return_inverse=True)

    def exact(mean):
        gains = fractions[row] * (mean - (values - origin)) / (parts.top - mean)
        return np.cumsum(np.bincount(row, np.log1p(gains)))

    unit = Grid.over(low - origin, high - origin).unit
    for mean in np.linspace(low - origin, high - origin, 9)[:-1]:
        slack = size * (1e-11 + unit / (parts.top - mean) / 0.05)
        assert (binned.logs(float(mean)) <= exact(mean) + slack).all()
    bound = binned.crossing(log_level)
    if bound < parts.top:
        # Next to the top a step of the last bit of the candidate is a step of the wealth.
        last_bit = 4e-16 * (high - low) * binned.slope(bound, len(parts.count) - 1)
        assert binned.logs(bound).max() == pytest.approx(log_level, abs=1e-8 + last_bit)


@given(st.integers(0, 2**32), st.integers(1, 200))
@settings(deadline=None, max_examples=50)
def test_log_wealth_grows_with_the_candidate(seed, size):
    rng = np.random.default_rng(seed)
    parts = read(rng.random(size) ** rng.uniform(0.1, 10), 0.0, 1.0)
    wealth = Wealth.of(parts, rng.random(len(parts.count)))
    means = np.linspace(0, 0.999, 50)
    last = len(parts.count) - 1
    logs = np.array([wealth.logs(float(mean)) for mean in means])
    slopes = [wealth.slope(float(mean), last) for mean in means]
    assert (np.diff(logs, axis=0) >= -1e-9).all()
    nudge = 1e-6
    numeric = [(wealth.logs(m + nudge)[-1] - wealth.logs(m)[-1]) / nudge for m in means]
    assert slopes == pytest.approx(numeric, rel=1e-2, abs=1e-3)


def test_stakes_depend_on_earlier_parts_only():
    rng = np.random.default_rng(0)
    rows = [list(rng.random(5)) for _ in range(60)]
    changed = [*rows[:20], *(list(rng.random(5) ** 8) for _ in range(40))]
    before, after = (stakes(by_hand(r), 3.0) for r in (rows, changed))
    assert (before[:21] == after[:21]).all()
    assert (before[21:] != after[21:]).any()


def test_stakes_of_known_sums():
    """By hand: one part of 3 rows 0, 0, 1, then a second part, failure rate exp(-2)."""
    first, second = stakes(by_hand([[0, 0, 1], [0, 0, 0, 0, 0]]), 2.0)
    q = np.sqrt(2 * 2.0 / (8 * 0.25))
    assert first == pytest.approx((q + q**2 / 3) / (1 + q + q**2 / 3))
    reach = 1 - (0.5 + 1) / 4
    deviations = np.array([-1, -1, 2]) / 3 / reach
    variance = (0.25 + (deviations**2).sum()) / 4
    distance = (0.25 + (deviations**3).sum()) / 4 / variance
    q = distance * np.sqrt(2 * 2.0 / (8 * variance))
    assert second == pytest.approx((q + q**2 / 3) / (1 + q + q**2 / 3) / distance)


def test_stakes_stay_below_the_whole_wealth():
    assert stakes(by_hand([[0.0]] * 50), 1e9).max() == 0.95


def test_the_bound_is_the_least_crossing_over_prefixes():
    """After 40 zeros the wealth is high; the ones that follow cannot take the bound back."""
    zeros = [[0.0]] * 40
    level = np.log(20)
    both = by_hand([*zeros, *([[1.0]] * 40)])
    fractions = np.full(80, 0.3)
    found = Wealth.of(both, fractions).crossing(level)
    alone = Wealth.of(by_hand(zeros), fractions[:40]).crossing(level)
    assert found == pytest.approx(alone, rel=1e-9)
    only_last = Wealth.of(both, fractions)._crossing_after(79, level, 0.0)
    assert only_last > 2 * found


@pytest.mark.parametrize("method", METHODS)
def test_formulas_by_hand(method):
    values = np.array([0.0, 1.0, 1.0, 2.0])
    bound = mean_upper_bound(values, low=0, high=100, failure_rate=0.05, method=method)
    if method == "hoeffding":
        assert bound == pytest.approx(1 + 100 * np.sqrt(np.log(20) / 8))
    elif method == "bernstein":
        assert bound == 100.0  # 7 * 100 * log(40) / 9 alone exceeds the range
        many = np.tile(values, 1000)
        bound = mean_upper_bound(many, low=0, high=100, failure_rate=0.05, method=method)
        radius = np.sqrt(2 * many.var(ddof=1) * np.log(40) / 4000)
        assert bound == pytest.approx(1 + radius + 700 * np.log(40) / (3 * 3999), rel=1e-12)
    else:
        assert 1 < bound < 100


@pytest.mark.parametrize("method", METHODS)
def test_bounds_mirror_and_scale(method):
    """lower(x) = -upper(-x); a range four times as wide gives bounds four times as large."""
    values = np.random.default_rng(0).beta(1, 5, size=3000)
    plain, negated = BoundedMean(0, 1, method), BoundedMean(-1, 0, method)
    scaled = BoundedMean(0, 4, method)
    plain.update(values)
    negated.update(-values)
    scaled.update(4 * values)
    assert plain.lower(0.05) == pytest.approx(-negated.upper(0.05), rel=1e-12)
    assert scaled.upper(0.05) == pytest.approx(4 * plain.upper(0.05), rel=1e-12)


def test_moved_ranges_move_the_bounds():
    values = np.random.default_rng(0).beta(1, 5, size=3000)
    here = mean_interval(values, low=0, high=1, failure_rate=0.1)
    there = mean_interval(values + 4, low=4, high=5, failure_rate=0.1)
    assert np.subtract(there, 4) == pytest.approx(here, rel=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("size", [1, 2, 100, 10_000])
def test_constant_values(value, size):
    low, high = mean_interval(np.full(size, value), low=0, high=1, failure_rate=0.05)
    assert 0 <= low <= value <= high <= 1
    # The bound cannot be tighter than the mean of a law that is constant but for a chance
    # log(1/f)/n of the far end; it should come near.
    assert high - value <= 1.5 * (1 - value) * np.log(40) / size + 2e-3 / np.sqrt(size)


@pytest.mark.parametrize("method", METHODS)
def test_chunks_do_not_matter(method):
    values = np.random.default_rng(0).lognormal(0, 1, size=20_000).clip(0, 50)
    whole, chunked = BoundedMean(0, 50, method), BoundedMean(0, 50, method)
    whole.update(values)
    for chunk in np.array_split(values, [1, 2, 500, 501, 7000, 19_999]):
        chunked.update(chunk)
    assert chunked.num_rows == whole.num_rows
    assert chunked.upper(0.05) == whole.upper(0.05)


def products_shard(shard):
    """Rows [start, end) of a stream like S with a cutoff of 1e-6, in a process of its own."""
    start, end = shard
    rng = np.random.default_rng(5)
    values = rng.choice([-0.2, 0.04, 0.6], p=[0.3, 0.65, 0.05], size=200_000)
    values /= np.exp(rng.uniform(-13, 0, size=200_000)).clip(1e-6)
    stream = BoundedMean(-0.25e6, 1e6)
    stream.update(values[start:end], start=start)
    return stream


def test_shards_in_processes_give_the_bound_of_one_process():
    whole = products_shard((0, 200_000))
    shards = [(120_000, 200_000), (0, 13), (13, 70_001), (70_001, 120_000)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        first, *others = pool.map(products_shard, shards)
    for other in others:
        first.merge(other)
    for failure_rate in (0.01, 0.2):
        assert first.upper(failure_rate) == whole.upper(failure_rate)
        assert first.lower(failure_rate) == whole.lower(failure_rate)


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_arrival_does_not_matter_to_the_last_bit(method):
    rng = np.random.default_rng(3)
    values = rng.lognormal(0, 2, size=3000).clip(0, 90)
    whole, scrambled = BoundedMean(0, 100, method), BoundedMean(0, 100, method)
    whole.update(values)
    for row in rng.permutation(3000).tolist():
        scrambled.update(values[row : row + 1], start=row)
    assert scrambled.interval(0.05) == whole.interval(0.05)
    assert scrambled.mean == whole.mean


def test_missing_and_repeated_rows_are_noticed():
    stream = BoundedMean(0, 1)
    stream.update(np.zeros(10))
    stream.update(np.zeros(10), start=12)
    with pytest.raises(ValueError, match="20 rows were read and the last one is at position 21"):
        stream.upper(0.05)
    swapped = BoundedMean(0, 1)  # rows 5 to 9 twice, 10 to 14 never: the number of rows is right
    for start in (0, 5, 5, 15):
        swapped.update(np.zeros(5), start=start)
    with pytest.raises(ValueError, match="every position exactly once"):
        swapped.upper(0.05)
    twice = BoundedMean(0, 1)
    twice.update(np.zeros(10))
    twice.update(np.zeros(10), start=0)
    with pytest.raises(ValueError, match="every position exactly once"):
        twice.upper(0.05)


@pytest.mark.parametrize(
    ("bad", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (1.5, "1.5"), (-1e-9, "-1e-09")]
)
@pytest.mark.parametrize("method", METHODS)
def test_values_outside_the_range_are_named_and_nothing_is_read(method, bad, shown):
    stream = BoundedMean(0, 1, method)
    stream.update(np.zeros(5))
    with pytest.raises(ValueError, match=rf"values\[7\] is {shown}; expected a number in \[0.0, 1"):
        stream.update([0.0, 0.5, bad, 1.0])
    assert stream.num_rows == 5


def test_bad_arguments():
    with pytest.raises(ValueError, match="low < high"):
        BoundedMean(1, 1)
    with pytest.raises(ValueError, match="expected one of betting, bernstein, hoeffding"):
        BoundedMean(0, 1, "student")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="no rows were read"):
        BoundedMean(0, 1).upper(0.05)
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        mean_upper_bound([[0, 1]], low=0, high=1, failure_rate=0.1)
    with pytest.raises(ValueError, match="failure_rate is 0"):
        mean_upper_bound([0, 1], low=0, high=1, failure_rate=0)
    with pytest.raises(ValueError, match="cannot merge"):
        BoundedMean(0, 1).merge(BoundedMean(0, 2))


LAWS = {
    "two points at the ends": (lambda rng, shape: (rng.random(shape) < 0.3).astype(float), 0.3),
    "rare large values": (lambda rng, shape: (rng.random(shape) < 0.01).astype(float), 0.01),
    "skewed": (lambda rng, shape: rng.beta(0.2, 2, shape), 1 / 11),
    "symmetric": (lambda rng, shape: rng.random(shape), 0.5),
}


@pytest.mark.statistical
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("method", METHODS)
def test_the_bound_fails_no_more_often_than_promised(law, method):
    """False alarms: below 1e-3 per case even if the failure rate were exactly 0.1."""
    draw, mean = LAWS[law]
    rng = np.random.default_rng(2024)
    replicates = 300
    fails = 0
    for values in draw(rng, (replicates, 250)):
        fails += mean_upper_bound(values, low=0, high=1, failure_rate=0.1, method=method) < mean
    assert fails / replicates <= 0.1 + 3.1 * np.sqrt(0.1 * 0.9 / replicates)


@pytest.mark.statistical
@pytest.mark.parametrize("law", LAWS)
def test_sorted_values_are_bounded_as_well(law):
    """False alarms: below 1e-3 per case even if the failure rate were exactly 0.1."""
    draw, mean = LAWS[law]
    rng = np.random.default_rng(2025)
    for order in (np.sort, lambda values: np.sort(values)[::-1]):
        fails = 0
        for values in draw(rng, (300, 250)):
            fails += mean_upper_bound(order(values), low=0, high=1, failure_rate=0.1) < mean
        assert fails / 300 <= 0.1 + 3.1 * np.sqrt(0.1 * 0.9 / 300)


def test_betting_is_tighter_where_the_variance_is_small():
    values = np.random.default_rng(0).beta(1, 20, size=10_000)
    bounds = [
        mean_upper_bound(values, low=0, high=1, failure_rate=0.05, method=method)
        for method in METHODS
    ]
    assert bounds == sorted(bounds)
    assert mean_lower_bound(values, low=0, high=1, failure_rate=0.05) < values.mean() < bounds[0]


def test_a_bound_next_to_the_top_is_found_in_spite_of_rounding():
    """96 ones and 4 zeros in an order in which the search once went back and forth for ever."""
    rng = np.random.default_rng([0, 100])
    values = (rng.random((301, 100)) < 0.9)[300] * 1.0
    assert values.sum() == 96
    assert 0.96 < mean_upper_bound(values, low=0, high=1, failure_rate=0.05) <= 1
    assert 0 <= mean_lower_bound(1 - values, low=0, high=1, failure_rate=0.05) < 0.04
