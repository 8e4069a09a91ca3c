"""The page of all runs: one HTML file that needs nothing but itself.

Needs Jinja2. Everything comes from `read_runs`; all text is escaped by the template.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from secondguess._files import write_text
from secondguess.report.numbers import duration, number
from secondguess.report.reading import Run, read_runs
from secondguess.report.sections import AnswerGroup, Walk
from secondguess.report.words import coloured_words

FILE_NAME = "report.html"


def write_report(out: Path, path: Path | None = None) -> Path:
    """Write the page of all runs in a directory; returns where it is.

    Args:
        out: where results of all experiments are, or the directory of some.
        path: of the page; `report.html` in that directory by default.
    """
    path = out / FILE_NAME if path is None else path
    return _write(path, render_page(read_runs(out)))


def render_page(runs: Sequence[Run]) -> str:
    """The page of these runs; the same runs give the same page."""
    experiments = [
        list(of_experiment) for _, of_experiment in groupby(runs, key=lambda run: run.experiment)
    ]
    return _environment().get_template("report.html").render(experiments=experiments, runs=runs)


def write_answers(title: str, groups: Sequence[AnswerGroup], path: Path) -> Path:
    """A page of answers with coloured words alone."""
    template = _environment().get_template("answers.html")
    return _write(path, template.render(title=title, groups=groups))


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("secondguess.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "duration": duration,
        "setting": _setting,
        "coloured_words": coloured_words,
        "anchor": _anchor,
    }
    environment.globals |= {"walk_points": walk_points, "asset": _asset}
    return environment


def _asset(name: str) -> Markup:
    """A style sheet or script of this package, as it is."""
    return Markup(files("secondguess.report").joinpath("templates", name).read_text("utf-8"))


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _anchor(parts: Iterable[str]) -> str:
    """A name for links: letters, digits and hyphens alone."""
    return "-".join(
        "".join(letter if letter.isalnum() else "-" for letter in part) for part in parts
    )


def walk_points(walk: Walk, side: int, place: float) -> str:
    """The points of a walk in a drawing whose cells are one unit wide.

    A walk drifts along the diagonal, so that its way back is seen beside its way there, and walks
    are shifted by `place`, so that they are seen beside each other.

    >>> walk = Walk(cells=(0, 1), confidence=1, exact_confidence=1, over_lake=False, unsafe=0)
    >>> walk_points(walk, 5, 0.0)
    '0.32,0.32 1.68,0.68'

    Args:
        walk: which.
        side: cells along an edge of the grid.
        place: from -1 to 1, where among the others.
    """
    last = max(1, len(walk.cells) - 1)
    points = []
    for step, cell in enumerate(walk.cells):
        row, column = divmod(cell, side)
        drift = 0.5 + 0.36 * (step / last - 0.5) + 0.1 * place
        points.append(f"{column + drift:.4g},{row + drift:.4g}")
    return " ".join(points)
