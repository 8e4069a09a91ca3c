"""Commands on bad inputs: code 0 or 2, one message, no traceback, nothing changed, no litter."""

from __future__ import annotations

import pytest
from fuzz.cases import problem_of


def run_cases(first: int, count: int) -> None:
    found = {number: problem_of(number) for number in range(first, first + count)}
    assert {number: how for number, how in found.items() if how[1] is not None} == {}


@pytest.mark.parametrize("block", range(6))
def test_bad_inputs(block: int) -> None:
    run_cases(50 * block, 50)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_many_bad_inputs(block: int) -> None:
    run_cases(1000 + 100 * block, 100)
