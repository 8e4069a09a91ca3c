"""The tables on CIFAR-10H: made from committed results."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_page_holds_what_the_results_say() -> None:
    spec = importlib.util.spec_from_file_location("cifar10h", DOCS / "tables" / "cifar10h.py")
    assert spec is not None
    assert spec.loader is not None
    render = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)
    assert render.result("cost")
    assert render.rendered() == (DOCS / "cifar10h.md").read_text()
