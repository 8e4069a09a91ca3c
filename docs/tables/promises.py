"""The tables of the page on what is promised.

    python docs/tables/promises.py

They are made from what `benchmarks/files_limits.py`, `tests/fuzz/cases.py` and
`tests/accidents/trials.py` measured.
"""

from __future__ import annotations

from typing import Any

import pages
from pages import DOCS, kept

PAGE = "promises.md"


def results() -> list[dict[str, Any]]:
    """The committed measurements."""
    return [kept("files-limits"), kept("fuzz"), kept("accidents")]


def limits() -> str:
    """Peak memory."""
    record = kept("files-limits")
    rows = [[name, str(size)] for name, size in record["megabytes"].items()]
    heads = ["input", "MB at most"]
    return f"{pages.table(heads, rows, num_left=1)}\n\nMeasured by `{record['command']}`."


def fuzz() -> str:
    """How cases end, by class, before and now."""
    record = kept("fuzz")
    counts: dict[str, list[int]] = {}
    for place, version in enumerate(("before", "now")):
        for how, count in record[version].items():
            counts.setdefault(how, [0, 0])[place] += count
    rows = [[how, *(str(each) for each in pair)] for how, pair in sorted(counts.items())]
    heads = ["class and end", "before", "now"]
    return f"{pages.table(heads, rows, num_left=1)}\n\nMeasured by `{record['command']}`."


def accidents(kind: str, heads: list[str]) -> str:
    """How accidents of a kind ended, by what they happened to."""
    counts = kept("accidents")["counts"][kind]
    rows = [[name, *(f"{found[head]:,}" for head in heads)] for name, found in counts.items()]
    return pages.table([f"{kind} of", *heads], rows, num_left=1)


def saves() -> str:
    """Kills inside saves."""
    return accidents("saves", ["kills", "earlier", "new", "mixed or torn"])


def kills() -> str:
    """Kills of commands and trainings."""
    signals = ["SIGKILL", "SIGTERM", "SIGINT"]
    ends = ["ends", "same bytes", "other bytes", "processes left"]
    return accidents("kills", ["kills", *signals, *ends])


def writers() -> str:
    """Two writers of one output."""
    heads = ["pairs", "one works, one is told", "one after the other", "anything else"]
    command = kept("accidents")["command"]
    return f"{accidents('pairs', [*heads, 'whole outputs'])}\n\nMeasured by `{command}`."


def rendered() -> str:
    """The page with its tables made anew."""
    return pages.filled(
        PAGE, {"limits": limits, "saves": saves, "kills": kills, "writers": writers, "fuzz": fuzz}
    )


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
