"""Put what examples/encoder has measured into docs/encoder.md.

python docs/tables/encoder_page.py
"""

from __future__ import annotations

import json

import pages

RESULT = pages.DOCS / "results" / "encoder.json"
PAGE = "encoder.md"
COMMAND = "python examples/encoder/run.py --data-dir DIR --out docs/results/encoder.json"
METHODS = ("fine-tuned end to end", "frozen features")


def table_of_errors() -> str:
    """One line per method."""
    record = json.loads(RESULT.read_text())
    heads = ["method", "accuracy", "log-loss", "grouping error", "ECE-2 / grouping error"]
    lines = []
    for row in record["rows"]:
        error = row["grouping_error"]
        relative = f"{row['second_order_ece'] / error:.2f}"
        cells = [f"{row[key]:.3f}" for key in ("accuracy", "log_loss", "grouping_error")]
        lines.append([row["method"], *cells, relative, f"{row['mean_variance'] / error:.2f}"])
    text = pages.table([*heads, "stated / true"], lines, num_left=1)
    return (
        f"{text}\n\n{record['texts']:,} texts rated by {record['workers']} workers; tested on "
        f"{record['tests']:,} texts. The fine-tuning took {record['processor_seconds']} seconds of "
        f"one core, and step {record['best_step']} was the best.\n\nMeasured by `{COMMAND}`."
    )


TABLES = {"errors": table_of_errors}

if __name__ == "__main__":
    (pages.DOCS / PAGE).write_text(pages.filled(PAGE, TABLES))
