"""At build time: the README with absolute links, because a package index knows no folders.

The one setting is `address` in `[tool.hatch.metadata.hooks.custom]` of pyproject.toml, the public
address of the repository, such as `https://github.com/owner/name`. While it is empty, the links
stay as they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURES = (".png", ".svg", ".jpg", ".gif")


def absolute_links(text: str, address: str) -> str:
    """A Markdown text whose relative links lead to the repository at an address, if there is one.

    >>> absolute_links("[limits](docs/limits.md), [above](#top)", "https://example.org/us/it")
    '[limits](https://example.org/us/it/blob/HEAD/docs/limits.md), [above](#top)'
    >>> absolute_links("![a curve](docs/curve.png)", "https://example.org/us/it/")
    '![a curve](https://example.org/us/it/raw/HEAD/docs/curve.png)'
    >>> absolute_links("[limits](docs/limits.md)", "")
    '[limits](docs/limits.md)'
    """
    if not address:
        return text

    def absolute(link: re.Match[str]) -> str:
        view = "raw" if link[1].lower().endswith(PICTURES) else "blob"
        return f"]({address.rstrip('/')}/{view}/HEAD/{link[1].removeprefix('./')}"

    # Every second part is a block of code, where brackets are no links.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(r"\]\((?![a-z]+:|#|/)([^)\s]+)", absolute, part) for part in parts[::2]]
    return "".join(parts)


class ReadmeHook(MetadataHookInterface):
    """Gives hatchling the README as the package index will show it."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`, which pyproject.toml declares to be dynamic."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(text, self.config.get("address", "")),
        }
