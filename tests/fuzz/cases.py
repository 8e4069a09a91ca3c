"""Bad inputs by a seed: files of every format, damaged or odd, and commands that read them.

A case is a function of its number alone. It fills a folder, and gives the command to run there and
the class that it belongs to. `python tests/fuzz/cases.py NUM [START]` runs cases in this process
and prints how they ended, by class; with another PYTHONPATH it does so for another version.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from typer.testing import CliRunner

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz import language_cases
from fuzz.damages import ODD_VALUES, damage
from fuzz.settings_cases import of_settings

ROWS = 40
COLUMNS = ["--probs-col", "p", "--variance-col", "v", "--response-cols", "y1,y2"]


@dataclass(frozen=True)
class Case:
    """A command in a folder.

    Attributes:
        kind: the class that it belongs to.
        arguments: of the command; the folder is the working directory.
        replaces: names that begin so are what the command is there to change.
    """

    kind: str
    arguments: list[str]
    replaces: str = "\0"


def table() -> dict[str, np.ndarray]:
    """Columns that calibrate."""
    repeat = ROWS // 4
    return {
        "p": np.tile([0.5, 0.5, 0.4, 0.3], repeat),
        "v": np.full(ROWS, 0.1),
        "y1": np.tile([1, 0, 1, 0], repeat),
        "y2": np.tile([0, 1, 1, 0], repeat),
    }


def write_columns(rng: random.Random, path: Path, columns: dict[str, np.ndarray]) -> Path:
    """One of the formats."""
    match rng.choice(["csv", "parquet", "npy", "fields"]):
        case "csv":
            file = path / "rows.csv"
            names, values = ",".join(columns), zip(*columns.values(), strict=True)
            lines = "\n".join(",".join(map(str, row)) for row in values)
            file.write_text(f"{names}\n{lines}\n", errors="replace")
        case "parquet":
            file = path / "rows.parquet"
            try:
                parquet.write_table(pa.table(dict(columns)), file)
            except pa.ArrowException:
                csv.write_csv(pa.table(table()), path / "rows.csv")
                file = path / "rows.csv"
        case "npy":
            file = path / "rows"
            file.mkdir()
            for name, each in columns.items():
                np.save(file / f"{name}.npy", each)
        case _:
            file = path / "rows.npy"
            kinds = [(name, each.dtype) for name, each in columns.items()]
            fields = np.empty(ROWS, dtype=kinds)
            for name, each in columns.items():
                fields[name] = each
            np.save(file, fields)
    return file


def odd_columns(rng: random.Random) -> dict[str, np.ndarray]:
    """Columns of which one holds what it should not."""
    columns = table()
    name = rng.choice(list(columns))
    odd: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda each: each.astype(complex),
        lambda each: each.astype(str),
        lambda each: each.astype("S4"),
        lambda each: each.astype("datetime64[s]"),
        lambda each: np.full(ROWS, rng.choice([2**62, -(2**62), 2])),
        lambda each: np.full(ROWS, rng.choice([np.nan, np.inf, -1.0, 2.0, 1e300])),
        lambda each: each.astype(np.float16),
        lambda each: each > 0,
    ]
    columns[name] = rng.choice(odd)(columns[name])
    return columns


def of_columns(rng: random.Random, path: Path) -> Case:
    """Calibrate on a damaged or odd file."""
    if rng.random() < 0.5:
        file = write_columns(rng, path, table())
        damage(rng, file)
        return Case("damaged columns", ["calibrate", file.name, *COLUMNS, "--min-variance", "0.1"])
    file = write_columns(rng, path, odd_columns(rng))
    more = rng.choice([[], ["--min-variance", "0.1"], ["--min-variance", "0.1", "--workers", "1"]])
    return Case("odd columns", ["calibrate", file.name, *COLUMNS, *more])


def calibrated(path: Path) -> Path:
    """A calibration beside a file of rows."""
    names, values = ",".join(table()), zip(*table().values(), strict=True)
    (path / "good.csv").write_text(
        names + "\n" + "\n".join(",".join(map(str, row)) for row in values) + "\n"
    )
    made = CliRunner().invoke(
        _app(),
        [
            "calibrate",
            str(path / "good.csv"),
            *COLUMNS,
            "--min-variance",
            "0.1",
            "--out",
            str(path / "cal.json"),
        ],
    )
    assert made.exit_code == 0, made.output
    return path / "cal.json"


def of_calibrations(rng: random.Random, path: Path) -> Case:
    """Intervals by a damaged or odd calibration."""
    file = calibrated(path)
    if rng.random() < 0.4:
        damage(rng, file)
    else:
        content = json.loads(file.read_text())
        where = rng.choice([content, content.get("inflation", content)])
        where[rng.choice([*where, "unknown"])] = rng.choice(ODD_VALUES)
        file.write_text(json.dumps(content))
    return Case("calibrations", ["intervals", "good.csv", "--calibration", "cal.json"])


def of_options(rng: random.Random, path: Path) -> Case:
    """Options that cannot be, and outputs that must not be."""
    calibrated(path)
    write_columns(random.Random(0), path, table())
    os.symlink("good.csv", path / "link.csv")
    os.link(path / "good.csv", path / "hard.csv")
    os.mkfifo(path / "pipe.csv")
    (path / "precious.csv").write_text("mine")
    odd = ["nan", "-1", "0", "1e300", "2", "", "x", "\x1b[2J", "9" * 40]
    outs = ["good.csv", "link.csv", "hard.csv", "pipe.csv", "precious.csv", ".", "no/where.csv"]
    outs += ["cal.json", "a" * 300 + ".csv"]
    if rng.random() < 0.5:
        arguments = ["intervals", "good.csv", "--calibration", "cal.json"]
        more = [
            ["--out", rng.choice(outs)],
            ["--miss-rate", rng.choice(odd)],
            ["--lower-col", "x", "--upper-col", "x"],
            ["--lower-col", rng.choice(["p", "../x", "", "\x1b[2J"]), "--out", "new.csv"],
            ["--probs-col", rng.choice(["", "q", "\x1b[2J", "y1"])],
        ]
    else:
        arguments = ["calibrate", "good.csv", *COLUMNS]
        more = [
            ["--out", rng.choice(outs)],
            ["--min-variance", rng.choice(odd), "--out", "new.json"],
            ["--failure-rate", rng.choice(odd), "--out", "new.json"],
            ["--workers", rng.choice(["0", "-1", "99999999", "x"]), "--out", "new.json"],
            ["--response-cols", rng.choice(["y1,y1", "y1", "", "p,v"]), "--out", "new.json"],
        ]
    return Case("options", arguments + rng.choice(more))


def of_shown(rng: random.Random, path: Path) -> Case:
    """Show a file of odd entries."""
    response: dict[str, Any] = {"text": "six", "tokens": ["six", "_"], "cheating": [0.5, 0.0]}
    response["epistemic_confidence"] = 0.6
    row: dict[str, Any] = {"line": 1, "input": {"prompt": "say"}, "prompt": "say"}
    row |= rng.choice([{"responses": [response]}, {"response": response, "bound": 0.1}])
    where = rng.choice([row, response])
    where[rng.choice(list(where))] = rng.choice(ODD_VALUES)
    file = path / "out.jsonl"
    file.write_text(json.dumps(rng.choice([row, rng.choice(ODD_VALUES)])) + "\n")
    if rng.random() < 0.3:
        damage(rng, file)
    return Case("shown files", ["show", "out.jsonl"])


def of_reports(rng: random.Random, path: Path) -> Case:
    """The report of a damaged run."""
    run = path / "out" / "regression" / "quick" / "seed-0"
    run.mkdir(parents=True)
    result: dict[str, Any] = {"kind": "secondguess result", "format": 1}
    result |= {"claims": [{"name": "n", "holds": True, "value": 1, "bound": 2}]}
    result |= {"config": {}, "versions": {}, "machine": {}, "seconds": {}, "seed": 0}
    where = rng.choice([result, result["claims"][0]])
    where[rng.choice(list(where))] = rng.choice(ODD_VALUES)
    (run / "result.json").write_text(json.dumps(result))
    (path / "mine.html").write_text("mine")
    if rng.random() < 0.4:
        damage(rng, run / "result.json")
    os.mkfifo(path / "pipe.html")
    outs = [[], ["--out", "mine.html"], ["--out", "out/regression/quick/seed-0/result.json"]]
    return Case("reports", ["report", "out", *rng.choice([*outs, ["--out", "pipe.html"]])])


KINDS = [of_columns, of_columns, of_calibrations, of_options, of_shown, of_shown, of_reports]
LANGUAGE_KINDS = [
    language_cases.of_models,
    language_cases.of_models,
    language_cases.of_lines,
    language_cases.of_marks,
    of_settings,
]
EVERY = len(KINDS) + len(LANGUAGE_KINDS)


def make(number: int, path: Path) -> Case:
    """The case of a number, in a folder."""
    rng = random.Random(number)
    place = number % EVERY
    if place < len(KINDS):
        return KINDS[place](rng, path)
    return Case(*LANGUAGE_KINDS[place - len(KINDS)](rng, path))


def _app() -> Any:
    from secondguess.cli.app import app

    return app


def contents(path: Path) -> dict[str, str]:
    """What there is in a folder: a digest of each file, and what else it is."""
    found = {}
    for parent, folders, files in os.walk(path):
        for name in [*folders, *files]:
            each = Path(parent, name)
            state = "folder" if each.is_dir() else "link" if each.is_symlink() else "special"
            if each.is_file() and not each.is_symlink():
                state = hashlib.sha256(each.read_bytes()).hexdigest()
            found[str(each.relative_to(path))] = state
    return found


def problem_of(number: int) -> tuple[str, str | None]:
    """The class of a case, and what is wrong with how its command ends, or None."""
    here = Path.cwd()
    path = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        case = make(number, path)
        before = contents(path)
        os.chdir(path)
        with language_cases.without_the_world():
            result = CliRunner().invoke(_app(), case.arguments)
        os.chdir(here)
        return case.kind, _judged(case, result, before, contents(path))
    finally:
        os.chdir(here)
        shutil.rmtree(path)


def _judged(case: Case, result: Any, before: dict[str, str], after: dict[str, str]) -> str | None:
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"traceback ({type(result.exception).__name__})"
    if result.exit_code not in (0, 2):
        return f"exit code {result.exit_code}"
    changed = [name for name, state in before.items() if after.get(name) != state]
    if any(result.exit_code or not name.startswith(case.replaces) for name in changed):
        return "an input was changed"
    new = after.keys() - before.keys()
    ends = (".lock", ".parts", ".checkpoints")
    if any(".unfinished" in name or name.endswith(ends) for name in new):
        return "litter"
    if result.exit_code == 2 and (new or not result.stderr.strip()):
        return "no message, or an output in spite of it"
    if "No such command" in result.stderr:
        return "no such command"
    if set("\x1b\x07\u202e") & set(result.output):
        return "a control character was printed"
    return None


def ended_apart(number: int, seconds: float = 20.0) -> str:
    """How a case ends in a process of its own, which may crash or hang."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        kind, problem = problem_of(number)
        os.write(sending, f"{kind}: {problem or 'well'}".encode())
        os._exit(0)
    os.close(sending)
    ready, _, _ = select.select([receiving], [], [], seconds)
    said = os.read(receiving, 10_000).decode() if ready else ""
    os.close(receiving)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    kind = [*KINDS, *LANGUAGE_KINDS][number % EVERY].__name__.removeprefix("of_")
    return said or f"{kind}: {'a crash' if ready else 'a hang'}"


def main() -> None:
    """Count how cases end, by class."""
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    _app()
    for name in ("cli.calibration_job", "cli.added_columns", "report.page"):
        importlib.import_module(f"secondguess.{name}")  # once, not in every process
    language_cases.sources()
    ended = Counter(ended_apart(number) for number in range(first, first + int(sys.argv[1])))
    print(json.dumps(dict(sorted(ended.items())), indent=2))


if __name__ == "__main__":
    main()
