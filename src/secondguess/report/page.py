"""The page of all runs: one HTML file that needs nothing but itself.

Needs Jinja2. Everything comes from `read_runs`; all text is escaped by the template. The page is
written piece by piece, so that one run's figures are in memory at a time, and a run that cannot be
drawn costs its own article and no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from secondguess._files import only_writer_of, replacing
from secondguess.report.numbers import duration, number
from secondguess.report.reading import Run, read_runs
from secondguess.report.sections import AnswerGroup, Section, Walk
from secondguess.report.words import coloured_words

FILE_NAME = "report.html"
_TITLE = "secondguess: the paper's claims, checked"


def write_report(out: Path, path: Path | None = None) -> Path:
    """Write the page of all runs in a directory; returns where it is.

    Args:
        out: where results of all experiments are, or the directory of some.
        path: of the page; `report.html` in that directory by default. An earlier page is replaced;
            any other file is refused.
    """
    path = out / FILE_NAME if path is None else path
    runs = read_runs(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with only_writer_of(path):
        if path.is_file() and not _is_page(path):
            raise ValueError(
                f"{path} is there and is not a page of this command; name another file, or remove "
                f"it."
            )
        return _write(path, render_page(runs))


def render_page(runs: Sequence[Run]) -> Iterator[str]:
    """The page of these runs, piece by piece; the same runs give the same page."""
    experiments = [
        list(of_experiment) for _, of_experiment in groupby(runs, key=lambda run: run.experiment)
    ]
    environment = _environment()
    article = environment.get_template("run.html")

    def draw(run: Run, is_first: bool, is_further: bool) -> Markup:
        try:
            shown = article.render(run=run, is_first=is_first, is_further=is_further)
        except Exception as error:
            # Whatever is wrong with one run, the others are shown.
            said = f"this run cannot be drawn: {type(error).__name__}: {error}"
            bare = Run(
                experiment=run.experiment,
                preset=run.preset,
                seed=run.seed,
                section=Section(title=run.section.title, paper_section="", claim=""),
                problems=(said,),
            )
            shown = article.render(run=bare, is_first=is_first, is_further=is_further)
        return Markup(shown)

    template = environment.get_template("report.html")
    return template.generate(title=_TITLE, experiments=experiments, runs=runs, draw=draw)


def write_answers(title: str, groups: Sequence[AnswerGroup], path: Path) -> Path:
    """A page of answers with coloured words alone."""
    template = _environment().get_template("answers.html")
    return _write(path, template.generate(title=title, groups=groups))


def _is_page(path: Path) -> bool:
    with path.open("rb") as opened:
        return f"<title>{_TITLE}</title>".encode() in opened.read(2048)


def _write(path: Path, pieces: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # JSON can spell half a letter (a lone surrogate), which no file can hold.
    with (
        replacing(path) as unfinished,
        unfinished.open("w", encoding="utf-8", errors="replace", newline="") as page,
    ):
        page.writelines(pieces)
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

    >>> walk = Walk(cells=(0, 1), confidence=1, reading="", is_flagged=False)
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
