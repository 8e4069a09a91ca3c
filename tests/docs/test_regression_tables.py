"""The tables on one-dimensional regression: made from committed results."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_page_holds_what_the_results_say() -> None:
    spec = importlib.util.spec_from_file_location("regression", DOCS / "tables" / "regression.py")
    assert spec is not None
    assert spec.loader is not None
    render = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)
    assert render.results()
    assert render.rendered() == (DOCS / "regression.md").read_text()
