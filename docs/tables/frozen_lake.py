"""Put the table made from committed runs in docs/results into docs/frozen-lake.md.

python docs/tables/frozen_lake.py
"""

from __future__ import annotations

from typing import Any

import pages
from pages import DOCS, table

PAGE = "frozen-lake.md"
EXACT = "discount 1"
SHARES = {
    "over_lake": "plain samples over the lake",
    "unsafe": "plain samples on the unsafe cell",
    "accepted": "samples accepted",
    "accepted_among_always_safe": "always-safe samples accepted",
    "over_lake_among_accepted": "accepted walks over the lake",
    "unsafe_among_accepted": "accepted walks on the unsafe cell",
}
DISTANCES = {
    "log_confidence_std": "standard deviation of log C, model minus exact",
    "confidence_correlation": "correlation of C with the exact one",
}


def results() -> list[dict[str, Any]]:
    """All committed runs."""
    return pages.results("frozen-lake")


def quick() -> str:
    """The network of the first run beside the exact predictor, under the hidden view."""
    metrics = results()[0]["metrics"]
    network, exact = metrics["samples"]["hidden"], metrics["exact"][EXACT]["hidden"]
    rows = [[name, f"{network[key]:.1%}", f"{exact[key]:.1%}"] for key, name in SHARES.items()]
    rows += [[name, f"{network[key]:.3f}", ""] for key, name in DISTANCES.items()]
    return table(["hidden view", "network", "exact predictor"], rows, num_left=1)


TABLES = {"quick": quick}


def rendered() -> str:
    """The page with its tables made anew."""
    return pages.filled(PAGE, TABLES)


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
