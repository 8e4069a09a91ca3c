"""Import time and loaded modules of `import secondguess` and of each command's `--help`.

`python benchmarks/imports.py --out docs/results/imports.json`

Each measurement is a fresh interpreter; the least of three times counts, with the files already in
the operating system's cache. The peer is `import numpy, scipy.stats`, in the same run. With
`--against DIR`, the `src` folder of another version is measured in turn with this one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
REPEATS = 3
PEER = "import numpy, scipy.stats"
HELP = """
import sys
from secondguess.cli import main
sys.argv = ["secondguess", *{path!r}, "--help"]
try:
    main()
except SystemExit as ended:
    assert ended.code in (None, 0), ended.code
"""
COMMANDS = """
import typer
from secondguess.cli.app import app
def paths(group, path=()):
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from paths(command, (*path, name))
print(*(" ".join(path) for path in paths(typer.main.get_command(app))), sep="\\n")
"""
COUNT = "\nimport sys; print(len(sys.modules), file=sys.stderr)"


def run(source: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )


def measured(sources: list[Path], code: str) -> list[dict[str, float]]:
    """Seconds and modules for each version, measured in turn."""
    seconds, modules = [float("inf")] * len(sources), [0] * len(sources)
    for _ in range(REPEATS):
        for index, source in enumerate(sources):
            start = time.perf_counter()
            ended = run(source, code + COUNT)
            seconds[index] = min(seconds[index], time.perf_counter() - start)
            modules[index] = int(ended.stderr.split()[-1])
    return [{"seconds": s, "modules": m} for s, m in zip(seconds, modules, strict=True)]


def commands_of(source: Path) -> list[str]:
    return run(source, COMMANDS).stdout.split("\n")[:-1]


def measure(against: Path | None) -> dict[str, list[dict[str, float] | None]]:
    """By what is run: this version, and the other one where it has the command."""
    sources = [SOURCE, *([against] if against else [])]
    known = [set(commands_of(source)) for source in sources]
    found: dict[str, list[dict[str, float] | None]] = {
        PEER: [*measured([SOURCE], PEER), *([None] if against else [])],
        "import secondguess": [*measured(sources, "import secondguess")],
    }
    for command in commands_of(SOURCE):
        where = [source for source, names in zip(sources, known, strict=True) if command in names]
        values = measured(where, HELP.format(path=command.split()))
        missing = [None] * (len(sources) - len(where))
        found[" ".join(["secondguess", *command.split(), "--help"])] = [*values, *missing]
    return found


def table(found: dict[str, list[dict[str, float] | None]]) -> str:
    """The measurements in Markdown."""
    both = len(found["import secondguess"]) == 2
    order = [("before", 1), ("after", 0)] if both else [("", 0)]
    titles = [f"{what} {name}".strip() for what in ("seconds", "modules") for name, _ in order]
    lines = [["", *titles], ["---", *["---:"] * len(titles)]]
    for name, values in found.items():
        row = [values[index] for _, index in order]
        seconds = ["–" if each is None else f"{each['seconds']:.2f}" for each in row]
        modules = ["–" if each is None else f"{each['modules']:,}" for each in row]
        lines.append([f"`{name}`", *seconds, *modules])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    parser.add_argument("--out", type=Path, help="where to write the measurements as JSON")
    options = parser.parse_args()
    found = measure(options.against)
    print(table(found))
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
