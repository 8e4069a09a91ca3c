"""Keeps runs small enough for the repository: what their report needs, figures in 128 colours.

    python docs/results/keep.py out docs/results/quick

Of runs without a page, the numbers alone, which the tables of `docs/tables` are made from:

    python docs/results/keep.py --numbers docs/results out/facts/cpu/seed-*
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


def keep_numbers(run: Path, kept: Path) -> Path:
    """Copy result.json by the name of its run, without the folders in which models are."""
    text = (run / "result.json").read_text(encoding="utf-8")
    found = json.loads(text)
    settings = [found["config"], *(each for each in found["config"].values())]
    for model in {each["model"] for each in settings if isinstance(each, dict) and "model" in each}:
        text = text.replace(json.dumps(model), json.dumps(Path(model).name))
    copy = kept / f"{found['experiment']}-{found['preset']}-seed-{found['seed']}.json"
    copy.write_text(text, encoding="utf-8")
    return copy


if __name__ == "__main__":
    if sys.argv[1] == "--numbers":
        for run in sys.argv[3:]:
            print(keep_numbers(Path(run), Path(sys.argv[2])))
    else:
        for directory in keep(Path(sys.argv[1]), Path(sys.argv[2])):
            print(directory)
