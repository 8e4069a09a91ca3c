"""The docs speak of things that exist: every mapped function and test, every public name."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import secondguess as sg

ROOT = Path(__file__).parent.parent
MAP = (ROOT / "docs" / "theory-map.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STATEMENTS = [
    *(f"Definition {number}" for number in ("2.1", "2.3", "3.1", "4.1", "4.3")),
    *(f"Theorem {number}" for number in ("3.2", "4.2", "4.5", "4.6")),
    *(f"Proposition {number}" for number in ("2.2", "4.4", "D.1", "D.3", "E.1", "E.2")),
    "Lemma D.2",
    "Algorithm 1",
]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(secondguess\.[\w.]+)`", MAP))))
def test_mapped_code_exists(name: str):
    thing = importlib.import_module("secondguess")
    for part in name.split(".")[1:]:
        thing = getattr(thing, part)
    assert thing.__doc__


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", MAP))))
def test_mapped_tests_exist(name: str):
    path, function = name.split("::")
    tree = ast.parse((ROOT / path).read_text())
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


GUIDE, _ = (ROOT / "CONTRIBUTING.md").read_text().split("<!-- table: repeated -->")
"""What is written by hand; below it is a list of repeated code, made from a result."""

PLACES = re.findall(r"`([\w/]+\.py)::(\w+)`", GUIDE)


def defined_in(path: Path) -> set[str]:
    """The names that a module defines at its top."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_what_newcomers_are_sent_to_is_there(path: str, name: str):
    assert name in defined_in(ROOT / "src" / "secondguess" / path)


def test_newcomers_are_sent_to_at_least_ten_places():
    assert len(PLACES) >= 10


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_numbered_statement_is_mapped(statement: str):
    assert statement in MAP


@pytest.mark.parametrize("name", sorted(set(sg.__all__) - {"GapKind"}))
def test_every_public_name_has_a_doctested_example(name: str):
    """The three left out are aliases of types, which hold no docstring of their own."""
    assert ">>>" in (getattr(sg, name).__doc__ or "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_of_the_pages_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Blocks fenced as pycon are sessions: what they print is compared, in order, page by page."""
    monkeypatch.chdir(tmp_path)  # where they may write files
    blocks = re.findall(r"^```pycon\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    session = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(session)
    assert result.failed == 0


def test_a_long_table_takes_ten_lines():
    page = (ROOT / "docs" / "long-table.md").read_text()
    block = page.partition("## Ten lines")[2].partition("```pycon\n")[2].partition("```")[0]
    lines = block.strip().splitlines()
    assert len(lines) == 10
    assert all(line.startswith(">>> ") for line in lines)
    assert lines[0] == ">>> import pandas as pd"
    assert "predict_interval" in lines[-1]
