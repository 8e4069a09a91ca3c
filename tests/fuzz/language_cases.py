"""Bad inputs to the commands on language models, and to those that need the network or much time.

Each function fills a folder and gives the class, the arguments, and what the command may change.
The models are real and tiny, made once per process. Nothing is served, fetched or trained for long:
what would do so is cut off in `without_the_world`.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from fuzz.damages import ODD_VALUES, damage

Found = tuple[str, list[str], str]
"""Class, arguments, and the beginning of the names that may change."""

NOTHING = "\0"
GOOD = {"prompt": "flip", "responses": ["heads", "tails"]}
ODD_NUMBERS = ["nan", "inf", "-1", "0", "1e300", "-1e-300", "2", "", "x", "\x1b[2J", "9" * 40]
TEMPLATES = [
    "{{ raise_exception('never') }}",
    "{{ 1 / 0 }}",
    "{% for message in %}",
    "{{ messages[99].content.parts }}",
    "{{ messages[0].content }}",
    "{{ '\x1b[2J' }}",
    "{{ (messages * 3) }}",
]


@cache
def sources() -> Path:
    """A folder with a pair model and the plain model that it could have been trained from."""
    from transformers.utils import logging

    from secondguess.language.examples import tiny_pair_model

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-models-"))
    model = tiny_pair_model()
    model.save(folder / "model")
    model.network.save_pretrained(folder / "base")
    model.formatter.tokenizer.save_pretrained(folder / "base")
    return folder


class Accepted(SystemExit):
    """Options that were not refused: the work itself is left out."""


@contextmanager
def without_the_world() -> Iterator[None]:
    """Cut off what a command would wait for: clients, other machines, hours of training."""
    import urllib.request

    import uvicorn

    from secondguess.cli import reproduce
    from secondguess.experiments import runner

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError("there is no network here")

    def accept(*arguments: object, **options: object) -> None:
        raise Accepted(0)

    with ExitStack() as cut:
        for module, name, other in (
            (urllib.request, "urlopen", refuse),
            (uvicorn.Server, "run", lambda self, sockets=None: None),
            (runner, "_compute", accept),
            (reproduce, "run_side_by_side", _in_this_process),
        ):
            if hasattr(module, name):
                cut.enter_context(mock.patch.object(module, name, other))
        yield


def _in_this_process(jobs: Any, tell: object) -> list[Any]:
    """As `run_side_by_side`, but without processes."""
    from secondguess.experiments import processes

    outcomes = []
    held = getattr(processes, "_only_writer_of_all", nullcontext)  # earlier versions hold nothing
    with held(jobs):
        for job in jobs:
            mistake = None
            try:
                with suppress(Accepted):
                    job.run(preset=job.preset, out=job.out, seed=job.seeds[0], **job.options)
            except (ValueError, OSError) as error:
                mistake = str(error)
            outcomes.append(processes.Outcome(job=job, directories=(), mistake=mistake))
    return outcomes


def write_lines(path: Path, rows: list[Any]) -> None:
    """Rows as JSON lines; bytes as they are."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def arguments_of(rng: random.Random, *commands: str) -> tuple[list[str], str]:
    """A command on `model`, `base` and `rows.jsonl`, and what it may change."""
    match rng.choice(commands):
        case "score":
            return ["score", "model", "rows.jsonl"], NOTHING
        case "answer":
            rate = ["--max-hallucination-rate", "0.7"]
            return ["answer", "model", "rows.jsonl", *rate], NOTHING
        case "check":
            return ["check", "model", "rows.jsonl"], NOTHING
        case "recalibrate":
            return ["recalibrate", "model", "rows.jsonl"], "model"
        case "serve":
            return ["serve", "model", "--port", "0"], NOTHING
        case _:
            steps = ["--steps", "2", "--batch-size", "2"]
            return ["fit", "rows.jsonl", "--model", "base", "--out", "new", *steps], NOTHING


ALL = ("score", "answer", "check", "recalibrate", "serve", "fit")


def of_models(rng: random.Random, path: Path) -> Found:
    """A model of which one file is damaged, or does not fit the others."""
    write_lines(path / "rows.jsonl", [GOOD] * rng.choice([4, 60]))
    arguments, replaces = arguments_of(rng, *ALL)
    folder = shutil.copytree(
        sources() / ("base" if "base" in arguments else "model"),
        path / ("base" if "base" in arguments else "model"),
    )
    if rng.random() < 0.7:
        (folder / "manifest.json").unlink(missing_ok=True)
    damages: list[Callable[[random.Random, Path], None]] = [
        lambda rng, folder: damage(rng, rng.choice(_files(folder))),
        lambda rng, folder: damage(rng, folder / "model.safetensors"),
        lambda rng, folder: rng.choice(_files(folder)).unlink(),
        _change_json,
        _change_json,
        _change_tensors,
        _change_tensors,
        _change_template,
        _add_code,
    ]
    rng.choice(damages)(rng, folder)
    return "models", arguments, replaces


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


def _change_json(rng: random.Random, folder: Path) -> None:
    path = rng.choice([each for each in _files(folder) if each.suffix == ".json"])
    content = json.loads(path.read_text())
    where = content
    while rng.random() < 0.4 and (
        inner := [v for v in where.values() if isinstance(v, dict) and v]
    ):
        where = rng.choice(inner)
    where[rng.choice([*where, "unknown"])] = rng.choice(ODD_VALUES)
    path.write_text(json.dumps(content))


def _change_tensors(rng: random.Random, folder: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    name = rng.choice(sorted(tensors))
    match rng.choice(["drop", "add", "cut", "widen", "nan", "rename"]):
        case "drop":
            del tensors[name]
        case "add":
            tensors["evil.weight"] = torch.ones(2)
        case "cut":
            tensors[name] = tensors[name][:-1].clone()
        case "widen":
            tensors[name] = tensors[name][None].repeat(2, *[1] * tensors[name].ndim)
        case "nan":
            tensors[name] = torch.full_like(tensors[name], float("nan"))
        case _:
            tensors[f"{name}.old"] = tensors.pop(name)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _change_template(rng: random.Random, folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(rng.choice(TEMPLATES))
    rows = folder.parent / "rows.jsonl"
    message = {"role": rng.choice(["user", "\x1b[2J", ""]), "content": rng.choice(["flip", ""])}
    write_lines(rows, [GOOD | {"prompt": [message] * rng.choice([1, 2])}] * 4)


def _add_code(rng: random.Random, folder: Path) -> None:
    (folder / "evil.py").write_text(f"open({str(folder.parent / 'owned')!r}, 'w')")
    path = folder / rng.choice(["config.json", "tokenizer_config.json"])
    content = json.loads(path.read_text())
    content |= {"auto_map": {"AutoConfig": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}}
    content["model_type"] = rng.choice(["evil", content.get("model_type", "gpt2")])
    path.write_text(json.dumps(content))


def of_lines(rng: random.Random, path: Path) -> Found:
    """Rows that cannot be used, skipped or not."""
    for name in ("model", "base"):
        shutil.copytree(sources() / name, path / name)
    odd: list[Any] = [
        b"[" * 100_000,
        b"\xff\xfe{}",
        b'{"prompt": NaN}',
        b"1" * 5000,
        *ODD_VALUES,
        *({**GOOD, "prompt": value} for value in [*ODD_VALUES, [-1], [10**9], [1.5], [[0]]]),
        *({**GOOD, "responses": value} for value in ODD_VALUES),
        *(
            {**GOOD, "responses": ["heads", value]}
            for value in [*ODD_VALUES, [10**9], [-1], [4, 4]]
        ),
        {**GOOD, "prompt": "flip " * 5000},
        {**GOOD, "responses": ["heads " * 5000, "tails"]},
        {**GOOD, "prompt": "words that it does not know"},
        {**GOOD, "line": 1, "skipped": "no", "input": {}},
    ]
    bad = [rng.choice(odd) for _ in range(rng.randint(1, 3))]
    rows = [GOOD] * rng.choice([0, 1, 4]) + bad + [GOOD] * rng.choice([0, 3, 50])
    write_lines(path / "rows.jsonl", rows)
    arguments, replaces = arguments_of(rng, "score", "answer", "check", "recalibrate", "fit")
    more = rng.choice([[], ["--skip-bad"]])
    if rng.random() < 0.15:
        damage(rng, path / "rows.jsonl")
    return "lines", [*arguments, *more], replaces


def of_marks(rng: random.Random, path: Path) -> Found:
    """Marked answers, and the finding of a check, that are not what they should be."""
    shutil.copytree(sources() / "model", path / "model")
    write_lines(path / "rows.jsonl", [GOOD] * 4)
    mark = {"gap": 0.1, "right": True, "abstained": False, "answer": "heads"}
    rows: list[Any] = [mark | {"gap": rng.random()} for _ in range(100)]
    if rng.random() < 0.8:
        rows[rng.randrange(100)] = rng.choice(
            [mark | {rng.choice(list(mark)): rng.choice(ODD_VALUES)}, rng.choice(ODD_VALUES)]
        )
    write_lines(path / "marks.jsonl", rows)
    if rng.random() < 0.3:
        damage(rng, path / "marks.jsonl")
    if rng.random() < 0.5:
        finding = {"kind": "secondguess check", "format": 1, "verdict": "NO_SIGN"}
        finding |= {"resolution": 0.1, "num_pairs": 10, "model": {}}
        finding[rng.choice(list(finding))] = rng.choice(ODD_VALUES)
        (path / "model.check.json").write_text(json.dumps(finding))
        if rng.random() < 0.3:
            damage(rng, path / "model.check.json")
    labelled = ["--labelled", "marks.jsonl", "--max-error-rate", rng.choice(["0.9", *ODD_NUMBERS])]
    rate = ["--max-hallucination-rate", "0.7"]
    command = rng.choice([["answer", "model", "rows.jsonl"], ["serve", "model", "--port", "0"]])
    return "marks", [*command, *rng.choice([labelled, rate])], NOTHING
