"""What NumPy would turn into numbers in silence is refused."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess import fit_variance_inflation
from secondguess._arrays import MAX_COUNT, as_counts, as_floats
from secondguess.classification.pairs import PairData


@pytest.mark.parametrize(
    "values",
    [
        np.ma.masked_array([0.5, 0.9], mask=[False, True]),
        np.array([0.5 + 1j, 0.2]),
        np.array(["0.5", "0.2"]),
        np.array([b"0.5", b"0.2"]),
        np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"),
        np.array([1, 2], dtype="timedelta64[s]"),
    ],
    ids=lambda values: str(values.dtype),
)
def test_only_real_numbers_are_numbers(values: np.ndarray):
    with pytest.raises(ValueError, match=r"probs (is a masked array|holds)"):
        as_floats("probs", values)
    with pytest.raises(ValueError, match=r"counts (is a masked array|holds)"):
        as_counts("counts", values.reshape(1, 2))
    with pytest.raises(ValueError, match=r"probs (is a masked array|holds)"):
        fit_variance_inflation(
            values, [0.1, 0.1], [[0, 1], [1, 1]], min_variance=0.1, failure_rate=0.05
        )


@pytest.mark.parametrize("count", [2**62, 2**63, 2**64 - 1, 1e18, MAX_COUNT + 1])
def test_counts_never_wrap(count: float):
    with pytest.raises(ValueError, match="at most"):
        PairData.from_counts(np.array([[count, 1]]))


def test_many_annotations_need_no_memory_of_their_own():
    data = PairData.from_counts([[10**9, 10**9], [10**9, 5]])
    assert data.num_annotations.tolist() == [2 * 10**9, 10**9 + 5]
    assert data.draw(np.random.default_rng(0)).shape == (2, 2)
    with pytest.raises(ValueError, match="too many to list"):
        data.responses(np.random.default_rng(0))
