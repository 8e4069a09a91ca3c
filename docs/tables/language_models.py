"""Put the tables made from committed measurements in docs/results into docs/language-models.md.

python docs/tables/language_models.py
"""

from __future__ import annotations

import pages
from pages import DOCS, kept, table, with_command

PAGE = "language-models.md"


def thresholds() -> str:
    """Guaranteed thresholds beside MAPIE's: one row per kind of errors, size and rule."""
    record = kept("guaranteed-thresholds")
    rows = [
        [
            row["world"],
            row["rule"],
            f"{row['size']:,}",
            f"{row['failures'] / row['num_sets']:.3f} of {row['num_sets']:,}",
            f"{row['answered']:.1%}",
            f"{row['answerable']:.1%}",
        ]
        for row in record["rows"]
    ]
    heads = ["errors", "rule", "marked", "fails", "answered", "answerable"]
    return with_command(table(heads, rows), record)


def adapters() -> str:
    """A training step of an adapter beside one of all weights."""
    record = kept("adapters")
    whole = record["rows"][0]
    rows = [
        [
            row["side"],
            f"{row['trained_parameters']:,.0f}",
            f"{row['seconds']:.2f}",
            f"{row['seconds'] / whole['seconds']:.2f}",
            f"{row['peak_megabytes']:,.0f}",
            f"{row['peak_megabytes'] / whole['peak_megabytes']:.2f}",
        ]
        for row in record["rows"]
    ]
    heads = ["trained", "weights", "seconds per step", "ratio", "peak MB", "ratio"]
    return (
        f"{table(heads, rows, num_left=1)}\n\n{record['pairs']} pairs per step, by "
        f"`{record['command']}`."
    )


def rendered() -> str:
    """The page with its tables made anew."""
    return pages.filled(PAGE, {each.__name__: each for each in (thresholds, adapters)})


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
