"""Keeps runs small enough for the repository: what their report needs, figures in 128 colours.

python docs/results/keep.py out docs/results/quick
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from PIL import Image


def keep(out: Path, kept: Path) -> list[Path]:
    """Copy result.json, page.json and the figures that it names; returns the new directories."""
    copies = []
    for page in sorted(out.glob("*/*/seed-*/page.json")):
        copy = kept / page.parent.relative_to(out)
        figures = copy / "figures"
        shutil.rmtree(copy, ignore_errors=True)
        figures.mkdir(parents=True)
        for name in ("result.json", "page.json"):
            shutil.copy(page.with_name(name), copy / name)
        for figure in json.loads(page.read_text(encoding="utf-8"))["figures"]:
            with Image.open(page.parent / "figures" / figure["file"]) as picture:
                small = picture.convert("RGB").quantize(128)
                small.save(figures / figure["file"], optimize=True)
        copies.append(copy)
    return copies


if __name__ == "__main__":
    for directory in keep(Path(sys.argv[1]), Path(sys.argv[2])):
        print(directory)
