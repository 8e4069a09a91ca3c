"""Peak memory of what could be made to need a lot of it: a long line, huge counts, deep JSON.

Run with `make bench`, or `python benchmarks/files_limits.py [--out FILE]`.
Each is measured in a process of its own, above what an interpreter with the package loaded needs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from secondguess._files import write_json

PROGRAMS = {
    "a line of 1 GB in JSON lines": """
path = Path(place) / "rows.jsonl"
with path.open("wb") as file:
    for _ in range(1000):
        file.write(b"x" * 1_000_000)
base = peak()
lines = [line.size for line in read_lines(path)]
assert lines == [10**9]
""",
    "10^9 annotations per row, 1,000 rows of counts": """
base = peak()
data = PairData.from_counts(np.full((1000, 2), 10**9))
data.draw(np.random.default_rng(0))
""",
    "report on 500 runs with a figure of 1 MB each": """
signature, header = b"\\x89PNG\\r\\n\\x1a\\n", b"\\0\\0\\0\\rIHDR\\0\\0\\0\\x01\\0\\0\\0\\x01"
claim = {"name": "n", "holds": True, "value": 1.0, "bound": 2.0}
figure = Figure(file="a.png", caption="a", alt="a")
for seed in range(500):
    run = Path(place) / "coins" / "quick" / f"seed-{seed}"
    (run / "figures").mkdir(parents=True)
    (run / "figures" / "a.png").write_bytes(signature + header + bytes(1_000_000))
    write_result(run, {"seed": seed, "claims": [claim] * 20})
    write_page(run, Section(title="a", paper_section="", claim="", figures=(figure,)))
base = peak()
assert write_report(Path(place)).stat().st_size > 600_000_000
""",
    "JSON nested 100,000 deep": """
base = peak()
try:
    parse_json(b"[" * 100_000)
except ValueError:
    pass
""",
}
HEAD = """
import resource, sys
from pathlib import Path
import numpy as np
from secondguess._files import parse_json, read_lines
from secondguess.classification.pairs import PairData
from secondguess.report.files import write_page, write_result
from secondguess.report.page import write_report
from secondguess.report.sections import Figure, Section
place = sys.argv[1]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""


def measure(program: str) -> int:
    """Megabytes that a program needs beyond the interpreter, at most."""
    with tempfile.TemporaryDirectory() as place:
        code = f"{HEAD}{program}\nprint((peak() - base) // 1000)"
        done = subprocess.run(
            [sys.executable, "-c", code, place], capture_output=True, text=True, check=True
        )
    return int(done.stdout)


def main() -> None:
    """Measure all, print, and keep the result where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    megabytes = {name: measure(program) for name, program in PROGRAMS.items()}
    for name, size in megabytes.items():
        print(f"{name}: {size} MB")
    if out is not None:
        command = "python benchmarks/files_limits.py --out docs/results/files-limits.json"
        write_json(out, {"command": command, "megabytes": megabytes})
    if max(megabytes.values()) > 200:
        sys.exit("more than 200 MB")


if __name__ == "__main__":
    main()
