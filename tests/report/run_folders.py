"""Folders of results, made up: everything a page can show, with any text in every place."""

from __future__ import annotations

import struct
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from secondguess.report.files import write_page, write_result
from secondguess.report.sections import (
    Answer,
    AnswerGroup,
    Claim,
    Figure,
    Section,
    Table,
    Walk,
    WalkGroup,
    WalkView,
)


def png(width: int = 3, height: int = 2) -> bytes:
    """A white picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * width) * height)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def full_section(text: str = "some text") -> Section:
    """A section with everything in it, and the same text everywhere."""
    walks = (
        Walk(cells=(2, 1, 0, 1), confidence=0.98, reading=text, is_flagged=False),
        Walk(cells=(2, 3), confidence=0.3, reading=text, is_flagged=True),
    )
    return Section(
        title=text,
        paper_section="4.2",
        claim=text,
        finding=text,
        notes=(text,),
        tables=(Table(title=text, columns=(text, "ours"), rows=((text, text),), note=text),),
        answers=(
            AnswerGroup(
                title=text,
                note=text,
                answers=(
                    Answer(
                        label=text,
                        words=(text, "3", "_"),
                        log_probs=(-0.1, -2.0, 0.0),
                        log_probs_after=(-0.1, -0.75, 0.0),
                    ),
                    Answer(label=text, words=(text,), log_probs=(-1.5,)),
                ),
            ),
        ),
        walks=(
            WalkGroup(
                title=text,
                note=text,
                alt=text,
                side=2,
                flag="over the hill",
                max_gap=0.05,
                views=(
                    WalkView(
                        title=text,
                        tones=("plain", "green", "plain", "orange"),
                        signs=("", "G", "S", text[:1]),
                        walks=walks,
                    ),
                    WalkView(
                        title=text + " 2",
                        tones=("plain", "green", "plain", "blue"),
                        signs=("", "G", "S", "?"),
                        walks=walks[:1],
                    ),
                ),
            ),
        ),
        figures=(Figure(file="a.png", caption=text, alt=text, paper=text),),
    )


def write_run(
    out: Path,
    experiment: str = "coins",
    preset: str = "quick",
    seed: int = 0,
    *,
    section: Section | None = None,
    text: str = "some text",
    **replaced: Any,
) -> Path:
    """A finished run with its page and its figures; `replaced` changes its result."""
    directory = out / experiment / preset / f"seed-{seed}"
    figures = directory / "figures"
    figures.mkdir(parents=True)
    section = full_section(text) if section is None else section
    for figure in section.figures:
        (figures / figure.file).write_bytes(png())
    write_page(directory, section)
    claims = [
        Claim(name=text, holds=True, value=0.0127, bound=0.02, paper=text),
        Claim(name=text, holds=False, value=2.0, bound=1.0),
        Claim(name=text, holds=False, value=3.0, bound=1.0, needs="cpu"),
    ]
    result = {
        "experiment": experiment,
        "preset": preset,
        "seed": seed,
        "config": {"setting": text, text: [1, 2]},
        "versions": {"python": text},
        "machine": {"processor": text},
        "seconds": {"training": 61.0, text: 1.5},
        "metrics": {},
        "claims": [asdict(claim) for claim in claims],
    }
    write_result(directory, result | replaced)
    return directory
