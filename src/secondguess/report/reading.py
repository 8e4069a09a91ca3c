"""Finds runs on disk and reads what a page needs of them: nothing else, and nothing is trained.

A file that is missing, broken or too large becomes a line of `Run.problems`; the rest of the run,
and all other runs, are read all the same. Figures stay on disk until they are asked for, so that
the runs of a page fit into memory however many figures they have.
"""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from secondguess._files import read_record
from secondguess.report.files import PAGE_FILE, RESULT_FILE, read_page, read_result
from secondguess.report.sections import Claim, Figure, Section

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LONGEST_SECONDS = 1e10
"""Three hundred years; a part that says more does not know."""
_MAX_FIGURE_BYTES = 32_000_000


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure whose file is there.

    Attributes:
        figure: what it shows.
        path: of the PNG.
        width: in pixels.
        height: in pixels.
    """

    figure: Figure
    path: Path
    width: int
    height: int

    @property
    def data(self) -> str:
        """The PNG in base64, read anew each time; empty if it has gone."""
        try:
            return base64.b64encode(_read_bytes(self.path, _MAX_FIGURE_BYTES)).decode("ascii")
        except (OSError, ValueError):
            return ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One seed of one preset of one experiment, as far as it could be read.

    Attributes:
        experiment: its name.
        preset: the name of its size.
        seed: of the run.
        section: what its page.json says; a bare one if there is none.
        claims: with their verdicts.
        settings: config, versions and machine, by name, and the seconds of each part.
        pictures: the figures that are there.
        problems: what could not be read or is not finished, one sentence each.
    """

    experiment: str
    preset: str
    seed: str
    section: Section
    claims: tuple[Claim, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[str, str, str]:
        """Experiment, preset and seed: what tells runs apart."""
        return self.experiment, self.preset, self.seed

    @property
    def num_claims(self) -> int:
        """How many claims were judged."""
        return sum(claim.is_judged for claim in self.claims)

    @property
    def num_held(self) -> int:
        """How many of those hold."""
        return sum(claim.verdict == "holds" for claim in self.claims)

    @property
    def num_needing(self) -> int:
        """How many claims need a larger preset."""
        return sum(not claim.is_judged for claim in self.claims)

    @property
    def seconds(self) -> float | None:
        """What all parts took; None if unknown."""
        values = [
            value
            for value in self.settings.get("seconds", {}).values()
            if isinstance(value, int | float) and 0 <= value <= _LONGEST_SECONDS
        ]
        return float(sum(values)) if values else None


def read_runs(out: Path) -> list[Run]:
    """Every run at or below a directory, in the order of the paper.

    Args:
        out: where results of all experiments are, or the directory of some.
    """
    if not out.is_dir():
        raise ValueError(f"{out} is not a folder; name the --out of `secondguess reproduce`.")
    directories = [
        path
        for path in [out, *out.rglob("seed-*")]
        if os.path.lexists(path / RESULT_FILE) or (path.name.startswith("seed-") and _parts(path))
        if "parts" not in path.relative_to(out).parts
    ]
    if not directories:
        raise ValueError(
            f"{out} holds no results (<experiment>/<preset>/seed-<n>/); make some first with "
            f"`secondguess reproduce`."
        )
    return sorted((read_run(directory) for directory in directories), key=_place)


def read_run(directory: Path) -> Run:
    """What can be read of one run.

    Args:
        directory: OUT/<experiment>/<preset>/seed-<n>.
    """
    # The directory's own names are those of the layout, also where result.json cannot be read.
    experiment, preset, name = directory.resolve().parts[-3:]
    problems: list[str] = []
    result = _read(read_result, directory / RESULT_FILE, problems)
    if result is None and not os.path.lexists(directory / RESULT_FILE):
        finished = ", ".join(_parts(directory)) or "nothing yet"
        problems = [f"This run is not finished. Finished parts: {finished}."]
    section = _read_section(directory, experiment, problems if result is not None else [])
    return Run(
        experiment=experiment,
        preset=preset,
        seed=name.removeprefix("seed-"),
        section=section,
        claims=_read_claims(result or {}, problems),
        settings=_read_settings(result or {}),
        pictures=_read_pictures(directory / "figures", section.figures, problems),
        problems=tuple(problems),
    )


def _parts(directory: Path) -> list[str]:
    """The names of finished parts."""
    parts = directory / "parts"
    return sorted(str(path.parent.relative_to(parts)) for path in parts.rglob(RESULT_FILE))


def _place(run: Run) -> tuple[object, ...]:
    seed = int(run.seed) if run.seed.isdecimal() else -1
    return run.section.paper_section or "~", run.experiment, run.preset, seed, run.seed


def _read_bytes(path: Path, at_most: int) -> bytes:
    """All of a file, unless it is large, or no file: a pipe would be waited for."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a file")
    with path.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        if size > at_most:
            raise ValueError(f"it has {size / 1e6:.0f} MB; expected at most {at_most / 1e6:.0f} MB")
        return opened.read(size)


Read = TypeVar("Read")


def _read(reader: Callable[[Path], Read], path: Path, problems: list[str]) -> Read | None:
    """What a reader makes of a file, or None and a line about what is wrong with it."""
    try:
        return reader(path.parent)
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror or error}.")
    except ValueError as error:
        problems.append(str(error).replace(str(path), path.name))
    return None


def _read_section(directory: Path, experiment: str, problems: list[str]) -> Section:
    path = directory / PAGE_FILE
    if not os.path.lexists(path):
        problems.append(
            "page.json is missing, so tables and captions are too; "
            "the command that made this run writes it, and repeats nothing that is finished."
        )
    elif (found := _read(read_page, path, problems)) is not None:
        return found
    figures = sorted(figure.name for figure in (directory / "figures").glob("*.png"))
    return Section(
        title=experiment,
        paper_section="",
        claim="",
        figures=tuple(Figure(file=name, caption=name, alt=f"figure {name}") for name in figures),
    )


def _read_claims(result: Mapping[str, Any], problems: list[str]) -> tuple[Claim, ...]:
    claims = []
    listed = result.get("claims", [])
    for index, content in enumerate(listed if isinstance(listed, list) else [listed]):
        try:
            claims.append(read_record(Claim, content, f"result.json: claims[{index}]"))
        except ValueError as error:
            problems.append(str(error))
    return tuple(claims)


def _read_settings(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    names = ("config", "versions", "machine", "seconds")
    return {name: result[name] for name in names if isinstance(result.get(name), Mapping)}


def _read_pictures(
    folder: Path, figures: tuple[Figure, ...], problems: list[str]
) -> tuple[Picture, ...]:
    pictures = []
    for figure in figures:
        try:
            pictures.append(_read_picture(folder, figure))
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            problems.append(f"figure {figure.file} is not shown: {said}.")
    return tuple(pictures)


def _read_picture(folder: Path, figure: Figure) -> Picture:
    if Path(figure.file).name != figure.file or not figure.file or figure.file == "..":
        raise ValueError("its name leads out of the figures folder")
    path = folder / figure.file
    content = _read_bytes(path, _MAX_FIGURE_BYTES)
    if not content.startswith(_PNG_SIGNATURE) or len(content) < 24:
        raise ValueError("it is not a PNG")
    # The header chunk comes first: length, "IHDR", width, height.
    width, height = struct.unpack(">II", content[16:24])
    return Picture(figure=figure, path=path, width=width, height=height)
