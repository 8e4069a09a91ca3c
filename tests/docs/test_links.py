"""Links between the pages lead somewhere, and the index leads to every page."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]*`", flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """What headings are called in links: GitHub's rule, which MyST follows."""
    text = re.sub(r"^(`{3,}).*?^\1", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        repeats = sum(each == slug for each in found)
        found += [slug, f"{slug}-{repeats}"] if repeats else [slug]
    return frozenset(found)


def problem(page: Path, target: str) -> str | None:
    """What is wrong with a link, if anything."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return f"{target}: no such file"
    if DOCS in page.parents and DOCS not in file.parents:
        return f"{target}: outside of docs, so the built pages do not have it"
    if anchor and anchor not in anchors(file):
        return f"{target}: no such heading; there are {sorted(anchors(file))}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_and_anchors_resolve(page: Path) -> None:
    text = CODE.sub("", page.read_text())
    targets = [target for target in LINK.findall(text) if "://" not in target]
    found = [problem(page, target) for target in targets]
    assert not [each for each in found if each]


def test_a_broken_link_is_noticed() -> None:
    page = DOCS / "limits.md"
    assert problem(page, "collecting-pairs.md") is None
    assert "no such file" in str(problem(page, "nowhere.md"))
    assert "no such heading" in str(problem(page, "language-models.md#nowhere"))
    assert "outside of docs" in str(problem(page, "../README.md"))


def test_the_index_links_and_lists_every_page() -> None:
    index = (DOCS / "index.md").read_text()
    names = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert set(re.findall(r"\]\(([\w-]+)\.md\)", index)) == names
    listed = re.findall(r"^([\w-]+)$", index, flags=re.MULTILINE)
    assert sorted(listed) == sorted(names)
