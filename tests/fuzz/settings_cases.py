"""Options that cannot be, for the commands of `language_cases` and for those that take long."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from fuzz.language_cases import GOOD, NOTHING, ODD_NUMBERS, Found, sources, write_lines

MEANINGS = ["(", "field:", "words:", "(?P<x>a)(", "\x1b", "field:\x1b[2J"]
FIT = (
    "--learning-rate",
    "--weight-decay",
    "--clip-norm",
    "--seed",
    "--batch-size",
    "--response-length",
    "--max-length",
    "--validation-share",
    "--patience",
    "--accumulation-steps",
    "--warmup-steps",
    "--checkpoint-every",
    "--lora-rank",
    "--layout",
    "--separator",
    "--precision",
    "--log-with",
    "--validation-file",
)
ANSWER = (
    "--temperature",
    "--top-k",
    "--top-p",
    "--min-probability",
    "--seed",
    "--num-candidates",
    "--strategy",
    "--gap",
    "--meaning",
    "--batch-size",
    "--window-size",
)
CHECK = ["--failure-rate", "--miss-rate", "--min-variance", "--seed", "--property"]
SERVE = (
    "--port",
    "--max-batch",
    "--max-waiting",
    "--timeout",
    "--num-candidates",
    "--max-hallucination-rate",
    "--host",
    "--meaning",
    "--name",
    "--min-probability",
)


def of_settings(rng: random.Random, path: Path) -> Found:
    """Options that cannot be, and outputs that must not be, for the same commands."""
    for name in ("model", "base"):
        shutil.copytree(sources() / name, path / name)
    write_lines(path / "rows.jsonl", [GOOD] * 4)
    write_lines(path / "scores.jsonl", [{"line": 1}])
    (path / "precious").write_text("mine")
    os.mkfifo(path / "pipe")
    os.symlink("rows.jsonl", path / "link.jsonl")
    number = rng.choice(ODD_NUMBERS)
    name = rng.choice(
        ["precious", "pipe", "model", "rows.jsonl", "link.jsonl", "no/where", ".", ""]
    )
    name = rng.choice([name, "precious/below", "a" * 300, "model/new", "\x1b[2J/new"])
    fit = ["fit", "rows.jsonl", "--model", "base", "--steps", "2", "--out", "new"]
    answer = ["answer", "model", "rows.jsonl", "--max-hallucination-rate"]
    value = rng.choice([number, rng.choice(MEANINGS)])
    runs = ["reproduce", "regression", "--out"]
    commands = [
        [*fit, rng.choice(FIT), value],
        [*fit[:-1], name],
        [*fit[:-1], name, "--overwrite"],
        [*answer, "0.7", rng.choice(ANSWER), value],
        [*answer, number],
        [*answer, "0.7", "--out", name, *rng.choice([[], ["--overwrite"]])],
        ["score", "model", "rows.jsonl", "--out", name, *rng.choice([[], ["--overwrite"]])],
        ["score", rng.choice(["precious", "pipe", "nowhere", "", "\x1b[2J"]), "rows.jsonl"],
        ["score", "model", rng.choice(["pipe", "nowhere", "model", "\x1b[2J", "scores.jsonl"])],
        ["check", "model", "rows.jsonl", rng.choice(CHECK), value],
        ["recalibrate", rng.choice(["precious", "pipe", "nowhere"]), "rows.jsonl"],
        ["serve", "model", "--port", "0", rng.choice(SERVE), value],
        ["serve", rng.choice(["precious", "pipe", "nowhere", "base"]), "--port", "0"],
        ["show", rng.choice(["pipe", "model", "nowhere", "precious", "\x1b[2J", "scores.jsonl"])],
        ["show", "scores.jsonl", "--limit", value],
        ["download", "cifar10h", rng.choice(["precious", "pipe", "precious/below", "\x1b[2J"])],
        [*runs, rng.choice(["precious", "pipe", "precious/below", "\x1b[2J"]), "--members", "0"],
        [*runs, "runs", rng.choice(["--members", "--methods", "--extras", "--seeds"]), value],
        ["reproduce", "facts", "--model", rng.choice(["nowhere", "precious"]), "--out", "runs"],
        ["reproduce", "cifar10h", "--data-dir", rng.choice(["nowhere", "precious", "model"])],
        ["report", rng.choice(["precious", "pipe", "nowhere", "model", "\x1b[2J", ""])],
    ]
    return "settings", rng.choice(commands), NOTHING
