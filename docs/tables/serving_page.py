"""The tables of the page on serving.

    python docs/tables/serving_page.py

They are made from what `benchmarks/serving.py` and `benchmarks/engines.py` measured.
"""

from __future__ import annotations

from typing import Any

import pages
from pages import DOCS, kept

PAGE = "serving.md"


def results() -> list[dict[str, Any]]:
    """The committed measurements."""
    return [kept(name) for name in ("serving", "engines")]


def load() -> str:
    """Throughput and latency."""
    record = kept("serving")
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


def engines() -> str:
    """What scoring costs on each engine."""
    record = kept("engines")
    rows = [
        [
            str(row["prompt_tokens"]),
            *(
                f"{row[name][work]:.1f}"
                for work in ("sample", "score")
                for name in ("local", "vllm")
            ),
            f"{row['vllm']['score'] / row['local']['score']:.1f}",
        ]
        for row in record["rows"]
    ]
    heads = [
        "tokens in a prompt",
        *("sample and score: here", "vLLM", "score only: here", "vLLM", "ratio of scoring"),
    ]
    return (
        f"{pages.table(heads, rows, num_left=0)}\n\nMilliseconds per response, "
        f"{record['responses']} responses at a time, the fastest of {record['turns']} turns that "
        f"the engines took one after the other. Measured by `{record['command']}`. "
        f"The largest difference of a token's score was {record['largest_difference']:.1e} nats, "
        f"and {record['equal_decisions']:,} of {record['decisions']:,} decisions about the same "
        f"candidates were the same."
    )


def rendered() -> str:
    """The page with its tables made anew."""
    return pages.filled(PAGE, {"load": load, "engines": engines})


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
