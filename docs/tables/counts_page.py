"""Put the tables and the picture made from docs/results into docs/intervals-from-counts.md.

    python docs/tables/counts_page.py

The results come from `intervals_from_counts.py`, `counts_auto.py`, `counts_limits.py`,
`snapshots.py` and `benchmarks/counts.py`.
"""

from __future__ import annotations

from statistics import stdev
from typing import Any

from pages import DOCS, filled, kept, table, with_command

PAGE = "intervals-from-counts.md"
PICTURE = DOCS / "pictures" / "intervals-from-counts-plan.png"


def failures() -> str:
    """The worst cell of every world, and how many cells there are."""
    record = kept("intervals-from-counts-failures")
    rows = []
    for name in dict.fromkeys(row["world"] for row in record["rows"]):
        for family in ("symmetric", "beta"):
            cells = [r for r in record["rows"] if (r["world"], r["family"]) == (name, family)]
            worst = max(cells, key=lambda cell: cell["failures"] / cell["replicates"])
            total = sum(cell["failures"] for cell in cells)
            rows.append(
                [
                    name,
                    family,
                    str(len(cells)),
                    f"{total / sum(cell['replicates'] for cell in cells):.4f}",
                    f"{worst['failures'] / worst['replicates']:.3f}",
                    f"{worst['num_responses']}",
                    f"{worst['rows']:,}",
                ]
            )
    heads = ["world", "family", "cells", "all fail", "worst fails", "responses there", "rows there"]
    return with_command(table(heads, rows), record)


def widths() -> str:
    """Counts, pairs, auto, oracle."""
    record = kept("intervals-from-counts-widths")
    rows = []
    for row in record["rows"]:
        for miss_rate, cells in row["miss_rates"].items():
            pairs, counts, auto, oracle = (
                cells[m]["width"] for m in ("pairs", "counts", "auto", "oracle")
            )
            rows.append(
                [
                    f"{row['data']}; truth: {row['truth']}",
                    row["num_responses"],
                    f"{row['rows']:,}",
                    miss_rate,
                    f"{pairs:.3f}",
                    f"{counts:.3f}",
                    f"{auto:.3f}",
                    f"{oracle:.3f}",
                    f"{counts / pairs:.2f}",
                    f"{auto / pairs:.2f}",
                    f"{cells['auto']['held']:.3f}",
                ]
            )
    heads = [
        "data",
        "responses",
        "rows",
        "miss rate",
        "pairs",
        "counts",
        "auto",
        "oracle",
        "counts / pairs",
        "auto / pairs",
        "held by auto",
    ]
    return with_command(table(heads, rows), record)


def limits() -> str:
    """Widths that unlimited rows would certify, for the simulated predictor."""
    record = kept("intervals-from-counts-limits")
    rows = [
        [
            f"{row['num_responses']:,}",
            f"{row['pairs']:.3f}",
            f"{row['counts']:.3f}",
            f"{row['counts'] / row['pairs']:.2f}",
            f"{row['oracle']:.3f}",
            f"{row['oracle'] / row['pairs']:.2f}",
        ]
        for row in record["rows"]["limits"]
    ]
    heads = ["responses", "pairs", "counts", "counts / pairs", "oracle", "oracle / pairs"]
    return with_command(table(heads, rows, num_left=0), record)


def moments() -> str:
    """Even moments against counts."""
    record = kept("intervals-from-counts-limits")
    orders = record["rows"]["moments"][0]["moments"]
    rows = [
        [
            f"{row['num_responses']:,}",
            f"{row['rows']:,}",
            *(f"{row['moments'][order]:.3f}" for order in orders),
            f"{row['counts']:.3f}",
        ]
        for row in record["rows"]["moments"]
    ]
    heads = ["responses", "rows", *(f"moment of order {order}" for order in orders), "counts"]
    return with_command(table(heads, rows, num_left=0), record)


def planning() -> str:
    """Rows by responses."""
    record = kept("intervals-from-counts-planning")
    responses = sorted({row["num_responses"] for row in record["rows"]})
    rows = [
        [f"{size:,}", *(planned(plan(record, size, k)) for k in responses)]
        for size in sorted({row["num_rows"] for row in record["rows"]})
    ]
    heads = ["rows", *(f"{k} responses" for k in responses)]
    return with_command(table(heads, rows, num_left=1), record)


def planned(cell: dict[str, Any]) -> str:
    """A width, and how far it strays from set to set."""
    return f"{cell['width']:.2f} ± {cell['spread']:.2f}"


def plan(record: dict[str, Any], size: int, responses: int) -> dict[str, Any]:
    """One cell of the plan."""
    return next(
        row
        for row in record["rows"]
        if (row["num_rows"], row["num_responses"]) == (size, responses)
    )


def cost() -> str:
    """Streams against Algorithm 1, in time and memory."""
    record = kept("counts-cost")
    rows = [
        [
            row["method"],
            f"{row['rows']:,}",
            str(row["num_responses"]),
            f"{row['seconds']:.2f}",
            f"{row['ratio']:.2f}",
            f"{row['megabytes']:.1f}",
            f"{row['megabytes_for_a_quarter']:.1f}",
        ]
        for row in record["rows"]
    ]
    heads = ["method", "rows", "responses", "seconds", "ratio to pairs", "MB"]
    heads.append("MB for a quarter of the rows")
    return with_command(table(heads, rows, num_left=1), record)


def whole() -> str:
    """The whole of it, the choice included, against the whole of Algorithm 1."""
    record = kept("counts-cost")
    rows = [
        [
            row["method"],
            f"{row['rows']:,}",
            str(row["num_responses"]),
            f"{row['seconds']:.2f}",
            f"{row['ratio']:.2f}",
        ]
        for row in record["end_to_end"]
    ]
    heads = ["call", "rows", "responses", "seconds", "ratio to `calibrate`"]
    return with_command(table(heads, rows, num_left=1), record)


def steps() -> str:
    """A training step of each loss against the pair loss."""
    record = kept("counts-cost")
    rows = [
        [
            f"`{row['loss']}`",
            str(row["num_responses"]),
            f"{1000 * row['seconds']:.2f}",
            f"{row['ratio']:.2f}",
        ]
        for row in record["steps"]
    ]
    heads = ["loss", "responses", "milliseconds", "ratio to `pair`"]
    return with_command(table(heads, rows, num_left=1), record)


def auto() -> str:
    """Auto against both on fresh worlds, and how often the whole fails."""
    record = kept("intervals-from-counts-auto")
    rows = []
    for row in record["rows"]:
        if "widths" not in row:
            continue
        pairs, counts, found = (row["widths"][m] for m in ("pairs", "counts", "auto"))
        rows.append(
            [
                row["world"] + (" (fresh)" if row.get("fresh") else ""),
                str(row["num_responses"]),
                f"{row['rows']:,}",
                f"{pairs:.3f}",
                f"{counts:.3f}",
                f"{found:.3f}",
                f"{found / pairs:.2f}",
                f"{found / min(pairs, counts):.2f}",
            ]
        )
    heads = ["world", "responses", "rows", "pairs", "counts", "auto"]
    heads += ["auto / pairs", "auto / better of both"]
    failed = [
        f"With {row['num_responses']} responses and {row['rows']} rows, the choice included, "
        f"{row['failures']} of {row['replicates']:,} calibration sets failed where the world is "
        f'"{row["world"]}".'
        for row in record["rows"]
        if "failures" in row
    ]
    return with_command(table(heads, rows, num_left=1) + "\n\n" + "\n".join(failed), record)


def snapshots() -> str:
    """What more responses per training row buy, after recalibration; means and spreads of seeds."""
    record = kept("snapshots")
    rows = []
    for (data, k, loss), cells in _cells(record).items():
        found = [cell["recalibrated"] for cell in cells]
        order = max(found[0]["higher_order_ece"], key=int)
        rows.append(
            [
                data,
                str(k),
                f"`{loss}`" if k > 2 else "either",
                _spread([f["log_likelihood"] for f in found]),
                f"{_spread([f['second_order_ece'] for f in found])} "
                f"({_mean([f['second_order_ece_floor'] for f in found]):.3f})",
                f"{_spread([f['higher_order_ece'][order] for f in found])} "
                f"({_mean([f['higher_order_ece_floor'][order] for f in found]):.3f})",
                _spread([c["certified"]["width"] for c in cells]),
                _spread([f["quantile_width"] for f in found]),
                f"{_mean([f['quantile_held'] for f in found]):.3f}",
            ]
        )
    heads = ["data", "k", "loss", "log-likelihood", "ECE-2 (floor)", "order-k error (floor)"]
    heads += ["certified width", "quantile width", "held by quantiles"]
    return with_command(table(heads, rows, num_left=3), record)


def recalibration() -> str:
    """The same networks before and after recalibration on held-out rows."""
    record = kept("snapshots")
    rows = []
    for (data, k, loss), cells in _cells(record).items():
        if loss != "snapshot":
            continue
        order = max(cells[0]["raw"]["higher_order_ece"], key=int)
        line = [data, str(k)]
        for name in ("log_likelihood", "second_order_ece", "higher_order_ece", "quantile_held"):
            values = [
                _mean([c[v][name][order] if "higher" in name else c[v][name] for c in cells])
                for v in ("raw", "recalibrated")
            ]
            line.append(f"{values[0]:.3f}, {values[1]:.3f}")
        rows.append(line)
    heads = ["data", "k", "log-likelihood", "ECE-2", "order-k error", "held by quantiles"]
    return with_command(table(heads, rows, num_left=2), record)


def _cells(record: dict[str, Any]) -> dict[tuple[str, int, str], list[dict[str, Any]]]:
    cells: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in record["rows"]:
        cells.setdefault((row["data"], row["k"], row["loss"]), []).append(row)
    return cells


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _spread(values: list[float]) -> str:
    return f"{_mean(values):.3f} ± {stdev(values):.3f}"


TABLES = {
    "snapshots": snapshots,
    "recalibration": recalibration,
    "auto": auto,
    "failures": failures,
    "widths": widths,
    "limits": limits,
    "moments": moments,
    "planning": planning,
    "cost": cost,
    "whole": whole,
    "steps": steps,
}


def draw() -> None:
    """The plan as a picture: one line per number of responses."""
    import matplotlib.pyplot as plt

    record = kept("intervals-from-counts-planning")
    sizes = sorted({row["num_rows"] for row in record["rows"]})
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for k in sorted({row["num_responses"] for row in record["rows"]}):
        axes.plot(
            sizes, [plan(record, size, k)["width"] for size in sizes], marker="o", label=str(k)
        )
    axes.set(xscale="log", xlabel="calibration rows", ylabel="mean width", ylim=(0, 1))
    axes.legend(title="responses per row", loc="lower left", ncols=3)
    figure.savefig(PICTURE, dpi=120, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """Write the page and the picture."""
    draw()
    (DOCS / PAGE).write_text(filled(PAGE, TABLES))


if __name__ == "__main__":
    main()
