"""Import time and loaded modules of `import secondguess` and of each command's `--help`.

    python benchmarks/imports.py --against BEFORE/src --out docs/results/imports.json

Each measurement is a fresh interpreter, in seconds of the processor, which other work disturbs less
than the clock; the least of three counts, the interpreter's own start included. The peer is
`import numpy, scipy.stats`, in the same run. With `--against DIR`, the `src` folder of another
version is measured in turn with this one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
COMMAND = "python benchmarks/imports.py --against BEFORE/src --out docs/results/imports.json"
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


def processor_seconds() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(sources: list[Path], code: str) -> list[dict[str, float]]:
    """Seconds and modules for each version, measured in turn."""
    seconds, modules = [float("inf")] * len(sources), [0] * len(sources)
    for _ in range(REPEATS):
        for index, source in enumerate(sources):
            start = processor_seconds()
            ended = run(source, code + COUNT)
            seconds[index] = min(seconds[index], processor_seconds() - start)
            modules[index] = int(ended.stderr.split()[-1])
    return [{"seconds": s, "modules": m} for s, m in zip(seconds, modules, strict=True)]


def commands_of(source: Path) -> list[str]:
    return run(source, COMMANDS).stdout.split("\n")[:-1]


def measure(against: Path | None) -> list[dict[str, Any]]:
    """One row for each thing that is run, `before` where the other version has it."""
    sources = [SOURCE, *([against] if against else [])]
    known = [commands_of(source) for source in sources]
    rows: list[dict[str, Any]] = []

    def add(name: str, where: list[Path], code: str) -> None:
        after, *before = measured(where, code)
        rows.append({"name": name, "after": after, "before": before[0] if before else None})

    add(PEER, [SOURCE], PEER)
    add("import secondguess", sources, "import secondguess")
    for command in known[0]:
        where = [source for source, names in zip(sources, known, strict=True) if command in names]
        path = command.split()
        add(" ".join(["secondguess", *path, "--help"]), where, HELP.format(path=path))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    parser.add_argument("--out", type=Path, help="where to write the measurements as JSON")
    options = parser.parse_args()
    rows = measure(options.against)
    print(f"{'':42} {'before':>8} {'after':>8} {'modules':>8} {'modules':>8}")
    for row in rows:
        sides = [row["before"], row["after"]]
        seconds = ["" if side is None else f"{side['seconds']:.2f} s" for side in sides]
        modules = ["" if side is None else f"{side['modules']:,}" for side in sides]
        print(f"{row['name']:42}", *(f"{cell:>8}" for cell in [*seconds, *modules]))
    if options.out:
        record = {"command": COMMAND, "rows": rows}
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
