"""Rankers through one interface: the higher, the more a sample is to be trusted."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess.language.rankers import (
    Ranker,
    clustered,
    epistemic_confidence,
    mean_token_log_probability,
    total_log_probability,
)
from secondguess.language.scoring import ScoredResponse


def response(text: str, marginal: list[float], conditional: list[float]) -> ScoredResponse:
    tokens = (*range(2, 1 + len(marginal)), 0)
    return ScoredResponse(tokens, text, np.log(marginal), np.log(conditional))


SAMPLES = [
    response("six", [0.5, 1.0], [0.5, 1.0]),
    response("it is six", [0.5, 0.5, 0.9, 1.0], [0.5, 0.5, 0.9, 1.0]),
    response("nine", [0.1, 1.0], [0.8, 1.0]),
    response("purple", [0.1, 1.0], [0.05, 1.0]),
]


def same_number(one: ScoredResponse, two: ScoredResponse) -> bool:
    return one.text != "purple" and one.text.split()[-1] == two.text.split()[-1]


@pytest.mark.parametrize(
    ("ranker", "expected"),
    [
        (total_log_probability, np.log([0.5, 0.225, 0.1, 0.1])),
        (mean_token_log_probability, np.log([0.5, 0.225, 0.1, 0.1]) / [2, 4, 2, 2]),
        (epistemic_confidence(), [0, 0, -0.875, -1.0]),
        (epistemic_confidence("one_minus"), [0, 0, -0.875, 1.0]),
        (clustered(same_number, group_size=4), [2, 2, 1, 1]),
    ],
)
def test_every_ranker_gives_one_number_a_sample(
    ranker: Ranker[ScoredResponse], expected: list[float]
) -> None:
    np.testing.assert_allclose(ranker(SAMPLES), expected, atol=1e-12)


def test_groups_are_consecutive_and_do_not_see_each_other() -> None:
    samples = ["a", "a", "b", "a", "a", "a"]
    equal = str.__eq__
    assert clustered(equal, group_size=3)(samples).tolist() == [2, 2, 1, 3, 3, 3]
    assert clustered(equal, group_size=6)(samples).tolist() == [5, 5, 1, 5, 5, 5]


def test_twins_that_equal_nothing_count_one_each() -> None:
    malformed = clustered(lambda one, two: False, group_size=3)
    assert malformed(["?", "?", "?"]).tolist() == [1, 1, 1]


def test_refuses_groups_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"7 samples; expected a multiple of group_size \(5\)"):
        clustered(str.__eq__, group_size=5)(list("abcdefg"))
    with pytest.raises(ValueError, match="group_size is 1"):
        clustered(str.__eq__, group_size=1)
