"""Put the tables made from docs/results/cifar10h-*.json into docs/cifar10h.md.

    python docs/tables/cifar10h.py

`cifar10h-cpu.json` and `cifar10h-cpu-pixels.json` are the `seed-all/result.json` of `secondguess
reproduce cifar10h --preset cpu` and `--preset cpu-pixels`, with methods that were run later
(`docs/tables/cifar10h_add.py`); `cifar10h-cost.json`, `cifar10h-lengths.json` and
`evidential-peers.json` are written by the scripts of the same names.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pages
from pages import DOCS

from secondguess.experiments.cifar10h import tables

PAGE = "cifar10h.md"
results = partial(pages.results, "cifar10h")


def result(name: str) -> dict[str, Any]:
    """A committed measurement."""
    return pages.kept(f"cifar10h-{name}")


def setting(preset: str) -> str:
    """How the run was made, and what it took."""
    run = result(preset)
    minutes = sum(run["seconds"].values()) / 60
    later = "".join(
        f"; {method}, later, on {found['machine']['processor']}"
        for method, found in run.get("added", {}).items()
    )
    return (
        f"`secondguess reproduce cifar10h --preset {run['preset']}`, {minutes:.0f} minutes on the "
        f"clock, {'tuning included, ' if run['config']['recipes'] is None else ''}on "
        f"{run['machine']['processor']}{later}."
    )


def finding() -> str:
    """ECE-2 of every method in every variant, with its standard error over seeds and its floor."""
    run = result("cpu")
    metrics = run["metrics"]
    seeds = {name: max(len(row["kl"]) for row in rows.values()) for name, rows in metrics.items()}
    rows = []
    for name in metrics["original"]:
        cells = []
        for found in (metrics[variant][name] for variant in tables.TITLES):
            ece = tables.mean_and_error(found["second_order_ece"], 3)
            cells.append(f"{ece} ({np.mean(found['second_order_ece_floor']):.3f})")
        features = f"{run['preset']}, {run['config']['backbone']}"
        rows.append([tables.row_title(name), features, *cells])
    heads = [
        f"{title}, {seeds[variant]} seed{'s' if seeds[variant] > 1 else ''}"
        for variant, title in tables.TITLES.items()
    ]
    return pages.table(["method", "preset, features", *heads], rows)


def naive() -> str:
    """The judged pair models minus the naive network, with the noise of the difference."""
    rows = [
        [
            tables.row_title(row),
            tables.TITLES[variant],
            {"accuracy": "accuracy, per cent", "kl": "KL"}[name],
            *(
                "" if found[key] is None else f"{found[key]:+.4f}".replace("+", signed)
                for key, signed in (
                    ("mean", "+"),
                    ("standard_error", ""),
                    ("standard_error_of_seeds", ""),
                )
            ),
        ]
        for variant, by_row in result("cpu")["minus_naive"].items()
        for row, differences in by_row.items()
        for name, found in differences.items()
    ]
    heads = ["method", "variant", "of", "difference", "standard error", "of the seeds alone"]
    return pages.table(heads, rows, num_left=3)


def claims(preset: str) -> str:
    """Every claim once, by variant, with what the paper has there."""
    found: dict[str, dict[str, str]] = {}
    run = result(preset)
    titles = [title for variant, title in tables.TITLES.items() if variant in run["metrics"]]
    for claim in run["claims"]:
        variant, _, name = claim["name"].partition(": ")
        verdict = "yes" if claim["holds"] else "**no**"
        cell = f"{verdict}: {claim['value']:.3g} ({claim['bound']:.3g}) [{claim['paper']}]"
        found.setdefault(name, {})[variant] = cell
    rows = [
        [name, *(cells.get(title, "") for title in titles)]
        for name, cells in sorted(found.items(), key=lambda item: "SNGP has" in item[0])
    ]
    return pages.table(["claim", *titles], rows, num_left=1)


def minutes() -> str:
    """Accuracy and divergence of the pixel networks after each epoch of pretraining."""
    run = result("cpu-pixels")
    curves = {part.split("/")[1]: curve for part, (curve,) in run["learning_curves"].items()}
    (lengths,) = {len(curve) for curve in curves.values()}
    heads = [
        f"{tables.row_title(name)}: {what}"
        for name in curves
        for what in ("minutes", "accuracy", "KL")
    ]
    rows = [
        [
            f"{epoch + 1}",
            *(
                cell
                for curve in curves.values()
                for look in [curve[epoch]]
                for cell in (
                    f"{look['seconds'] / 60:.1f}",
                    f"{look['accuracy']:.1f}",
                    f"{look['kl']:.3f}",
                )
            ),
        ]
        for epoch in range(lengths)
    ]
    final = [
        cell
        for name in curves
        for row in [run["metrics"]["original"][name]]
        for cell in ("", f"{row['accuracy'][0]:.1f}", f"{row['kl'][0]:.3f}")
    ]
    return pages.table(["epoch", *heads], [*rows, ["fine-tuned, test images", *final]], num_left=1)


_MEASURES = {"relative_ece": "ECE-2 over grouping error", **tables.HEADINGS}


def published(name: str) -> dict[str, float | None]:
    """What the paper prints for a method on the original data."""
    found = dict(zip(tables.COLUMNS, tables.PAPER_MEANS["original"][name], strict=True))
    ece, error = found["second_order_ece"], found["grouping_error"]
    assert ece is not None
    assert error is not None
    return {"relative_ece": ece / error, **found}


def original_rows() -> dict[str, dict[str, dict[str, float | None]]]:
    """Means on the original data by method, then by where it was trained."""
    runs = {"pixels": result("cpu-pixels"), "frozen features": result("cpu")}
    rows: dict[str, dict[str, dict[str, float | None]]] = {}
    for name in runs["pixels"]["metrics"]["original"]:
        for where, run in runs.items():
            found = run["metrics"]["original"][name]
            rows.setdefault(name, {})[where] = {
                key: float(np.mean(found[key])) for key in _MEASURES
            }
        if name in tables.PAPER_MEANS["original"]:
            rows[name]["the paper's"] = published(name)
    return rows


def pixels() -> str:
    """The pixel networks beside those on frozen features and the paper's."""

    def cell(key: str, value: float | None) -> str:
        assert value is not None
        if key == "relative_ece":
            return f"{value:.0%}"
        return f"{value:.1f}" if key == "accuracy" else f"{value:.3f}"

    rows = [
        [tables.row_title(name), where, *(cell(key, found[key]) for key in _MEASURES)]
        for name, by_place in original_rows().items()
        for where, found in by_place.items()
    ]
    return pages.table(["method", "networks", *_MEASURES.values()], rows)


def order() -> str:
    """The methods of both runs and the paper, best first, by each measure."""
    by_method = {name: found for name, found in original_rows().items() if "the paper's" in found}
    places = ("pixels", "frozen features", "the paper's")
    rows = []
    for key in ("relative_ece", "second_order_ece", "kl", "accuracy"):
        cells = []
        for place in places:
            values = {tables.row_title(name): row[place][key] for name, row in by_method.items()}
            best_first = sorted(
                values, key=lambda name: values[name] or 0, reverse=key == "accuracy"
            )
            cells.append(", ".join(best_first))
        rows.append([_MEASURES[key], *cells])
    return pages.table(["best first by", *places], rows, num_left=4)


def peers() -> str:
    """The evidential loss and its gradient beside those of other packages."""
    record = pages.kept("evidential-peers")
    rows = [
        [
            title.replace("_", " "),
            f"{row['loss']:.6f}",
            f"{row['loss_difference']:.1e}",
            f"{row['largest_gradient']:.1e}",
            f"{row['largest_gradient_difference']:.1e}",
        ]
        for title, row in record["rows"].items()
    ]
    heads = ["form, package", "our loss", "difference", "our largest gradient", "difference"]
    return pages.with_command(pages.table(heads, rows, num_left=1), record)


def lengths() -> str:
    """Divergence on the validation images by steps of both trainings, the best of a method bold."""
    record = result("lengths")
    values: dict[str, dict[tuple[int, int], float]] = {}
    for row in record["rows"]["lengths"]:
        steps = row["pretraining"], row["finetuning"]
        values.setdefault(row["method"], {})[steps] = row["kl"]
    columns = sorted({steps for found in values.values() for _, steps in found})
    rows = []
    for method, found in values.items():
        best = min(found, key=lambda steps: found[steps])
        for pretraining in dict.fromkeys(steps for steps, _ in found):
            cells = []
            for steps in ((pretraining, finetuning) for finetuning in columns):
                cell = f"{found[steps]:.3f}" if steps in found else ""
                cells.append(f"**{cell}**" if steps == best else cell)
            rows.append([method, f"{pretraining:,}", *cells])
    heads = ["method", "pretraining", *(f"{steps:,} of fine-tuning" for steps in columns)]
    return pages.with_command(pages.table(heads, rows, num_left=1), record)


def searches() -> str:
    """Rows that were found by a longer search, below those that they replaced."""
    run = result("cpu")
    keys = ("second_order_ece", "mean_variance", "grouping_error", "kl")
    rows = []
    added = run["added"].items()
    longer = {name: found for name, found in added if name in found["config"]["longer"]}
    for method, found in longer.items():
        for variant, before in found["replaced"].items():
            title = [tables.row_title(method), tables.TITLES[variant]]
            now = {key: np.mean(run["metrics"][variant][method][key]) for key in keys}
            for search, means in (("as the others", before[method]), ("longer", now)):
                rows.append([*title, search, *(f"{means[key]:.3f}" for key in keys)])
    heads = ["method", "variant", "search", *(_MEASURES[key] for key in keys)]
    return pages.table(heads, rows, num_left=3)


def parts() -> str:
    """What parts of SNGP, and the prior of the epinet, do on the validation images."""
    record = result("lengths")["rows"]
    steps = result("cpu")["recipes"]["epinet"]["finetuning"]["num_steps"]
    shorter = [
        row | {"method": "Epinet, prior of weight 4, 400 steps of pretraining"}
        for row in record["lengths"]
        if (row["method"], row["pretraining"], row["finetuning"]) == ("Epinet", 400, steps)
    ]
    rows = [
        [
            row["method"],
            f"{row['kl']:.3f}",
            f"{row['accuracy']:.1f}",
            f"{row['second_order_ece'] / row['grouping_error']:.0%}",
            f"{row['second_order_ece']:.3f}",
            f"{row['mean_variance']:.3f}",
            f"{row['grouping_error']:.3f}",
        ]
        for row in [*record["parts"], *shorter]
    ]
    heads = ["method", "KL", "accuracy", "ECE-2 over grouping error", "ECE-2", "E[v]", "E[(p̂-p)²]"]
    return pages.table(heads, rows, num_left=1)


def cost() -> str:
    """The projection for a GPU."""
    found = result("cost")
    rows = [
        [
            row["method"],
            f"{row['parameters']:,}",
            f"{row['gigaflops_per_image']:.1f}",
            f"{row['gigaflops_per_step'] / 1000:.1f}",
            f"{row['hours']:.1f}",
            f"{row['hours_with_sweeps']:.0f}",
        ]
        for row in found["rows"]
    ]
    heads = ["method", "parameters of a network", "10⁹ operations per image"]
    heads += [f"10¹² per step of {found['batch_size']}", "hours", "hours with the sweeps"]
    return (
        f"{pages.table(heads, rows, num_left=1)}\n\n"
        f"Assumed: {found['accelerator']}, {found['peak_teraflops']:.0f} · 10¹² operations per "
        f"second at its peak, of which training reaches {found['utilisation']:.0%}. Counted by "
        f"`{found['command']}`."
    )


TABLES = {
    "setting": lambda: setting("cpu"),
    "finding": finding,
    "main": lambda: tables.main_table(result("cpu")["metrics"]),
    "extra": lambda: tables.extra_table(result("cpu")["metrics"]),
    "naive": naive,
    "claims": lambda: claims("cpu"),
    "pixels": pixels,
    "pixels-setting": lambda: setting("cpu-pixels"),
    "pixels-minutes": minutes,
    "pixels-order": order,
    "pixels-claims": lambda: claims("cpu-pixels"),
    "peers": peers,
    "lengths": lengths,
    "searches": searches,
    "parts": parts,
    "cost": cost,
}

rendered = partial(pages.filled, PAGE, TABLES)

if __name__ == "__main__":
    (DOCS / PAGE).write_text(rendered())
