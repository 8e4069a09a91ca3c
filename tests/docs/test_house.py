"""The house as CONTRIBUTING tells it: short modules, and repeated code with its reasons."""

from __future__ import annotations

import ast
from pathlib import Path

import house
import pytest
import repeated_code
from pages import DOCS
from repeated_code import REASONS, Pair, place, read_pairs, reason_of, results, without_reason

ROOT = DOCS.parent


def test_no_module_is_longer_than_the_limit() -> None:
    sizes = {module: text.count("\n") for module, text in house.sources(ROOT).items()}
    assert [module for module, size in sizes.items() if size > house.LIMIT] == []


def test_every_pair_has_a_reason_and_every_reason_a_pair() -> None:
    assert without_reason(results()) == []
    given = [reason_of(pair) for pair in results()]
    assert [reason.text for reason in REASONS if reason not in given] == []


@pytest.mark.parametrize("pair", results(), ids=lambda pair: " ~ ".join(pair["places"]))
def test_the_places_exist(pair: Pair) -> None:
    for each in pair["places"]:
        path, _, names = each.partition("::")
        file = next(
            file for file in (ROOT / path, ROOT / "src/secondguess" / path) if file.exists()
        )
        written = {
            getattr(node, "name", getattr(node, "id", "imports"))
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        }
        assert set(names.split(".")) - {""} <= written


def test_a_pair_is_named_by_what_holds_most_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_code, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text(
        "import os\n\nLIMIT = 3\n\n\n"
        "class Pot:\n    def cook(self):\n        x = 1\n        return x\n"
    )
    (tmp_path / "Makefile").write_text("all:\n")
    assert place("a.py", 1, 1) == "a.py::imports"
    assert place("a.py", 3, 6) == "a.py::LIMIT"
    assert place("a.py", 6, 9) == place("a.py", 8, 9) == "a.py::Pot.cook"
    assert place("Makefile", 1, 1) == "Makefile"


def test_a_pair_without_a_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_code, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text("def cook():\n    pass\n")
    pairs = read_pairs(["2 pairs of places", "D1 a.py:1-2 ~ a.py:1-2 shape (+1 more run)"])
    assert without_reason(pairs) == ["a.py::cook ~ a.py::cook"]
    same = {"places": ["cli/fit.py::LayoutName", "cli/reproduce.py::Preset"], "by_shape": False}
    assert reason_of(same) is None  # identical lines are not excused by their shape
    assert reason_of(same | {"by_shape": True}) is not None
