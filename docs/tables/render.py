"""Put the tables made from docs/results into the pages on guaranteed intervals and performance.

    python docs/tables/render.py

Tables stand as `pages` says. Between `<!-- quoted: PAGE HEADING -->` and `<!-- end of quote -->` it
repeats the first table or block of that section of another page, with the command above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from statistics import geometric_mean
from typing import Any

import pages
from pages import DOCS, kept

PAGES = ("mean-bounds.md", "guaranteed-intervals.md", "performance.md")
METHODS = ("betting", "bernstein", "hoeffding")


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], command: str) -> str:
    """A Markdown table and the command that measured it."""
    lines = [heads, ["---:"] * len(list(heads)), *rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{body}\n\nMeasured by `{command}`."


def root(cutoff: float) -> str:
    """A cutoff as the square that the paper lists."""
    return f"{cutoff**0.5:.3g}²"


def coverage() -> str:
    """How often the upper bound fails."""
    record = kept("guaranteed-intervals-coverage")
    rows = []
    for row in record["rows"]:
        limit = row["failure_rate"]
        error = (limit * (1 - limit) / row["replicates"]) ** 0.5
        cells = []
        for method in METHODS:
            rate = row["failures"][method] / row["replicates"]
            mark = "" if rate <= limit + 3 * error else " (too often)"
            cells.append(f"{rate:.4f}{mark}, {row['median_bound'][method]:.4g}")
        rows.append([row["law"], f"{row['size']:,}", f"{row['mean']:.4g}", *cells])
    heads = ["values", "rows", "true mean", *(f"{m}: fails, median bound" for m in METHODS)]
    return table(heads, rows, record["command"])


def peer() -> str:
    """Beside one bet per observation."""
    record = kept("guaranteed-intervals-peer")
    rows = [
        [
            root(row["min_variance"]),
            f"{row['size']:,}",
            f"{row['mean']:.4g}",
            f"{row['bounds']['betting']:.5g}",
            f"{row['per_observation']:.5g}",
            f"{row['bounds']['betting'] / row['per_observation']:.3f}",
            f"{geometric_mean(row['ratios']):.3f} ({max(row['ratios']):.2f})",
            f"{row['bounds']['bernstein']:.4g}",
            f"{row['bounds']['hoeffding']:.4g}",
        ]
        for row in record["rows"]
    ]
    heads = ["min_variance", "rows", "true mean", "betting in parts", "bet per observation"]
    return table(
        [*heads, "ratio", "mean ratio (largest)", "bernstein", "hoeffding"], rows, record["command"]
    )


def speed() -> str:
    """Seconds and memory of the streams."""
    record = kept("mean-intervals-speed")
    rows = [
        [
            f"{row['rows']:,}",
            row["method"],
            f"{row['bound']:.4f}",
            f"{row['seconds']:.3g}",
            f"{1e9 * row['seconds'] / row['rows']:.1f}",
            f"{row['seconds'] / row['histogram_seconds']:.2f}" if row["histogram_seconds"] else "",
            f"{row['megabytes']:.1f}",
        ]
        for row in record["rows"]
    ]
    heads = ["rows", "method", "bound", "seconds", "ns per row", "times `np.histogram`", "MB"]
    array = record["array"]
    ratio = array["seconds"] / array["histogram_seconds"]
    return (
        f"{table(heads, rows, record['command'])} The mean of the values is "
        f"{record['rows'][0]['mean']:.4f}.\n\n"
        f"On one array of {array['rows']:,} values in memory, best of five: betting "
        f"{array['seconds']:.3f} s, `np.histogram` with 8,192 cells "
        f"{array['histogram_seconds']:.3f} s, ratio {ratio:.2f}."
    )


def speed_in_short() -> str:
    """The default method at a few sizes."""
    record = kept("mean-intervals-speed")
    rows = [
        [
            f"{row['rows']:,}",
            f"{1e9 * row['seconds'] / row['rows']:.1f}",
            f"{row['seconds'] / row['histogram_seconds']:.2f}",
            f"{row['megabytes']:.1f}",
        ]
        for row in record["rows"]
        if row["method"] == "betting" and row["rows"] >= 10**6
    ]
    heads = ["rows", "ns per row", "times `np.histogram`", "MB"]
    return table(heads, rows, record["command"])


def imports() -> str:
    """What `import secondguess` and each `--help` load, before the rooms were rebuilt and now."""
    record = kept("imports")
    rows = []
    for row in record["rows"]:
        sides = [row["before"], row["after"]]
        seconds = ["" if side is None else f"{side['seconds']:.2f}" for side in sides]
        modules = ["" if side is None else f"{side['modules']:,}" for side in sides]
        rows.append([f"`{row['name']}`", *seconds, *modules])
    heads = ["", "seconds before", "seconds now", "modules before", "modules now"]
    return table(heads, rows, record["command"])


def command() -> str:
    """The command line against reading the file."""
    record = kept("calibrate-command")
    names = {
        "read": "reading with pyarrow",
        "calibrate": "`secondguess calibrate`",
        "two_workers": "the same, `--workers 2`",
    }
    rows = [
        [
            names[name],
            f"{seconds:.1f}",
            f"{record['rows'] / seconds / 1e6:.1f}",
            f"{record['seconds']['read'] / seconds:.2f}",
            f"{record['megabytes'][name]:.0f}",
        ]
        for name, seconds in record["seconds"].items()
    ]
    heads = ["", "seconds", "million rows per second", "of the speed of reading", "peak MB"]
    if record["relative_difference_of_two_workers"] != 0:
        raise ValueError("Two workers found another inflation than one: the page says they do not.")
    return (
        f"{table(heads, rows, record['command'])}\n\n"
        f"The file has {record['rows']:,} rows ({record['file_megabytes']:,.0f} MB). Two workers "
        "find the same bound as one, to the last bit; so do five "
        "(`tests/cli/test_intervals_command.py::test_workers_give_the_bound_of_one_process`)."
    )


def conditions() -> str:
    """Failures and refusals for calibration sets as people have them."""
    record = kept("calibration-conditions")

    def cell(row: dict[str, Any], method: str) -> str:
        rates = row["failures"][method], row["refusals"][method]
        return ", ".join(f"{count / row['replicates']:.3f}" for count in rates)

    methods = ("betting", "bernstein", "hoeffding")
    rows = [
        [row["layout"], row["law"], f"{row['mean']:.3f}", *(cell(row, m) for m in methods)]
        for row in record["rows"]
    ]
    heads = ["rows", "law of p(1 given x)", "true E[D]"]
    heads += [f"{method}: fails, refused" for method in methods]
    return table(heads, rows, record["command"])


def world() -> str:
    """Coverage and width for the wrong predictor."""
    record = kept("guaranteed-intervals-world")
    rows = []
    for row in record["rows"]:
        cells = [
            f"{cell['coverage']:.4f}, {cell['width']:.3f}" for cell in row["miss_rates"].values()
        ]
        if row["method"] == "claimed":
            rows.append(["without calibration", "", "", *cells])
        else:
            cutoff = root(row["min_variance"])
            rows.append([row["method"], cutoff, f"{row['inflation']:.4g}", *cells])
    rates = record["rows"][0]["miss_rates"]
    heads = ["method", "min_variance", "inflation", *(f"miss rate {rate}" for rate in rates)]
    return table(heads, rows, record["command"])


def responses() -> str:
    """Five responses against two."""
    record = kept("guaranteed-intervals-extensions")
    rows = [
        [
            f"{row['size']:,}",
            root(row["min_variance"]),
            f"{row['true']:.4g}",
            f"{row['two']:.4g}",
            f"{row['five']:.4g}",
            f"{(row['five'] / row['two']) ** 0.5:.2f}",
        ]
        for row in record["rows"]["responses"]
    ]
    heads = ["rows", "min_variance", "true E[D]", "2 responses", "5 responses"]
    return table([*heads, "width, 5 against 2"], rows, record["command"])


def one_sided() -> str:
    """The one-sided bound against the lower end of the two-sided one."""
    record = kept("guaranteed-intervals-extensions")
    rows = [
        [
            f"{row['size']:,}",
            root(row["min_variance"]),
            f"{row['miss_rate']:g}",
            f"{row['coverage']:.4f}",
            f"{row['distance']:.3f}",
            f"{row['two_sided_distance']:.3f}",
            f"{1 - row['distance'] / row['two_sided_distance']:.1%}",
        ]
        for row in record["rows"]["one_sided"]
        if row["size"] == 100_000 and row["min_variance"] >= 0.02**2
    ]
    heads = ["rows", "min_variance", "miss rate", "covers", "one-sided distance"]
    return table([*heads, "two-sided distance", "nearer by"], rows, record["command"])


def quoted(page: str, heading: str) -> str:
    """What a section of another page measured: its opening paragraph and its first table or block.

    Args:
        page: the name of the page.
        heading: of the section, without the signs before it.
    """
    section = (DOCS / page).read_text().split(f"## {heading}\n", 1)[1].split("\n## ")[0]
    found = re.search(
        r".*?(^```.*?^```$|(?:^\|[^\n]*\n)+)", section, flags=re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise ValueError(f"{page} has no table or block below {heading!r}.")
    return re.sub(r"<!--.*?-->\n", "", found[0]).strip()


TABLES = {
    "coverage": coverage,
    "peer": peer,
    "speed": speed,
    "speed-in-short": speed_in_short,
    "command": command,
    "imports": imports,
    "world": world,
    "conditions": conditions,
    "responses": responses,
    "one-sided": one_sided,
}


def rendered(page: str) -> str:
    """The page with its tables made anew."""

    def quote(match: re.Match[str]) -> str:
        return f"{match[1]}\n{quoted(match[2], match[3])}\n{match[4]}"

    pattern = r"(<!-- quoted: (\S+) (.+?) -->).*?(<!-- end of quote -->)"
    return re.sub(pattern, quote, pages.filled(page, TABLES), flags=re.DOTALL)


def main() -> None:
    """Write the pages."""
    for page in PAGES:
        (DOCS / page).write_text(rendered(page))


if __name__ == "__main__":
    main()
