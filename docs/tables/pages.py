"""What the scripts that write tables into pages share.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; everything between the
two is written by a script. A test checks that each page is what its script writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent


def results(experiment: str) -> list[dict[str, Any]]:
    """The committed runs of an experiment: that of `make run`, then others by name."""
    folder = DOCS / "results"
    paths = [
        *sorted(folder.glob(f"quick/{experiment}*/quick/*/result.json")),
        *sorted(folder.glob(f"{experiment}-*.json")),
    ]
    return [json.loads(path.read_text()) for path in paths]


def run_title(run: Mapping[str, Any]) -> str:
    """Which run a row speaks of."""
    return f"{run['preset']}, seed {run['seed']}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, num_left: int = 2) -> str:
    """A Markdown table; the first `num_left` columns hold words, the others numbers."""
    rule = ["---"] * num_left + ["---:"] * (len(heads) - num_left)
    lines = ([cell.replace("|", "\\|") for cell in line] for line in [heads, rule, *rows])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def claims(runs: Iterable[dict[str, Any]], title: Callable[[dict[str, Any]], str]) -> str:
    """Every claim of every run."""
    rows = [
        [
            title(run),
            claim["name"],
            "yes" if claim["holds"] else "**no**",
            f"{claim['value']:.4g}",
            f"{claim['bound']:.4g}",
        ]
        for run in runs
        for claim in run["claims"]
    ]
    return table(["run", "claim", "holds", "value", "bound"], rows)


def filled(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """The page with its tables made anew."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables[match[2]]()}\n{match[3]}"

    pattern = r"(<!-- table: ([a-z-]+) -->).*?(<!-- end of table -->)"
    return re.sub(pattern, fill, (DOCS / page).read_text(), flags=re.DOTALL)
