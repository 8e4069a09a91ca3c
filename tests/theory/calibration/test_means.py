"""Bounds for a bounded mean: exact sums, Jensen, one root, shards, coverage, bad input."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondguess.theory.calibration.betting import (
    Block,
    Grid,
    Wealth,
    block_of,
    block_start,
    stakes,
)
from secondguess.theory.calibration.means import (
    BoundedMean,
    mean_interval,
    mean_lower_bound,
    mean_upper_bound,
)

METHODS = ("betting", "bernstein", "hoeffding")


def blocks_of(values, low, high):
    stream = BoundedMean(low, high)
    stream.update(values)
    return stream._complete_blocks(), stream._grid


def unbinned_wealth(values, fractions, top):
    """The same game with every value where it is."""
    rows = [block_of(row) for row in range(len(values))]
    return lambda mean: np.log1p(fractions[rows] * (mean - values) / (top - mean)).sum()


@given(st.integers(0, 10**12))
def test_blocks_partition_the_rows(row):
    block = block_of(row)
    assert block_start(block) <= row < block_start(block + 1)


def test_block_sizes_grow_geometrically():
    sizes = np.diff([block_start(block) for block in range(120)])
    starts = np.array([block_start(block) for block in range(119)])
    assert sizes[0] == 1
    assert (sizes[8:] <= starts[8:] / 4).all()
    assert (sizes[8:] >= starts[8:] / 8).all()


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-6, 1e6),
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
)
def test_the_grid_keeps_the_number_and_the_sum_of_the_values(low, width, shares):
    high = low + width
    values = np.clip(low + np.array(shares) * width, low, high)
    grid = Grid.over(low, high)
    weights = grid.split(values)
    assert grid.points[0] <= low
    assert grid.top >= high
    assert grid.num_points <= 8195
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(len(values), rel=1e-12)
    scale = len(values) * (abs(low) + width)
    assert weights @ grid.points == pytest.approx(values.sum(), rel=0, abs=1e-13 * scale)


@given(
    st.integers(0, 2**32),
    st.integers(1, 300),
    st.sampled_from([(0.0, 1.0), (-2500.0, 10000.0), (3.0, 3.5)]),
    st.floats(1e-3, 0.5),
)
@settings(deadline=None, max_examples=200)
def test_with_equal_stakes_binning_never_lowers_the_bound(seed, size, ends, failure_rate):
    """Jensen: the binned log-wealth is below the unbinned one at every candidate mean."""
    low, high = ends
    rng = np.random.default_rng(seed)
    values = low + (high - low) * rng.beta(rng.uniform(0.05, 3), rng.uniform(0.05, 3), size=size)
    blocks, grid = blocks_of(values, low, high)
    log_level = -np.log(failure_rate)
    origin = min(max(0.0, low), high)
    fractions = stakes(blocks, bottom=float(grid.points[0]), top=grid.top, log_level=log_level)
    binned = Wealth.of(blocks, fractions, grid.points)
    exact = unbinned_wealth(values - origin, fractions, grid.top)
    for mean in np.linspace(low - origin, high - origin, 9)[:-1]:
        scale = 1e-12 * (1 + size)
        assert binned.log(float(mean))[0] <= exact(mean) + scale
    bound = binned.crossing(log_level, start=float(grid.points[0]))
    if bound < grid.top:
        assert exact(bound) >= log_level - 1e-9


@given(st.integers(0, 2**32), st.integers(1, 200))
@settings(deadline=None, max_examples=50)
def test_log_wealth_grows_with_the_candidate(seed, size):
    rng = np.random.default_rng(seed)
    blocks, grid = blocks_of(rng.random(size) ** rng.uniform(0.1, 10), 0.0, 1.0)
    wealth = Wealth.of(blocks, rng.random(len(blocks)), grid.points)
    means = np.linspace(0, 0.999, 50)
    logs, slopes = np.transpose([wealth.log(float(mean)) for mean in means])
    assert (np.diff(logs) >= -1e-9).all()
    nudge = 1e-6
    numeric = [(wealth.log(m + nudge)[0] - wealth.log(m)[0]) / nudge for m in means]
    assert slopes == pytest.approx(numeric, rel=1e-2, abs=1e-3)


def test_stakes_depend_on_earlier_blocks_only():
    rng = np.random.default_rng(0)
    values = rng.random(1000)
    changed = values.copy()
    changed[block_start(20) :] = rng.random(1000 - block_start(20)) ** 8
    before, after = (
        stakes(blocks_of(v, 0, 1)[0], bottom=0.0, top=1.0, log_level=3.0) for v in (values, changed)
    )
    assert (before[:21] == after[:21]).all()
    assert (before[21:] != after[21:]).any()


def test_anytime_stakes_do_not_depend_on_the_length_of_the_stream():
    values = np.random.default_rng(0).random(1000)
    short, long = (
        stakes(blocks_of(v, 0, 1)[0], bottom=0.0, top=1.0, log_level=3.0, anytime=True)
        for v in (values[:640], values)
    )
    assert (long[: len(short)] == short).all()


def test_stakes_of_known_sums():
    """By hand: one block of 3 rows 0, 0, 1, then a second block, failure rate exp(-2)."""
    blocks = [Block(3, 1.0, 1.0, 1.0), Block(5, 0.0, 0.0, 0.0)]
    first, second = stakes(blocks, bottom=0.0, top=1.0, log_level=2.0)
    q = np.sqrt(2 * 2.0 / (8 * 0.25))
    assert first == pytest.approx((q + q**2 / 3) / (1 + q + q**2 / 3))
    reach = 1 - (0.5 + 1) / 4
    deviations = np.array([-1, -1, 2]) / 3 / reach
    variance = (0.25 + (deviations**2).sum()) / 4
    distance = (0.25 + (deviations**3).sum()) / 4 / variance
    q = distance * np.sqrt(2 * 2.0 / (8 * variance))
    assert second == pytest.approx((q + q**2 / 3) / (1 + q + q**2 / 3) / distance)


def test_stakes_stay_below_the_whole_wealth():
    blocks = [Block(1, 0.0, 0.0, 0.0)] * 50
    assert stakes(blocks, bottom=0.0, top=1.0, log_level=1e9).max() == 0.95


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
@pytest.mark.parametrize("anytime", [False, True])
def test_bounds_mirror_and_scale(method, anytime):
    """lower(x) = -upper(-x); a range four times as wide gives bounds four times as large."""
    values = np.random.default_rng(0).beta(1, 5, size=3000)
    plain, negated = BoundedMean(0, 1, method), BoundedMean(-1, 0, method)
    scaled = BoundedMean(0, 4, method)
    plain.update(values)
    negated.update(-values)
    scaled.update(4 * values)
    assert plain.lower(0.05, anytime=anytime) == pytest.approx(
        -negated.upper(0.05, anytime=anytime), rel=1e-12
    )
    assert scaled.upper(0.05, anytime=anytime) == pytest.approx(
        4 * plain.upper(0.05, anytime=anytime), rel=1e-12
    )
    assert plain.upper(0.05, anytime=True) > plain.upper(0.05)


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
    assert chunked.upper(0.05) == pytest.approx(whole.upper(0.05), rel=1e-12)


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
        assert first.upper(failure_rate) == pytest.approx(whole.upper(failure_rate), rel=1e-12)
        assert first.lower(failure_rate) == pytest.approx(whole.lower(failure_rate), rel=1e-12)


def test_missing_and_repeated_rows_are_noticed():
    stream = BoundedMean(0, 1)
    stream.update(np.zeros(10))
    stream.update(np.zeros(10), start=12)
    with pytest.raises(ValueError, match="20 rows were read but the last one is at position 21"):
        stream.upper(0.05)
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
def test_looking_at_any_time_fails_no_more_often_than_promised():
    """One look at every chunk of 20 rows; false alarms below 1e-3 if the rate were exactly 0.2."""
    rng = np.random.default_rng(7)
    fails = 0
    for _ in range(100):
        stream = BoundedMean(0, 1)
        failed = False
        for chunk in (rng.random((15, 20)) < 0.5).astype(float):
            stream.update(chunk)
            failed |= stream.upper(0.2, anytime=True) < 0.5
        fails += failed
    assert fails / 100 <= 0.2 + 3.1 * np.sqrt(0.2 * 0.8 / 100)


def test_betting_is_tighter_where_the_variance_is_small():
    values = np.random.default_rng(0).beta(1, 20, size=10_000)
    bounds = [
        mean_upper_bound(values, low=0, high=1, failure_rate=0.05, method=method)
        for method in METHODS
    ]
    assert bounds == sorted(bounds)
    assert mean_lower_bound(values, low=0, high=1, failure_rate=0.05) < values.mean() < bounds[0]
