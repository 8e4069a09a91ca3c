"""The tables of the experiments' pages: made from committed results."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from pages import DOCS


@pytest.fixture(
    params=[
        "regression",
        "digits_of_pi",
        "frozen_lake",
        "cifar10h",
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
