"""Raters: the test for equal leanings keeps its level and sees, the correction is no too small."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from secondguess.theory.calibration.raters import (
    UnequalRatersError,
    check_equal_leanings,
    discordant_counts,
    pair_design,
    self_pair_share,
)


def fixed_raters(rng, size, offsets):
    """One column per person: p(1|x) differs between persons by offsets of the logit."""
    logits = rng.normal(size=size)[:, None] + np.asarray(offsets)
    return rng.random((size, len(offsets))) < 1 / (1 + np.exp(-logits))


@pytest.mark.statistical
@pytest.mark.parametrize("num_columns", [2, 4])
def test_exchangeable_columns_are_refused_no_more_often_than_stated(num_columns):
    """False alarms: 20 or more of 1,000 at a level of 0.01 have probability 3e-3 at most."""
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(1000):
        responses = rng.random((60, num_columns)) < rng.random((60, 1))
        try:
            check_equal_leanings(responses, level=0.01)
        except UnequalRatersError:
            refused += 1
    assert refused < 20


def test_people_who_lean_differently_are_refused():
    responses = fixed_raters(np.random.default_rng(1), 300, (-2, 0, 2))
    with pytest.raises(UnequalRatersError, match=r"column 1 .* column 0 .*annotators="):
        check_equal_leanings(responses)
    labels = np.where(responses, 2, np.random.default_rng(2).integers(0, 2, responses.shape))
    with pytest.raises(UnequalRatersError):
        check_equal_leanings(labels)


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, float])
def test_discordant_units_are_counted_exactly(most, dtype):
    """Zeros and ones by products of matrices, over more rows than one piece, or any counts."""
    ones = np.random.default_rng(0).integers(0, most + 1, (70_000, 5)).astype(dtype)
    counts = discordant_counts(ones)
    assert counts.dtype == np.int64
    for i in range(5):
        for j in range(5):
            assert counts[i, j] == np.count_nonzero(ones[:, i] > ones[:, j])


@pytest.mark.statistical
def test_groups_have_one_vote_each():
    """Copies of a row are one observation; false alarms: 2e-3 for each half of the test."""
    rng = np.random.default_rng(3)
    responses = np.repeat(rng.random((12, 2)) < 0.5, 100, axis=0)
    responses[:, 0] |= responses[:, 1]
    groups = np.repeat(np.arange(12), 100)
    with pytest.raises(UnequalRatersError):
        check_equal_leanings(responses)
    check_equal_leanings(responses, groups=groups)


def test_the_share_of_known_designs():
    for num_raters in (2, 3, 5):
        everyone = np.tile(np.arange(num_raters), (20, 1))
        assert self_pair_share(everyone) == pytest.approx(1 / num_raters)
        all_pairs = np.array(list(combinations("abcde"[:num_raters], 2)))
        assert self_pair_share(all_pairs) == pytest.approx(1 / num_raters)
    teams = np.repeat([["a", "b"], ["c", "d"]], 30, axis=0)
    assert self_pair_share(teams) == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(20))
def test_the_corrected_product_is_never_too_small(seed):
    """Exactly, over random designs and random raters: sums over all rows and all answers."""
    rng = np.random.default_rng(seed)
    raters = np.array([rng.permutation(5)[:2] for _ in range(8)])
    share = self_pair_share(raters)
    says_one = rng.random(5) if seed % 2 else rng.integers(0, 2, 5).astype(float)
    weights = np.bincount(raters.ravel(), minlength=5) / raters.size
    p, guess = float(weights @ says_one), float(rng.random())
    first, second = says_one[raters[:, 0]], says_one[raters[:, 1]]
    product = (first - guess) * (second - guess)
    squared_difference = first * (1 - second) + second * (1 - first)
    assert np.mean(product + share * squared_difference / 2) >= (p - guess) ** 2 - 1e-12


def test_large_pools_use_the_sparse_solver():
    rng = np.random.default_rng(0)
    raters = np.array([rng.permutation(400)[:2] for _ in range(20_000)])
    names, design = pair_design(raters)
    matrix = np.zeros((400, 400))
    matrix[design[0], design[1]] = design[2]
    scale = np.sqrt(matrix.sum(axis=1))
    least = np.linalg.eigvalsh(matrix / scale / scale[:, None])[0]
    assert len(names) == 400
    assert self_pair_share(raters) == pytest.approx(-least / (1 - least), rel=1e-6)


def test_bad_annotators():
    with pytest.raises(ValueError, match=r"annotators\[1\] is \[2, 2\]: a rater twice"):
        self_pair_share([[1, 2], [2, 2]])
    with pytest.raises(ValueError, match=r"annotators has shape \(3,\)"):
        self_pair_share([1, 2, 3])
