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

import numpy as np

DOCS = Path(__file__).parent.parent


def results(experiment: str) -> list[dict[str, Any]]:
    """The committed runs of an experiment: that of `make run`, then others by name."""
    folder = DOCS / "results"
    paths = [
        *sorted(folder.glob(f"quick/{experiment}*/quick/*/result.json")),
        *sorted(folder.glob(f"{experiment}-*.json")),
    ]
    return [json.loads(path.read_text()) for path in paths]


def keep(name: str, *, command: str, seconds: float, rows: Any) -> None:
    """Write what a script has measured where the tables are made from."""
    path = DOCS / "results" / f"{name}.json"
    record = {"command": command, "seconds": round(seconds, 1), "rows": rows}
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"wrote {path}")


def kept(name: str) -> dict[str, Any]:
    """What a script or benchmark has measured and written to docs/results."""
    return json.loads((DOCS / "results" / f"{name}.json").read_text())


def with_command(body: str, record: Mapping[str, Any]) -> str:
    """A table with the command that measured it."""
    return f"{body}\n\nMeasured by `{record['command']}`."


def run_title(run: Mapping[str, Any]) -> str:
    """Which run a row speaks of."""
    return f"{run['preset']}, seed {run['seed']}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, num_left: int = 2) -> str:
    """A Markdown table; the first `num_left` columns hold words, the others numbers."""
    rule = ["---"] * num_left + ["---:"] * (len(heads) - num_left)
    lines = ([cell.replace("|", "\\|") for cell in line] for line in [heads, rule, *rows])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def mean_and_error(values: Sequence[float], form: str) -> str:
    """A mean over runs, with its standard error where there are several."""
    mean = form.format(np.mean(values))
    if len(values) == 1:
        return mean
    return f"{mean} ± {form.format(np.std(values, ddof=1) / np.sqrt(len(values)))}"


def claims(runs: Iterable[dict[str, Any]], group: Callable[[dict[str, Any]], str]) -> str:
    """Every claim once: in each group of runs whether it holds, its values, and their bounds."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    groups: dict[str, None] = {}
    for run in runs:
        groups[group(run)] = None
        for claim in run["claims"]:
            found.setdefault(claim["name"], {}).setdefault(group(run), []).append(claim)
    rows = [
        [name, *(_claim_cell(by_group.get(each, [])) for each in groups)]
        for name, by_group in found.items()
    ]
    return table(["claim", *groups], rows, num_left=1)


def _claim_cell(claims: Sequence[dict[str, Any]]) -> str:
    if not claims:
        return ""
    values, bounds = (_span([claim[key] for claim in claims]) for key in ("value", "bound"))
    if needs := claims[0].get("needs"):
        return f"needs {needs}: {values} ({bounds})"
    number = sum(claim["holds"] for claim in claims)
    verdict = {0: "**no**", len(claims): "yes"}.get(number, f"**in {number} of {len(claims)}**")
    return f"{verdict}: {values} ({bounds})"


def _span(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "no number"
    ends = dict.fromkeys(f"{end:.3g}" for end in (min(numbers), max(numbers)))
    return " to ".join(ends)


def filled(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """The page with its tables made anew."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables[match[2]]()}\n{match[3]}"

    pattern = r"(<!-- table: ([a-z-]+) -->).*?(<!-- end of table -->)"
    return re.sub(pattern, fill, (DOCS / page).read_text(), flags=re.DOTALL)
