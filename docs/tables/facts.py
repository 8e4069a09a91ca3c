"""Put the tables made from committed runs in docs/results into docs/facts.md.

python docs/results/keep.py --numbers docs/results out/facts*/cpu/seed-*
python docs/tables/facts.py
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pages
from pages import DOCS, mean_and_error, run_title, table

from secondguess._arrays import FloatArray
from secondguess.experiments.facts.evaluation import ERROR_RATES
from secondguess.experiments.facts.families import FAMILIES
from secondguess.experiments.facts.run import CONFIDENCES, EXPERIMENT, LOG_PROBABILITIES, OURS

PAGE = "facts.md"
MODEL = "SmolLM2-135M-Instruct"
"""Whose runs most of the page is about."""
NUM_SEEDS = 3
"""How many the page is meant to have."""


def results() -> list[dict[str, Any]]:
    """The runs about cities with three wordings, of the model that the page is about."""
    return [run for run in pages.results("facts") if is_main(run)]


def is_main(run: dict[str, Any]) -> bool:
    """Whether a run is about cities, with three wordings, and of the page's model and size."""
    is_usual = run["experiment"] == EXPERIMENT and run["preset"] == "cpu"
    return is_usual and MODEL in run["config"]["model"]


def family_of(run: dict[str, Any]) -> str:
    """What a run asks about."""
    return run["experiment"].removeprefix(EXPERIMENT).strip("-") or "cities"


def deciles_of(run: dict[str, Any], name: str) -> FloatArray:
    """`(10, 2)`: mean confidence and share right."""
    return np.array(run["metrics"]["scores"][name]["deciles"])


def by_deciles(name: str) -> FloatArray:
    """`(seeds, 10, 2)`: mean confidence and share right."""
    return np.array([deciles_of(run, name) for run in results()])


def per_decile(run: dict[str, Any]) -> int:
    """How many test questions a decile of a run has."""
    return run["config"]["sizes"][3] // 10


def largest_difference(parts: FloatArray) -> float:
    """Of confidence and share right in a decile, runs `(n, 10, 2)` pooled."""
    means = parts.mean(axis=0)
    return float(np.abs(means[:, 0] - means[:, 1]).max())


def by_chance(parts: FloatArray, number: int) -> FloatArray:
    """Largest differences that exactly calibrated confidences would show, `(10_000,)`.

    Args:
        parts: `(n, 10, 2)`, runs that are pooled.
        number: of questions in a decile of a run.
    """
    means = parts[..., 0].clip(0, 1)
    drawn = np.random.default_rng(0).binomial(number, means, size=(10_000, *means.shape))
    return np.abs((drawn / number - means).mean(axis=1)).max(axis=1)


def pooled_title() -> str:
    """What the mean over all seeds is called."""
    return f"{len(results())} seeds pooled"


def families() -> str:
    """One row per run, whatever it asks about and whichever model."""
    rows = []
    for run in pages.results("facts"):
        if is_worded(run):
            continue
        scores = run["metrics"]["scores"]
        ours, part = scores[OURS], deciles_of(run, OURS)[None]
        found, chance = largest_difference(part), by_chance(part, per_decile(run))
        best = max(LOG_PROBABILITIES, key=lambda name: scores[name]["auroc"])
        rows.append(
            [
                family_of(run),
                model_of(run),
                run_title(run),
                f"{run['config']['sizes'][0]:,}; {run['config']['sizes'][3]:,}",
                f"{part[0, :, 1].mean():.1%}",
                f"{found:.3f}",
                f"{chance.mean():.3f}; {np.mean(chance >= found):.0%}",
                f"{ours['auroc']:.3f} ({scores[best]['auroc']:.3f})",
                f"{ours['wrong_among_trusted']:.1%} ({scores[best]['wrong_among_trusted']:.1%})",
                ", ".join(f"{share:.1%}" for share in ours["answered"].values()),
            ]
        )
    rates = ", ".join(f"{rate:.0%}" for rate in ERROR_RATES)
    heads = ["facts", "model", "run", "trained; tested on", "right", "largest difference"]
    heads += ["by chance alone: mean; as large", "AUROC", "wrong of the tenth most trusted"]
    return table([*heads, f"answered at {rates}"], rows, num_left=3)


def wordings() -> str:
    """The confidences of a meaning and of a wording, with three wordings and with twelve."""
    every = [*results(), *(r for r in pages.results("facts") if is_worded(r))]
    rows = []
    for name, run in product(CONFIDENCES, every):
        found, part = run["metrics"]["scores"][name], deciles_of(run, name)
        rows.append(
            [
                name,
                f"{run['config']['num_wordings']}",
                run_title(run),
                f"{part[:, 0].mean():.3f}",
                f"{part[:, 1].mean():.3f}",
                f"{largest_difference(part[None]):.3f}",
                f"{found['auroc']:.3f}",
                f"{found['wrong_among_trusted']:.1%}",
            ]
        )
    heads = ["score", "wordings", "run", "mean confidence", "right", "largest difference", "AUROC"]
    return table([*heads, "wrong of the tenth most trusted"], rows, num_left=1)


def is_worded(run: dict[str, Any]) -> bool:
    """Whether a run has other than three wordings."""
    return run["experiment"].endswith("-wordings")


def model_of(run: dict[str, Any]) -> str:
    """The name of a model, without that of its precision."""
    return run["config"]["model"].split("/")[-1].split(".Q")[0].split("-q")[0]


def values(name: str, *keys: str) -> list[Any]:
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
            titled.append((pooled_title() if len(every) > 1 else "", every.mean(axis=0)))
        for title, part in titled:
            first = f"{title}: {name}" if title else name
            rows.append([first, *(f"{each:.3f}" for each in part[:, 0])])
            rows.append(["share right", *(f"{each:.3f}" for each in part[:, 1])])
    means = by_deciles(OURS)[..., 0].clip(0, 1).mean(axis=0)
    errors = np.sqrt(means * (1 - means) / per_decile(results()[0]))
    rows.append(["standard error of a seed", *(f"{each:.3f}" for each in errors)])
    return table(["decile", *(f"{number}" for number in range(1, 11))], rows, num_left=1)


def finding() -> str:
    """What the page is about, and in how many seeds it is what was asked for."""
    every, seeds = by_deciles(OURS), [str(run["seed"]) for run in results()]
    largest = [largest_difference(part[None]) for part in every]
    number = per_decile(results()[0])
    best = max(LOG_PROBABILITIES, key=lambda name: np.mean(values(name, "auroc")))
    chance = f"exactly calibrated: {by_chance(every[:1], number).mean():.3f} on average"
    if len(every) > 1:
        chance += (
            f"; {largest_difference(every):.3f} with all seeds pooled, "
            f"{by_chance(every, number).mean():.3f} if exactly calibrated"
        )
    rates = [
        f"{told(values(OURS, 'answered', f'{rate:g}'), '{:.1%}')} of the questions at {rate:.0%}"
        for rate in ERROR_RATES
    ]
    lines = [
        f"Largest difference of confidence and share right in a decile: "
        f"{told(largest, '{:.3f}')} ({chance}). "
        f"{reached('largest difference from the share right, by deciles', 'at most', '{:g}')}",
        f"AUROC: {told(values(OURS, 'auroc'), '{:.3f}')} "
        f"({best}: {told(values(best, 'auroc'), '{:.3f}')}). "
        f"{reached('AUROC', 'at least', '{:g}')}",
        f"Wrong among the tenth that is trusted most: "
        f"{told(values(OURS, 'wrong_among_trusted'), '{:.1%}')} "
        f"({best}: {told(values(best, 'wrong_among_trusted'), '{:.1%}')}). "
        f"{reached('wrong among the tenth most trusted', 'at most', '{:.0%}')}",
        f"Answered at a guaranteed error rate: {'; '.join(rates)}.",
    ]
    title = f"{'Seeds' if len(seeds) > 1 else 'Seed'} {', '.join(seeds)}"
    title += ", in this order:" if len(seeds) > 1 else ":"
    return "\n".join([title, "", *(f"- {line}" for line in lines)])


def reached(claim: str, side: str, form: str) -> str:
    """What was asked for, and in how many seeds it holds."""
    found = [
        each for run in results() for each in run["claims"] if each["name"] == f"{OURS}: {claim}"
    ]
    number = sum(each["holds"] for each in found)
    verdict = f"reached in {number} of {len(found)} seeds"
    if len(found) == 1:
        verdict = "reached" if number else "not reached"
    return f"Asked for beforehand: {side} {form.format(found[0]['bound'])}; {verdict}."


def told(numbers: Any, form: str) -> str:
    """Numbers of all seeds in words."""
    return ", ".join(form.format(each) for each in numbers)


def noise() -> str:
    """The largest difference by deciles, and what a perfectly calibrated confidence would show."""
    every = by_deciles(OURS)
    titled = [(run_title(run), part[None]) for run, part in zip(results(), every, strict=True)]
    if len(every) > 1:
        titled.append((pooled_title(), every))
    rows = []
    for title, parts in titled:
        number = per_decile(results()[0])
        found, chance = largest_difference(parts), by_chance(parts, number)
        rows.append(
            [
                title,
                f"{number * len(parts):,}",
                f"{found:.3f}",
                f"{chance.mean():.3f}",
                f"{np.mean(chance > 0.05):.0%}",
                f"{np.mean(chance >= found):.0%}",
            ]
        )
    heads = ["run", "questions per decile", "largest difference", "by chance alone: mean"]
    return table([*heads, "above 0.05", "as large"], rows, num_left=1)


def lines() -> str:
    """What recalibration did in each run."""

    def told_line(line: dict[str, float]) -> str:
        return f"{line['slope']:.2f} times its logit {line['offset']:+.2f}"

    rows = []
    for run in results():
        found = run["metrics"]["recalibration"]
        cells = [told_line(found[name]) for name in ("first", "repeat", "confidence")]
        rows.append([run_title(run), f"{found['num_pairs']:,}", *cells])
    return table(["run", "held-out questions", "p(m|x)", "p(m|m,x)", "C"], rows, num_left=1)


def rivals() -> str:
    """Every score of all answers: means over seeds, and ours in each of them."""
    first = results()[0]["metrics"]["scores"]
    rows = []
    for name in [name for name, found in first.items() if "answered" in found]:
        rows.append(_judged_row(name, name, slice(None)))
        if name == OURS and len(results()) > 1:
            rows += [
                _judged_row(run_title(run), name, slice(place, place + 1))
                for place, run in enumerate(results())
            ]
    heads = ["score", "AUROC", "wrong of the tenth most trusted, %"]
    heads += [f"answered at {float(rate):.0%} (wrong)" for rate in ERROR_RATES]
    return table(heads, rows, num_left=1)


def _judged_row(title: str, name: str, seeds: slice) -> list[str]:
    """How a score does in some seeds; what is wrong is a share of all that they answer."""
    cells = []
    for rate in ERROR_RATES:
        shares = np.array(values(name, "answered", f"{rate:g}")[seeds])
        wrong = np.array(values(name, "wrong_among_answered", f"{rate:g}")[seeds], dtype=float)
        cell = f"{shares.mean():.1%}"
        if shares.any():
            cell += f" ({np.nansum(shares * wrong) / shares.sum():.1%})"
        cells.append(cell)
    trusted = [100 * each for each in values(name, "wrong_among_trusted")[seeds]]
    aurocs = mean_and_error(values(name, "auroc")[seeds], "{:.3f}")
    return [title, aurocs, mean_and_error(trusted, "{:.1f}"), *cells]


def missing() -> str:
    """What the page is meant to have, and no kept run is about."""
    every = pages.results("facts")
    wanted = []
    if len(results()) < NUM_SEEDS:
        wanted.append("more seeds")
    if all(MODEL in run["config"]["model"] for run in every):
        wanted.append("a larger model")
    wanted += [
        f"a run about {name}" for name in FAMILIES if name not in {family_of(r) for r in every}
    ]
    if not any(map(is_worded, every)):
        wanted.append("twelve wordings (`--num-wordings 12`)")
    return f"Not run at this size: {'; '.join(wanted) or 'nothing of what was planned'}."


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
    makers = [finding, deciles, noise, lines, rivals, few, peers, costs, claims, wordings, families]
    makers.append(missing)
    return pages.filled(PAGE, {each.__name__: each for each in makers})


if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
