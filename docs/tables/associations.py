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


OURS, SCALED = "pair model, recalibrated", "p(1 - p), scaled on held-out pairs"
NAIVE, PROMPTED = "p(1 - p)", "iterative prompting of the pretrained model"


def finding() -> str:
    """What the page is about."""
    run, found = results()[-1], scores()
    rows, few = found["methods"], found["prompted"]
    ours, scaled = rows[OURS], rows[SCALED]
    held = sum(claim["holds"] for claim in run["claims"])
    against = {
        NAIVE: ours["second_order_ece"] / rows[NAIVE]["second_order_ece"],
        PROMPTED: few[OURS]["second_order_ece"] / few[PROMPTED]["second_order_ece"],
    }
    return (
        f"On {run['metrics']['test']['num_cues']} cues that it was not trained on, its ECE-2 is "
        f"{ours['share_of_grouping_error']:.2f} of the grouping error (standard error "
        f"{ours['standard_error'] / ours['grouping_error']:.2f}, floor "
        f"{ours['floor'] / ours['grouping_error']:.2f}; at most 0.25 was asked for), "
        f"{against[NAIVE]:.2f} of that of p(1 - p), and, on "
        f"{run['metrics']['prompting']['num_cues']} of them, {against[PROMPTED]:.2f} of that of "
        f"iterative prompting (at most a third of each). It states a mean squared error of "
        f"{ours['mean_variance']:.5f}, and makes one of {ours['grouping_error']:.5f}. {held} of "
        f"{len(run['claims'])} claims hold. p(1 - p) scaled by one number has an ECE-2 of "
        f"{scaled['share_of_grouping_error']:.2f} of the grouping error. Over whole cues, the rank "
        f"correlation of stated and actual error is {ours['cue_correlation']:.2f} "
        f"(p(1 - p): {rows[NAIVE]['cue_correlation']:.2f})."
    )


def sizes() -> str:
    """How the model was trained, and on what it was judged."""
    run = results()[-1]
    config, training = run["config"], run["config"]["training"]
    loss = run["metrics"]["training"]
    return (
        f"Training: {config['sizes'][0]:,} cues, {training['num_passes']:g} pass of "
        f"{loss['num_steps']} steps of {training['cues_per_step']} cues with "
        f"{training['pairs_per_cue']} first answers each; the loss falls from "
        f"{loss['first_loss']:.2f} to {loss['last_loss']:.2f} nats per pair. Recalibration: "
        f"{config['sizes'][1]} other cues. Judged: {config['sizes'][2]} others, "
        f"{config['num_answers']} answers each."
    )


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
    "finding": finding,
    "sizes": sizes,
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
