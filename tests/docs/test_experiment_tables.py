"""The tables of the experiments' pages: made from committed results."""

from __future__ import annotations

import importlib
import json
from types import ModuleType

import pytest
from pages import DOCS


@pytest.fixture(
    params=[
        "regression",
        "digits_of_pi",
        "frozen_lake",
        "cifar10h",
        "facts",
        "associations",
        "ece_floor",
        "results",
        "serving_page",
        "promises",
        "house",
    ]
)
def script(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def test_the_page_holds_what_the_results_say(script: ModuleType) -> None:
    assert script.results()
    assert script.rendered() == (DOCS / script.PAGE).read_text()


def test_kept_claims_are_those_of_today() -> None:
    """Claims that were sharpened since a run are decided anew on what it kept."""
    judge = importlib.import_module("judge")
    for name in judge.RUNS:
        run = json.loads((judge.KEPT / name).read_text())
        assert judge.judged(run) == run["claims"]
