"""Put the tables made from committed runs in docs/results into docs/facts.md.

python docs/tables/facts.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pages
from pages import DOCS, mean_and_error, run_title, table

from secondguess._arrays import FloatArray
from secondguess.experiments.facts.evaluation import ERROR_RATES
from secondguess.experiments.facts.run import CONFIDENCES, EXPERIMENT, LOG_PROBABILITIES, OURS

PAGE = "facts.md"
MODEL = "SmolLM2-135M-Instruct"
"""Whose runs most of the page is about."""


def results() -> list[dict[str, Any]]:
    """The runs about cities with three wordings, of the model that the page is about."""
    return [run for run in pages.results("facts") if is_main(run)]


def is_main(run: dict[str, Any]) -> bool:
    """Whether a run is about cities, with three wordings, and of the page's model."""
    return run["experiment"] == EXPERIMENT and MODEL in run["config"]["model"]


def others() -> list[dict[str, Any]]:
    """Runs of other models or about other facts."""
    return [
        run
        for run in pages.results("facts")
        if not is_main(run) and not run["experiment"].endswith("-wordings")
    ]


def families() -> str:
    """One row per run of another model or about other facts."""
    rows = []
    for run in others():
        scores = run["metrics"]["scores"]
        ours = scores[OURS]
        found = np.array(ours["deciles"])
        best = max(LOG_PROBABILITIES, key=lambda name: scores[name]["auroc"])
        rows.append(
            [
                run["experiment"].removeprefix(EXPERIMENT).strip("-") or "cities",
                run["config"]["model"].split("/")[-1].split(".Q")[0].split("-q")[0],
                run_title(run),
                f"{run['config']['sizes'][0]:,}; {run['config']['sizes'][3]:,}",
                f"{found[:, 1].mean():.1%}",
                f"{np.abs(found[:, 0] - found[:, 1]).max():.3f} ({chance(run):.0%})",
                f"{ours['auroc']:.3f} ({scores[best]['auroc']:.3f})",
                f"{ours['wrong_among_trusted']:.1%} ({scores[best]['wrong_among_trusted']:.1%})",
                ", ".join(f"{share:.1%}" for share in ours["answered"].values()),
            ]
        )
    if not rows:
        return "Both families and larger models can be asked, and have not been at this size."
    rates = ", ".join(f"{rate:.0%}" for rate in ERROR_RATES)
    heads = ["facts", "model", "run", "trained; tested on", "right", "largest difference (chance)"]
    heads += ["AUROC", "wrong of the tenth most trusted", f"answered at {rates}"]
    return table(heads, rows, num_left=3)


def chance(run: dict[str, Any]) -> float:
    """How often an exactly calibrated confidence shows at least this largest difference."""
    found = np.array(run["metrics"]["scores"][OURS]["deciles"])
    number, means = run["config"]["sizes"][3] // 10, found[:, 0].clip(0, 1)
    drawn = np.random.default_rng(0).binomial(number, means, size=(10_000, 10))
    largest = np.abs(drawn / number - means).max(axis=1)
    return float(np.mean(largest >= np.abs(found[:, 0] - found[:, 1]).max()))


def by_deciles(name: str) -> FloatArray:
    """`(seeds, 10, 2)`: mean confidence and share right."""
    return np.array([run["metrics"]["scores"][name]["deciles"] for run in results()])


def values(name: str, *keys: str) -> list[float]:
    """One number per seed."""
    found = []
    for run in results():
        each = run["metrics"]["scores"][name]
        for key in keys:
            each = each[key]
        found.append(each)
    return found


def deciles() -> str:
    """Confidence and share right, from the least confident tenth on."""
    rows = []
    for name in CONFIDENCES:
        every = by_deciles(name)
        titled = [(run_title(run), part) for run, part in zip(results(), every, strict=True)]
        if name != OURS:
            titled = []
        if len(every) > 1 or not titled:
            titled.append((f"mean of {len(every)}" if len(every) > 1 else "", every.mean(axis=0)))
        for title, part in titled:
            first = f"{title}: {name}" if title else name
            rows.append([first, *(f"{each:.3f}" for each in part[:, 0])])
            rows.append(["share right", *(f"{each:.3f}" for each in part[:, 1])])
    means = by_deciles(OURS)[0, :, 0].clip(0, 1)
    errors = np.sqrt(means * (1 - means) / per_decile())
    rows.append(["standard error of a seed", *(f"{each:.3f}" for each in errors)])
    return table(["decile", *(f"{number}" for number in range(1, 11))], rows, num_left=1)


def per_decile() -> int:
    """How many test questions a decile of one seed has."""
    return results()[0]["config"]["sizes"][3] // 10


def finding() -> str:
    """What the page is about."""
    every = by_deciles(OURS)
    largest = np.abs(every[..., 0] - every[..., 1]).max(axis=1)
    pooled = every.mean(axis=0)
    best = max(LOG_PROBABILITIES, key=lambda name: np.mean(values(name, "auroc")))
    over = f", over all {len(every)} together {np.abs(pooled[:, 0] - pooled[:, 1]).max():.3f}"
    answered = values(OURS, "answered", "0.1")
    return (
        f"{'Seeds' if len(every) > 1 else 'Seed'} "
        f"{', '.join(str(run['seed']) for run in results())}: the largest difference of "
        f"confidence and share right in a decile is {told(largest, '{:.3f}')}"
        f"{over if len(every) > 1 else ''}. The AUROC is {told(values(OURS, 'auroc'), '{:.3f}')} "
        f"({best}: {told(values(best, 'auroc'), '{:.3f}')}). Of the tenth that is trusted most, "
        f"{told(values(OURS, 'wrong_among_trusted'), '{:.1%}')} are wrong ({best}: "
        f"{told(values(best, 'wrong_among_trusted'), '{:.1%}')}). At a guaranteed error rate of "
        f"5 %, {told(values(OURS, 'answered', '0.05'), '{:.1%}')} of the questions are answered, "
        f"at 10 % {told(answered, '{:.1%}')}."
    )


def told(numbers: Any, form: str) -> str:
    """Numbers of all seeds in words."""
    return ", ".join(form.format(each) for each in numbers)


def noise() -> str:
    """The largest difference by deciles, and what a perfectly calibrated confidence would show."""
    lines = []
    for run, part in zip(results(), by_deciles(OURS), strict=True):
        number, means = per_decile(), part[:, 0].clip(0, 1)
        drawn = np.random.default_rng(0).binomial(number, means, size=(10_000, 10))
        largest = np.abs(drawn / number - means).max(axis=1)
        found = np.abs(part[:, 0] - part[:, 1]).max()
        lines.append(
            f"{run_title(run)}: the largest difference is {found:.3f}. With {number} questions per "
            f"decile, an exactly calibrated confidence shows {largest.mean():.3f} on average, more "
            f"than 0.05 in {np.mean(largest > 0.05):.0%} of runs, and at least {found:.3f} in "
            f"{np.mean(largest >= found):.0%}."
        )
    return "\n".join(lines)


def rivals() -> str:
    """Every score of all answers."""
    rows = []
    for name, found in results()[0]["metrics"]["scores"].items():
        if "answered" not in found:
            continue
        answered = []
        for rate in found["answered"]:
            shares = values(name, "answered", rate)
            wrong = values(name, "wrong_among_answered", rate)
            answered.append(
                ", ".join(
                    f"{share:.1%}" + ("" if each is None else f" ({each:.1%})")
                    for share, each in zip(shares, wrong, strict=True)
                )
            )
        rows.append(
            [
                name,
                mean_and_error(values(name, "auroc"), "{:.3f}"),
                mean_and_error(
                    [100 * each for each in values(name, "wrong_among_trusted")], "{:.1f}"
                ),
                *answered,
            ]
        )
    heads = ["score", "AUROC", "wrong of the tenth most trusted, %"]
    heads += [f"answered at {float(rate):.0%} (wrong)" for rate in ERROR_RATES]
    return table(heads, rows, num_left=1)


def few() -> str:
    """Every score of the answers that the costly rivals judged too."""
    rows = []
    for run in results():
        if number := run["config"]["num_for_rivals"]:
            found = run["metrics"]["scores"]
            for name in sorted(found, key=lambda each: -found[each]["few"]["auroc"]):
                rows.append(
                    [run_title(run), name, f"{number}", f"{found[name]['few']['auroc']:.3f}"]
                )
    return table(["run", "score", "questions", "AUROC"], rows)


def costs() -> str:
    """What each score costs per question, in the first run."""
    metrics = results()[0]["metrics"]
    kept = {**metrics["cost"], **metrics["rivals"]}
    rows = [
        [
            name,
            f"{found['passes']:.0f}" if "passes" in found else "",
            f"{found['tokens']:.0f}",
            f"{found['seconds']:.2f}",
        ]
        for name, found in kept.items()
        if name not in LOG_PROBABILITIES
    ]
    heads = ["per question", "passes one by one", "tokens read", "seconds of one core"]
    return table(heads, rows, num_left=1)


def peers() -> str:
    """Rivals beside other implementations of them."""
    record = pages.kept("rival-peers")
    rows = [
        [
            row["score"],
            row["peer"],
            f"{row['answers']}",
            f"{abs(row['lowest']):.2f} to {row['highest']:.2f}",
            f"{row['largest_difference']:.1e}",
        ]
        for row in record["rows"]
    ]
    heads = ["score", "peer", "answers", "values, in nats", "largest difference"]
    return pages.with_command(table(heads, rows), record)


def claims() -> str:
    """What was to be shown, and what was."""
    return pages.claims(results(), run_title)


def rendered() -> str:
    """The page with its tables made anew."""
    makers = (finding, deciles, noise, rivals, few, peers, costs, claims, families)
    return pages.filled(PAGE, {each.__name__: each for each in makers})


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
