"""Put the tables made from committed runs in docs/results into docs/digits-of-pi.md.

    python docs/tables/digits_of_pi.py

Each `digits-of-pi-*.json` there is the `result.json` of a run of `secondguess reproduce
digits-of-pi`, and so is each `pi-recalibrated-*.json`, of later runs of the same seeds on another
machine; `pi-recipes.json` is what `benchmarks/pi_recipes.py` keeps, and `recalibrated-draws.json`
is written by the script of that name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pages
from pages import DOCS, mean_and_error, run_title, table

from secondguess.experiments.digits_of_pi.rankings import RIVALS
from secondguess.experiments.digits_of_pi.recalibrated import BANDS
from secondguess.experiments.digits_of_pi.run import PRESETS

PAGE = "digits-of-pi.md"
results = partial(pages.results, "digits-of-pi")
SHARES = ("0.05", "0.1", "0.2", "0.3")


def by_preset() -> dict[str, list[dict[str, Any]]]:
    """The committed runs of each preset."""
    presets = dict.fromkeys(run["preset"] for run in results())
    return {preset: [run for run in results() if run["preset"] == preset] for preset in presets}


def averages(runs: list[dict[str, Any]], path: Sequence[str | int], form: str) -> str:
    """The mean over runs of what stands at a path in their metrics."""
    return mean_and_error([at(run["metrics"], path) for run in runs], form)


def at(found: Any, path: Sequence[str | int]) -> Any:
    """What stands at a path in nested records."""
    for key in path:
        found = found[key]
    return found


def knowledge() -> str:
    """What the runs of each preset learned."""
    rows = []
    for preset, runs in by_preset().items():
        config, training = runs[0]["config"], runs[0]["metrics"]["training"]
        rows.append(
            [
                preset,
                f"{training['num_parameters']:,}",
                f"{config['num_steps']:,} x {config['batch_size']}",
                averages(runs, ("exact", "correct_among_first_250"), "{:.1%}"),
                averages(runs, ("exact", "correct"), "{:.1%}"),
            ]
        )
    heads = ["preset", "parameters", "steps x pairs", "true of the first 250", "true of all"]
    return table(heads, rows, num_left=1)


def finding() -> str:
    """Digits known, and what is made up of the most trusted statements, by preset."""
    rows = []
    for preset, runs in by_preset().items():
        rates = [run["metrics"]["samples"]["rate_and_standard_error"] for run in runs]
        cells = [averages(runs, ("exact", "known_digits"), "{:.0f}")]
        for share in ("0.1", "0.2"):
            ours = [found["epistemic confidence"][share][0] for found in rates]
            best = [min(found[rival][share][0] for rival in RIVALS) for found in rates]
            cells += [mean_and_error(values, "{:.1%}") for values in (ours, best)]
        rows.append([preset, f"{len(runs)}", *cells])
    heads = ["preset", "seeds", "digits known"]
    for share in ("10 %", "20 %"):
        heads += [f"made up of the {share} most trusted", f"of the best rival's {share}"]
    return table(heads, rows, num_left=1)


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
    """1 - C and the share that is made up by decile, over all sentences, averaged over seeds."""
    rows = []
    for preset, runs in by_preset().items():
        exact = [run["metrics"]["exact"] for run in runs]
        confidence = np.mean([each["decile_confidence"] for each in exact], axis=0)
        rates = np.mean([each["decile_hallucination_rate"] for each in exact], axis=0)
        rows.append([f"{preset}: 1 - C", *(f"{1 - value:.3f}" for value in confidence)])
        rows.append([f"{preset}: made up", *(f"{value:.3f}" for value in rates)])
    return table(["decile", *(f"{number}" for number in range(1, 11))], rows, num_left=1)


def recalibrated_runs() -> dict[str, list[dict[str, Any]]]:
    """Runs that were recalibrated, by preset; those of `cpu` are kept by themselves."""
    paths = sorted((DOCS / "results").glob("pi-recalibrated-*.json"))
    runs = [*results(), *(json.loads(path.read_text()) for path in paths)]
    runs = [run for run in runs if "recalibration" in run["metrics"]]
    presets = dict.fromkeys(run["preset"] for run in runs)
    return {preset: [run for run in runs if run["preset"] == preset] for preset in presets}


def recalibrated_deciles() -> str:
    """1 - C and the share that is made up by decile of all sentences, before and after."""
    rows = []
    for preset, runs in recalibrated_runs().items():
        for when, title in (("before", ""), ("after", " recalibrated")):
            found = [run["metrics"]["recalibration"]["exact"][when] for run in runs]
            confidence = np.mean([each["decile_confidence"] for each in found], axis=0)
            rates = np.mean([each["decile_hallucination_rate"] for each in found], axis=0)
            farthest = np.abs(rates - (1 - confidence)).max()
            name = f"{preset}{title}"
            rows.append([f"{name}: 1 - C", *(f"{1 - value:.3f}" for value in confidence), ""])
            rates_shown = (f"{value:.3f}" for value in rates)
            rows.append([f"{name}: made up", *rates_shown, f"{farthest:.3f}"])
    heads = ["decile", *(f"{number}" for number in range(1, 11)), "largest difference"]
    return table(heads, rows, num_left=1)


def bands() -> str:
    """Half-learned digits, and confidences at which decoders answer, before and after."""
    rows = []
    for preset, runs in recalibrated_runs().items():
        for when in ("before", "after"):
            found = [run["metrics"]["recalibration"]["exact"][when]["bands"] for run in runs]
            cells = [_band([each[index] for each in found]) for index in range(len(BANDS))]
            rows.append([preset, f"{len(runs)}", when, *cells])
    heads = [
        f"C from {least:g}" + ("" if np.isinf(below) else f" to {below:g}")
        for least, below in BANDS
    ]
    return table(["preset", "seeds", "recalibration", *heads], rows, num_left=3)


def _band(found: list[dict[str, float]]) -> str:
    """Share of the statements; 1 - C; made up."""
    share = np.mean([each["weight"] for each in found])
    if any(each["weight"] == 0 for each in found):
        return f"{share:.1%}"
    promised = mean_and_error([1 - each["confidence"] for each in found], "{:.3f}")
    made_up = mean_and_error([each["hallucination_rate"] for each in found], "{:.3f}")
    return f"{share:.1%}; {promised}; {made_up}"


def overall() -> str:
    """The rate beside the bound over everything, and how many confidences are far above 1."""
    rows = []
    for preset, runs in by_preset().items():
        for way, part in (("samples", "samples"), ("all sentences", "exact")):
            path = (part, "overall")
            rows.append(
                [
                    f"{preset}, {way}",
                    averages(runs, (*path, "hallucination_rate"), "{:.4f}"),
                    averages(runs, (*path, "promised_rate"), "{:.4f}"),
                    averages(runs, (*path, "outlier_share"), "{:.2%}"),
                ]
            )
    return table(["over", "made up", "1 - mean C", "C above 1.5"], rows, num_left=1)


def rankings() -> str:
    """Hallucination rates of all rankings; the default gap is the confidence's own ranking."""
    columns = [("quick", "0.1"), ("quick", "0.2"), *(("cpu", share) for share in SHARES)]
    path = ("samples", "rate_and_standard_error")
    rows = [
        [name, *(averages(by_preset()[p], (*path, name, s, 0), "{:.2%}") for p, s in columns)]
        for name in at(results()[0]["metrics"], path)
        if name != "gap absolute"
    ]
    heads = [f"{preset}, {float(share):.0%}" for preset, share in columns]
    return table(["ranking", *heads], rows, num_left=1)


def decoders() -> str:
    """What each decoder promised, did and answered."""
    rows = []
    for name, found in results()[0]["metrics"]["decoders"].items():
        cells = []
        for runs in by_preset().values():
            path = ("decoders", name)
            cells += [
                averages(runs, (*path, "hallucination_rate"), "{:.2%}"),
                averages(runs, (*path, "answered"), "{:.0%}"),
                averages(runs, (*path, "hazy"), "{:.0%}"),
            ]
        rows.append([f"{name.split()[0]}, {found['promised_rate']:g}", *cells])
    heads = [
        f"{preset}: {head}" for preset in by_preset() for head in ("made up", "answered", "hazy")
    ]
    return table(["strategy, promised rate", *heads], rows, num_left=1)


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
    """Some statements with a confidence above 1.5 of the first seed: false ones, and true ones."""
    found = cpu_results()[0]["metrics"]["samples"]["outliers"]["examples"]
    found = [
        each
        for truth, number in ((False, 3), (True, 2))
        for each in [each for each in found if each["is_true"] == truth][:number]
    ]
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
    return by_preset()["cpu"]


def draws() -> str:
    """The largest difference by deciles after recalibration, for pairs drawn many times."""
    record = pages.kept("recalibrated-draws")
    rows = [
        [
            f"{row['pairs']}",
            f"{len(row['after'])}",
            f"{row['before']:.3f}",
            f"{np.median(row['after']):.3f}",
            f"{min(row['after']):.3f} to {max(row['after']):.3f}",
            f"{sum(each > row['before'] for each in row['after'])}",
        ]
        for row in record["rows"]
    ]
    heads = ["pairs about each digit", "draws", "before", "after: median", "after", "draws above"]
    return pages.with_command(table(heads, rows, num_left=0), record)


TABLES = {
    "recalibrated-draws": draws,
    "finding": finding,
    "knowledge": knowledge,
    "recipes": recipes,
    "deciles": deciles,
    "recalibrated-deciles": recalibrated_deciles,
    "bands": bands,
    "overall": overall,
    "rankings": rankings,
    "decoders": decoders,
    "outliers": outliers,
    "examples": outlier_examples,
    "claims": lambda: pages.claims(results(), itemgetter("preset")),
}


rendered = partial(pages.filled, PAGE, TABLES)

if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
