"""Put the tables made from committed runs in docs/results into docs/digits-of-pi.md.

    python docs/tables/digits_of_pi.py

Each `digits-of-pi-*.json` there is the `result.json` of a run of `secondguess reproduce
digits-of-pi`; `pi-recipes.json` is what `benchmarks/pi_recipes.py` keeps.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pages
from pages import DOCS, run_title, table

from secondguess.experiments.digits_of_pi.rankings import RIVALS
from secondguess.experiments.digits_of_pi.run import PRESETS

PAGE = "digits-of-pi.md"
results = partial(pages.results, "digits-of-pi")


def knowledge() -> str:
    """What each run learned."""
    rows = []
    for run in results():
        exact, training = run["metrics"]["exact"], run["metrics"]["training"]
        rows.append(
            [
                run_title(run),
                f"{training['num_parameters']:,}",
                f"{run['config']['num_steps']:,} x {run['config']['batch_size']}",
                f"{exact['known_digits']}",
                f"{exact['correct_among_first_250']:.1%}",
                f"{exact['correct']:.1%}",
            ]
        )
    heads = ["run", "parameters", "steps x pairs", "digits known"]
    return table([*heads, "true of the first 250", "true of all"], rows, num_left=1)


def finding() -> str:
    """Digits known, and what is made up of the most trusted statements, by preset."""
    rows = []
    for preset in dict.fromkeys(run["preset"] for run in results()):
        runs = [run for run in results() if run["preset"] == preset]
        rates = [run["metrics"]["samples"]["rate_and_standard_error"] for run in runs]
        cells = [
            mean_and_error([run["metrics"]["exact"]["known_digits"] for run in runs], "{:.0f}")
        ]
        for share in ("0.1", "0.2"):
            ours = [found["epistemic confidence"][share][0] for found in rates]
            best = [min(found[rival][share][0] for rival in RIVALS) for found in rates]
            cells += [mean_and_error(values, "{:.1%}") for values in (ours, best)]
        rows.append([preset, f"{len(runs)}", *cells])
    heads = ["preset", "seeds", "digits known"]
    for share in ("10 %", "20 %"):
        heads += [f"made up of the {share} most trusted", f"of the best rival's {share}"]
    return table(heads, rows, num_left=1)


def mean_and_error(values: list[float], form: str) -> str:
    """A mean over seeds, with its standard error where there are several."""
    mean = form.format(np.mean(values))
    if len(values) == 1:
        return mean
    return f"{mean} ± {form.format(np.std(values, ddof=1) / np.sqrt(len(values)))}"


def recipes() -> str:
    """Recipes that were tried, by `python benchmarks/pi_recipes.py`."""
    rows = []
    for found in json.loads((DOCS / "results" / "pi-recipes.json").read_text()).values():
        config = asdict(replace(PRESETS["cpu"], **found["changes"]))
        rows.append(
            [
                f"{config['hidden_size']}",
                "Muon" if config["matrix_learning_rate"] else "AdamW",
                f"{config['num_steps']:,}",
                f"{config['uniform_share']:g}",
                "even" if config["even_draws"] else "independent",
                f"{found['known_digits']}",
                f"{found['most_cautious_decile']:+.3f} to {found['most_trusting_decile']:+.3f}",
                f"{found['unlearned_confidence']:.3f}, {found['unlearned_true']:.3f}",
                f"{found['made_up_of_most_trusted']:.3%}",
            ]
        )
    heads = ["width", "optimizer", "steps", "any digit", "draws", "digits known"]
    heads += ["made up less 1 - C, by decile", "C, and true, beyond 1,500", "made up of 10 %"]
    return table(heads, rows, num_left=0)


def deciles() -> str:
    """Mean confidence and hallucination rate by decile, over all sentences."""
    rows = []
    for run in results():
        exact = run["metrics"]["exact"]
        cells = [
            f"{1 - confidence:.3f}, {rate:.3f}"
            for confidence, rate in zip(
                exact["decile_confidence"], exact["decile_hallucination_rate"], strict=True
            )
        ]
        rows.append([run_title(run), *cells])
    return table(["run", *(f"{number}" for number in range(1, 11))], rows, num_left=1)


def overall() -> str:
    """The rate beside the bound over everything that was sampled, outliers apart."""
    rows = []
    for run in results():
        for way, part in (("samples", "samples"), ("all sentences", "exact")):
            found = run["metrics"][part]["overall"]
            rows.append(
                [
                    run_title(run),
                    way,
                    f"{found['hallucination_rate']:.4f}",
                    f"{found['promised_rate']:.4f} ± {found['standard_error']:.4f}",
                    f"{found['outlier_share']:.2%}",
                    f"{found['outlier_hallucination_rate']:.1%}",
                    f"{found['outlier_malformed_share']:.1%}",
                ]
            )
    heads = ["run", "over", "made up", "1 - mean C", "C above 1.5", "made up of those"]
    return table([*heads, "no sentence, of those"], rows)


def rankings() -> str:
    """Hallucination rates of all rankings at four response rates."""
    rows = []
    for run in results():
        for name, rates in run["metrics"]["samples"]["rate_and_standard_error"].items():
            cells = (f"{rate:.2%} ± {error:.2%}" for rate, error in rates.values())
            rows.append([run_title(run), name, *cells])
    return table(["run", "ranking", "5 %", "10 %", "20 %", "30 %"], rows)


def decoders() -> str:
    """What each decoder promised, did and answered."""
    rows = []
    for run in results():
        for name, found in run["metrics"]["decoders"].items():
            strategy = name.split()[0]
            rows.append(
                [
                    run_title(run),
                    strategy,
                    f"{found['promised_rate']:g}",
                    f"{found['hallucination_rate']:.4f} ± {found['standard_error']:.4f}",
                    f"{found['answered']:.1%}",
                    f"{found['hazy']:.1%}",
                ]
            )
    heads = ["run", "strategy", "promised", "made up", "answered", "answered “Reply hazy”"]
    return table(heads, rows)


def outliers() -> str:
    """Confidences above 1.5 by band, and what the model would say after them."""
    rows = []
    for run in cpu_results():
        found = run["metrics"]["samples"]["outliers"]
        bands = (
            f"{band['count']} ({band['false']}, {band['malformed']})" for band in found["bands"]
        )
        sentences_after = found["malformed"]["share_sentences_after"]
        rows.append([run_title(run), f"{found['num_samples']:,}", *bands, f"{sentences_after:.1%}"])
    heads = ["run", "samples", "C from 1.5 to 2", "2 to 10", "above 10"]
    return table([*heads, "sentences after no sentence"], rows, num_left=1)


def outlier_examples() -> str:
    """Statements of all heights of confidence above 1.5, those of the first seed."""
    found = cpu_results()[0]["metrics"]["samples"]["outliers"]["examples"]
    rows = [
        [
            f"{each['offset']}",
            f"{each['digit']}",
            each["text"],
            "true" if each["is_true"] else "false",
            f"{each['probability']:.1e}",
            f"{each['confidence']:.3g}",
            f"{each['share_correct']:.1%}",
        ]
        for each in found
    ]
    heads = ["place", "digit", "statement", "", "p(y|x)", "C", "true of all about it"]
    return table(heads, rows, num_left=4)


def cpu_results() -> list[dict[str, Any]]:
    """Committed runs of the preset `cpu`; the quick one has too few samples for this."""
    return [run for run in results() if run["preset"] == "cpu"]


TABLES = {
    "finding": finding,
    "knowledge": knowledge,
    "recipes": recipes,
    "deciles": deciles,
    "overall": overall,
    "rankings": rankings,
    "decoders": decoders,
    "outliers": outliers,
    "examples": outlier_examples,
    "claims": lambda: pages.claims(results(), run_title),
}


rendered = partial(pages.filled, PAGE, TABLES)

if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
