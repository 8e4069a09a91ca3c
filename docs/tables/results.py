"""Put the table made from committed runs in docs/results into docs/results.md.

    python docs/tables/results.py

One row per experiment and preset: the method that is spoken of, how many seeds, and the mean over
them with its standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import facts as facts_page
import numpy as np
import pages
from pages import DOCS, table
from regression import NAMES as REGRESSION_METHODS
from regression import method_rows

from secondguess.experiments.digits_of_pi.rankings import RIVALS
from secondguess.experiments.facts.run import LOG_PROBABILITIES, OURS
from secondguess.experiments.regression.claims import relative_ece

PAGE = "results.md"
NAMES = ("regression", "digits-of-pi", "frozen-lake", "cifar10h", "facts", "associations")
Run = dict[str, Any]


def results() -> list[Run]:
    """All committed runs that the table speaks of."""
    return [
        run
        for name in NAMES
        for run in pages.results(name)
        if "experiment" in run  # not a projection of costs
    ]


def runs_of(experiment: str, preset: str) -> list[Run]:
    """The seeds of a preset."""
    return [run for run in results() if run["experiment"] == experiment and run["preset"] == preset]


def cell(values: list[float], form: str) -> str:
    """A mean over seeds, ± its standard error where there are several."""
    mean = form.format(np.mean(values))
    if len(values) == 1:
        return mean
    return f"{mean} ± {form.format(np.std(values, ddof=1) / np.sqrt(len(values)))}"


def regression(preset: str, function: str) -> list[list[str]]:
    """ECE-2 over the grouping error, and ECE-2 itself, of every method."""
    runs = [method_rows(run) for run in runs_of(f"regression-{function}", preset)]
    left_out = ("cheat_corrected_early_stopping", "cheat_corrected_signed")
    rows = []
    for name, title in REGRESSION_METHODS.items():
        found = [run[name] for run in runs if name in run]
        if not found or name in left_out:
            continue
        shares = [relative_ece(each) for each in found]
        absolute = [each["second_order_ece"] for each in found]
        what = "ECE-2 over the grouping error; ECE-2"
        values = f"{cell(shares, '{:.0%}')}; {cell(absolute, '{:.4f}')}"
        rows.append([f"{function}: {title}", preset, f"{len(found)}", what, values])
    return rows


def digits_of_pi(preset: str) -> list[list[str]]:
    """What is made up of the statements that rankings trust most."""
    runs = runs_of("digits-of-pi", preset)
    rates = [run["metrics"]["samples"]["rate_and_standard_error"] for run in runs]

    def made_up(choose: Callable[[dict[str, Any], str], float]) -> str:
        return "; ".join(
            cell([choose(found, share) for found in rates], "{:.1%}") for share in ("0.1", "0.2")
        )

    what = "made up of the 10 % and of the 20 % most trusted statements"
    return [
        [
            "digits of pi: confidence of the pair model",
            preset,
            f"{len(runs)}",
            what,
            made_up(lambda found, share: found["epistemic confidence"][share][0]),
        ],
        [
            "digits of pi: the best of four rivals",
            preset,
            f"{len(runs)}",
            what,
            made_up(lambda found, share: min(found[rival][share][0] for rival in RIVALS)),
        ],
    ]


def frozen_lake(preset: str) -> list[list[str]]:
    """What is kept of the walks under the hidden view."""
    runs = runs_of("frozen-lake", preset)
    title = "Frozen Lake: network taught by the experts' action probabilities"
    hidden = {
        "Frozen Lake: exact predictor": [
            run["metrics"]["exact"][f"discount {run['config']['discount']:g}"]["hidden"]
            for run in runs
        ],
        title: [run["metrics"]["samples"]["hidden"] for run in runs],
    }
    keys = ("accepted_among_always_safe", "over_lake_among_accepted", "over_lake")
    return [
        [
            title,
            preset,
            f"{len(found)}",
            "safe walks kept; over the lake of the kept; of all",
            "; ".join(cell([each[key] for each in found], "{:.1%}") for key in keys),
        ]
        for title, found in hidden.items()
    ]


def cifar10h(preset: str) -> list[list[str]]:
    """ECE-2 over the grouping error on the original data, of every method."""
    (run,) = runs_of("cifar10h", preset)
    backbone = "on frozen features" if run["config"]["backbone"] == "frozen" else "from pixels"
    titles = {
        "cheat": "Cheat NN, as published",
        "cheat-sngp": "Cheat SNGP, as published",
        "cheat-all-pairs-recalibrated": "Cheat NN, all pairs, recalibrated (ours)",
        "naive": "naive network",
        "ensemble": "ensemble",
        "evidential": "evidential network",
        "sngp": "SNGP covariance",
        "epinet": "epinet",
    }
    rows = run["metrics"]["original"]
    return [
        [
            f"CIFAR-10H {backbone}: {title}",
            preset,
            f"{len(rows[name]['kl'])}",
            "ECE-2 over the grouping error (floor under Dirichlet truths); KL",
            f"{cell(rows[name]['relative_ece'], '{:.1%}')} "
            f"({np.mean(rows[name]['relative_floor']):.1%}); {cell(rows[name]['kl'], '{:.4f}')}",
        ]
        for name, title in titles.items()
        if name in rows
    ]


def facts(preset: str) -> list[list[str]]:
    """How well scores tell right answers about cities from wrong ones."""
    runs = [run for run in runs_of("facts", preset) if facts_page.is_main(run)]
    found = [run["metrics"]["scores"] for run in runs]

    def row(title: str, choose: Callable[[dict[str, Any], str], float]) -> list[str]:
        values = [
            cell([choose(scores, key) for scores in found], form)
            for key, form in (("auroc", "{:.3f}"), ("wrong_among_trusted", "{:.1%}"))
        ]
        what = "AUROC; wrong of the 10 % most trusted"
        return [f"facts: {title}", preset, f"{len(runs)}", what, "; ".join(values)]

    return [
        row(OURS, lambda scores, key: scores[OURS][key]),
        *(
            row(name, lambda scores, key, name=name: scores[name][key])
            for name in LOG_PROBABILITIES
        ),
    ]


def associations(preset: str) -> list[list[str]]:
    """How well p(answer|cue) knows its distance from the shares of people."""
    found = [run["metrics"]["scores"]["methods"] for run in runs_of("associations", preset)]
    return [
        [
            f"associations: {name}",
            preset,
            f"{len(found)}",
            "ECE-2 over the grouping error; ECE-2",
            f"{cell([methods[name]['share_of_grouping_error'] for methods in found], '{:.0%}')}; "
            f"{cell([methods[name]['second_order_ece'] for methods in found], '{:.4f}')}",
        ]
        for name in found[0]
    ]


def experiments() -> str:
    """All rows."""
    rows = [
        *regression("quick", "sinusoid"),
        *regression("paper", "sinusoid"),
        *regression("paper", "piecewise"),
        *digits_of_pi("quick"),
        *digits_of_pi("cpu"),
        *frozen_lake("quick"),
        *frozen_lake("cpu"),
        *cifar10h("cpu"),
        *cifar10h("cpu-pixels"),
        *facts("cpu"),
        *associations("cpu"),
    ]
    return table(["experiment: method", "preset", "seeds", "measure", "result"], rows, num_left=2)


TABLES = {"experiments": experiments}


def rendered() -> str:
    """The page with its tables made anew."""
    return pages.filled(PAGE, TABLES)


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
