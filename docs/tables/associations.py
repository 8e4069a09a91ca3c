"""Put the tables made from committed runs in docs/results into docs/associations.md.

python docs/tables/associations.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import pages
from pages import DOCS, table

PAGE = "associations.md"
results = partial(pages.results, "associations")
COLUMNS = {
    "first_order_ece": ("ECE-1", "{:.4f}"),
    "grouping_error": ("grouping error", "{:.5f}"),
    "mean_variance": ("mean variance", "{:.5f}"),
    "second_order_ece": ("ECE-2", "{:.5f}"),
    "standard_error": ("standard error", "{:.5f}"),
    "floor": ("floor", "{:.5f}"),
    "share_of_grouping_error": ("ECE-2 / grouping error", "{:.2f}"),
    "share_in_100_bins": ("in 100 bins", "{:.2f}"),
    "cue_correlation": ("rank correlation", "{:.2f}"),
}


def scores() -> dict[str, Any]:
    """What the run of `cpu` found."""
    return results()[-1]["metrics"]["scores"]


def _methods(rows: Mapping[str, Mapping[str, float]]) -> str:
    return table(
        ["method", *(head for head, _ in COLUMNS.values())],
        [[name, *(form.format(row[key]) for key, (_, form) in COLUMNS.items())]
         for name, row in rows.items()],
        num_left=1,
    )  # fmt: skip


def methods() -> str:
    """On the answers that the model proposed."""
    return _methods(scores()["methods"])


def prompted() -> str:
    """On the cues that the pretrained model was asked."""
    return _methods(scores()["prompted"])


def given() -> str:
    """On the answers that people gave."""
    return _methods(scores()["given"])


def _examples(rows: Sequence[Mapping[str, Any]]) -> str:
    def words(answers: Sequence[tuple[str, float]]) -> str:
        return ", ".join(f"{word} {share:.0%}" for word, share in answers)

    return table(
        ["cue", "the model's answers", "people's answers", "expected error", "error"],
        [
            [
                row["cue"],
                words(row["model"]),
                words(row["people"]),
                f"{row['expected_error']:.2f}",
                f"{row['error']:.2f}",
            ]
            for row in rows
        ],
        num_left=3,
    )


def known() -> str:
    """People differ, and the model knows."""
    return _examples(scores()["examples"]["known"])


def unknown() -> str:
    """The model does not know these cues."""
    return _examples(scores()["examples"]["unknown"])


def cost() -> str:
    """Seconds of the parts."""
    run = results()[-1]
    rows = [[name, f"{seconds:,.0f}"] for name, seconds in run["seconds"].items()]
    return table(["part", "seconds"], rows, num_left=1)


def claims() -> str:
    """Every claim, by preset."""
    return pages.claims(results(), itemgetter("preset"))


TABLES = {
    "methods": methods,
    "prompted": prompted,
    "given": given,
    "known": known,
    "unknown": unknown,
    "cost": cost,
    "claims": claims,
}

rendered = partial(pages.filled, PAGE, TABLES)

if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
