"""What a package index shows: the README, with absolute links once there is an address."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from scripts import load_script

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "https://example.org/us/secondguess"


def built_readme(address: str | None = None) -> str:
    """The description that goes into wheel and sdist."""
    metadata = ProjectMetadata(str(ROOT), PluginManager())
    if address is not None:
        metadata.config["tool"]["hatch"]["metadata"]["hooks"]["custom"]["address"] = address
    assert metadata.core.readme_content_type == "text/markdown"
    return metadata.core.readme


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    return load_script("hatch_build.py")


def test_without_an_address_the_readme_is_built_as_it_is() -> None:
    assert built_readme() == README


def test_with_an_address_no_link_of_the_built_readme_is_relative() -> None:
    built = built_readme(ADDRESS)
    targets = re.findall(r"\]\(([^)\s]+)", built)
    assert any(target.startswith(f"{ADDRESS}/blob/HEAD/docs/") for target in targets)
    assert any(target.startswith(f"{ADDRESS}/raw/HEAD/docs/pictures/") for target in targets)
    assert all(re.match(r"[a-z]+:|#", target) for target in targets)
    paths = [target.split("/HEAD/")[1] for target in targets if target.startswith(ADDRESS)]
    assert all((ROOT / path.split("#")[0]).exists() for path in paths)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](b.md#c)", f"[a]({ADDRESS}/blob/HEAD/b.md#c)"),
        ("![a\nb](./c.png)", f"![a\nb]({ADDRESS}/raw/HEAD/c.png)"),
        ("[![a](b.svg)](c.md)", f"[![a]({ADDRESS}/raw/HEAD/b.svg)]({ADDRESS}/blob/HEAD/c.md)"),
        ("[a](https://b.org), [c](#d), [e](mailto:f)",) * 2,
        ("```python\nmakers[0](1)\n```\n",) * 2,
    ],
)
def test_only_relative_links_change(hook: ModuleType, text: str, expected: str) -> None:
    assert hook.absolute_links(text, ADDRESS) == expected
    assert hook.absolute_links(text, "") == text
