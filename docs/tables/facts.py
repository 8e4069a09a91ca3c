"""Put the tables made from committed runs in docs/results into docs/facts.md.

python docs/tables/facts.py
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pages
from pages import DOCS, run_title, table

from secondguess.experiments.facts.evaluation import ERROR_RATES
from secondguess.experiments.facts.run import FOLDED, OURS, RIVALS

PAGE = "facts.md"
results = partial(pages.results, "facts")
CONFIDENCES = (OURS, FOLDED, "confidence of the meaning", "confidence of the wording")


def deciles() -> str:
    """Confidence and share right, from the least confident tenth on."""
    rows = []
    for run in results():
        for name in CONFIDENCES:
            means, shares = np.array(run["metrics"]["scores"][name]["deciles"]).T
            rows.append([f"{run_title(run)}: {name}", *(f"{each:.3f}" for each in means)])
            rows.append(["share right", *(f"{each:.3f}" for each in shares)])
        means, _ = np.array(run["metrics"]["scores"][FOLDED]["deciles"]).T
        errors = np.sqrt(means * (1 - means) / per_decile(run))
        rows.append(["standard error if calibrated", *(f"{each:.3f}" for each in errors)])
    return table(["decile", *(f"{number}" for number in range(1, 11))], rows, num_left=1)


def finding() -> str:
    """What the page is about, in one sentence per run."""
    lines = []
    for run in results():
        scores = run["metrics"]["scores"]
        means, shares = np.array(scores[FOLDED]["deciles"]).T
        *_, second, largest = np.sort(np.abs(means - shares))
        best = max(RIVALS, key=lambda name: scores[name]["auroc"])
        lines.append(
            f"{run_title(run)}: in nine of ten deciles the confidence is within {second:.2f} of "
            f"the share right, and in the tenth within {largest:.2f} (one answer in "
            f"{run['config']['sizes'][3]:,} apart, whose C is far above 1). Its AUROC is "
            f"{scores[OURS]['auroc']:.3f}; the best rival, {best}, has "
            f"{scores[best]['auroc']:.3f}. Of the tenth that it trusts most, "
            f"{scores[OURS]['wrong_among_trusted']:.0%} are wrong ({best}: "
            f"{scores[best]['wrong_among_trusted']:.0%}; semantic entropy: "
            f"{scores['semantic entropy']['wrong_among_trusted']:.0%})."
        )
    return "\n".join(lines)


def per_decile(run: dict[str, Any]) -> int:
    """How many test questions a decile has."""
    return run["config"]["sizes"][3] // 10


def noise() -> str:
    """The largest difference by deciles, and what a perfectly calibrated confidence would show."""
    lines = []
    for run in results():
        means, shares = np.array(run["metrics"]["scores"][FOLDED]["deciles"]).T
        number = per_decile(run)
        drawn = np.random.default_rng(0).binomial(number, means.clip(0, 1), size=(10_000, 10))
        largest = np.abs(drawn / number - means).max(axis=1)
        found = np.abs(means - shares).max()
        lines.append(
            f"{run_title(run)}: with 1/C for C above 1, the largest difference is {found:.3f}. "
            f"With {number} questions per decile, an exactly calibrated confidence shows "
            f"{largest.mean():.3f} on average, more than 0.05 in {np.mean(largest > 0.05):.0%} of "
            f"runs, and at least {found:.3f} in {np.mean(largest >= found):.0%}."
        )
    return "\n".join(lines)


def rivals() -> str:
    """Every score of the same answers."""
    rows = []
    for run in results():
        for name, found in run["metrics"]["scores"].items():
            answered = [
                f"{share:.1%}" + ("" if wrong is None else f" ({wrong:.1%})")
                for share, wrong in zip(
                    found["answered"].values(), found["wrong_among_answered"].values(), strict=True
                )
            ]
            scored = [f"{found['auroc']:.3f}", f"{found['wrong_among_trusted']:.1%}"]
            rows.append([f"{run_title(run)}: {name}", *scored, *answered])
    heads = ["score", "AUROC", "wrong of the 10 % most trusted"]
    heads += [f"answered at {float(rate):.0%} (wrong)" for rate in ERROR_RATES]
    return table(heads, rows, num_left=1)


def costs() -> str:
    """What each score costs per question."""
    rows = [
        [
            f"{run_title(run)}: {name}",
            f"{found['tokens']:.0f}",
            f"{found['passes']:.2f}",
            f"{found['seconds']:.2f}",
        ]
        for run in results()
        for name, found in run["metrics"]["cost"].items()
    ]
    heads = ["per question", "tokens read", "calls of the network", "seconds of one core"]
    return table(heads, rows, num_left=1)


def claims() -> str:
    """What was to be shown, and what was."""
    return pages.claims(results(), run_title)


def rendered() -> str:
    """The page with its tables made anew."""
    makers = {each.__name__: each for each in (finding, deciles, noise, rivals, costs, claims)}
    return pages.filled(PAGE, makers)


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
