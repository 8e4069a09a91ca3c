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


def sequences() -> str:
    """Sampling, scoring and training, as ratios."""
    record = kept("scoring")
    rows = []
    for each in record["sampling"]:
        batch = f"batch {each['batch_size']}"
        rows.append(
            [f"sample 32 tokens with scores / `generate`, {batch}", f"{each['sample']:.2f}"]
        )
        rows.append(["the least: `generate` and one bare pass", f"{each['least']:.2f}"])
        if "clustered" in each:
            rows.append(["10 samples for clustering / `generate`", f"{each['clustered']:.2f}"])
    rows.append(
        [
            "120 responses of 20 tokens to a prompt of 200: plain passes / `score`",
            f"{record['scoring']:.2f}x",
        ]
    )
    rows.append(
        ["tokens per second of pair training / plain training", f"{record['training']:.2f}x"]
    )
    size = record["parameters"] / 1e6
    return (
        f"`{record['command']}`, on a random GPT-2 of {size:.0f} million parameters in float32, in "
        "processor time. The two sides of a ratio are taken in turn in one run.\n\n"
        f"{table(['', 'measured'], rows, num_left=1)}"
    )


def rendered() -> str:
    """The page with its tables made anew."""
    return pages.filled(PAGE, {each.__name__: each for each in (thresholds, adapters, sequences)})


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
