"""The tables of the page on serving.

    python docs/tables/serving_page.py

They are made from what `benchmarks/serving.py` measured.
"""

from __future__ import annotations

import json
from typing import Any

import pages
from pages import DOCS

PAGE = "serving.md"


def results() -> list[dict[str, Any]]:
    """The committed measurements."""
    return [result(name) for name in ("serving",)]


def result(name: str) -> dict[str, Any]:
    """A measurement."""
    return json.loads((DOCS / "results" / f"{name}.json").read_text())


def load() -> str:
    """Throughput and latency."""
    record = result("serving")
    base = record["alone"]["per_second"]
    names = {
        "alone": "one request at a time",
        "together": "many at once",
        "plain": "the same, plain `generate` without scores",
    }
    rows = []
    for key, name in names.items():
        row = record[key]
        rows.append(
            [
                name,
                str(row["clients"]),
                f"{row['requests']:,}",
                ", ".join(f"{status}: {count:,}" for status, count in row["statuses"].items()),
                f"{row['per_second']:.1f}",
                f"{row['per_second'] / base:.1f}",
                *(f"{row['milliseconds'][each]:.0f}" for each in ("p50", "p90", "p99")),
            ]
        )
    heads = ["", "clients", "requests", "statuses", "per second", "ratio", "p50 ms", "p90", "p99"]
    stopped, memory = record["stopped"], record["megabytes"]
    return (
        f"{pages.table(heads, rows, num_left=1)}\n\nMeasured by `{record['command']}`. "
        f"The server's memory was {memory['before']:.0f} MB before the requests of many at once "
        f"and {memory['after']:.0f} MB after them. Told to stop under the same load, it "
        f"answered {stopped['answered']:,} of the {stopped['taken']:,} requests that it had taken; "
        f"the clients received {stopped['answers_received']:,} answers."
    )


def rendered() -> str:
    """The page with its tables made anew."""
    return pages.filled(PAGE, {"load": load})


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
