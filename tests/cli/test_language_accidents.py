"""score, answer, check and fit on bad files, models and places: one message, nothing lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from language.models import WORDS, network_of, pair_model
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from secondguess.cli.app import app
from secondguess.language.tokenizer import word_tokenizer

GOOD = {"prompt": "w1 w2", "responses": ["w3", "w4 w5"]}
RATE = ("--max-hallucination-rate", 0.7)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write_rows(path: Path, rows: list[Any]) -> Path:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, (result.output, result.exception)
    assert message in result.stderr
    assert isinstance(result.exception, SystemExit)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    pair_model("gpt2", response_length=8).save(folder)
    return folder


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "model")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    network_of("llama", scale=0.02).save_pretrained(tmp_path / "base")
    word_tokenizer(WORDS).save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def test_keys_of_the_input_are_data(model: Path, tmp_path: Path):
    own = {"line": 77, "skipped": "no", "input": 3, "answer": 4, "abstained": True}
    source = write_rows(tmp_path / "in.jsonl", [{**GOOD, **own}, GOOD])
    for command, more in (("score", ()), ("answer", RATE)):
        out = tmp_path / f"{command}.jsonl"
        result = run(command, model, source, "--out", out, *more)
        assert result.exit_code == 0, result.output
        assert "2 rows;" in result.stderr
        rows = read_rows(out)
        assert [row["line"] for row in rows] == [1, 2]
        assert rows[0]["input"] == {**GOOD, **own}
        assert run("show", out).exit_code == 0


BAD_LINES: list[Any] = [
    *(
        b"[" * 100_000,
        b"\xff\xfe",
        b"\x00",
        b'{"prompt": NaN}',
        b"1" * 5000,
        b"null",
        b"[]",
        b'"x"',
    ),
    *({}, {"prompt": None}, {"prompt": 5, "responses": ["w1"]}, {"prompt": []}),
    *({**GOOD, "prompt": each} for each in ([True], [-1], [10**9], [1.5], [{}], {}, "\ud800")),
    *({**GOOD, "prompt": [{"role": "user", "content": "w1"}]}, {**GOOD, "prompt": ["w1"]}),
    *({**GOOD, "responses": each} for each in ("w1", None, {}, [None], [[]], [[True]], [[10**30]])),
    *({**GOOD, "responses": each} for each in (["\ud800"], ["\x00"], [["w1"]], [{}], [])),
]


def test_every_kind_of_bad_line_is_skipped_and_named(model: Path, tmp_path: Path):
    source = write_rows(tmp_path / "in.jsonl", [GOOD, *BAD_LINES, GOOD])
    result = run("score", model, source, "--skip-bad")
    assert result.exit_code == 0, (result.output, result.exception)
    rows = read_rows(tmp_path / "in.scores.jsonl")
    assert f"{len(BAD_LINES)} lines skipped" in result.stderr
    for number, row in enumerate(rows[1:-1], start=2):
        assert row["skipped"].startswith(f"{source}, line {number}: ")


@pytest.mark.parametrize("bad", BAD_LINES, ids=lambda bad: str(bad)[:40])
def test_a_bad_line_is_one_message(model: Path, tmp_path: Path, bad: Any):
    source = write_rows(tmp_path / "in.jsonl", [GOOD, bad])
    result = run("score", model, source)
    refused(result, f"secondguess: {source}, line 2: ")
    assert len(result.stderr) < 2000


def test_no_output_is_an_input(model: Path, base: Path, tmp_path: Path):
    source = write_rows(tmp_path / "in.jsonl", [GOOD] * 2)
    os.link(source, tmp_path / "hard.jsonl")
    before = source.read_bytes(), (model / "model.safetensors").read_bytes()
    for out in (source, tmp_path / "hard.jsonl", model / "config.json", model / "new.jsonl"):
        refused(run("score", model, source, "--overwrite", "--out", out), "is the input")
        refused(run("answer", model, source, *RATE, "--overwrite", "--out", out), "is the input")
    fit = ("fit", source, "--steps", 1, "--overwrite", "--model")
    (tmp_path / "link").symlink_to(base)
    refused(run(*fit, base, "--out", base), "is the input")
    refused(run(*fit, base, "--out", tmp_path / "link"), "is the input")
    refused(run(*fit, base, "--out", source), "is the input")
    assert (source.read_bytes(), (model / "model.safetensors").read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "base", "hard.jsonl", "in.jsonl", "link", "model",
    ]  # fmt: skip


def test_what_exists_is_replaced_only_if_asked(model: Path, base: Path, tmp_path: Path):
    source = write_rows(tmp_path / "in.jsonl", [GOOD] * 2)
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    refused(run("score", model, source, "--out", out), "out.jsonl exists")
    assert out.read_text() == "mine"
    assert run("score", model, source, "--out", out, "--overwrite").exit_code == 0
    assert len(read_rows(out)) == 2
    fit = ("fit", source, "--model", base, "--steps", 1, "--out")
    assert run(*fit, tmp_path / "fitted").exit_code == 0
    refused(run(*fit, tmp_path / "fitted"), "fitted exists")
    assert run(*fit, tmp_path / "fitted", "--overwrite").exit_code == 0
    (tmp_path / "fitted" / "thesis.tex").write_text("mine")
    refused(run(*fit, tmp_path / "fitted", "--overwrite"), "thesis.tex")
    assert (tmp_path / "fitted" / "thesis.tex").read_text() == "mine"


def test_check_says_so_where_its_finding_cannot_be_kept(model: Path, tmp_path: Path):
    source = write_rows(tmp_path / "in.jsonl", [GOOD] * 4)
    beside = tmp_path / "model.check.json"
    beside.write_text("mine")
    result = run("check", model, source)
    assert result.exit_code == 0, result.output
    assert "verdict:" in result.stdout
    assert "the finding is not kept" in result.stderr
    assert beside.read_text() == "mine"


def without_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def change_tensors(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    without_manifest(folder)


def edit_json(folder: Path, name: str, **changed: Any) -> None:
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**content, **changed}))
    without_manifest(folder)


def break_file(folder: Path, name: str, content: bytes | None = None) -> None:
    half = (folder / name).read_bytes()
    (folder / name).write_bytes(half[: len(half) // 2] if content is None else content)
    without_manifest(folder)


NAME = "transformer.h.0.attn.c_attn.weight"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing tensor": (lambda m: change_tensors(m, lambda t: t.pop(NAME)), f"missing: {NAME}"),
    "extra tensor": (
        lambda m: change_tensors(m, lambda t: t.update(evil=t[NAME].clone())),
        "unexpected: evil",
    ),
    "misshapen tensor": (
        lambda m: change_tensors(m, lambda t: t.update({NAME: t[NAME][:-1].clone()})),
        f"misshapen: {NAME}",
    ),
    "changed tokenizer": (lambda m: (m / "tokenizer.json").write_text("{}"), "tokenizer.json was"),
    "changed weights": (
        lambda m: (m / "model.safetensors").write_bytes(b"x"),
        "model.safetensors was changed",
    ),
    "changed format": (
        lambda m: (m / "pair_format.json").write_text(
            (m / "pair_format.json").read_text().replace("8", "9")
        ),
        "pair_format.json was changed",
    ),
    "added file": (lambda m: (m / "chat_template.jinja").write_text("x"), "was added"),
    "damaged manifest": (lambda m: (m / "manifest.json").write_text("{"), "manifest.json"),
    "deep manifest": (lambda m: (m / "manifest.json").write_text("[" * 10**5), "manifest.json"),
    "auto_map": (
        lambda m: edit_json(
            m, "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Evil"}
        ),
        "cannot load the model",
    ),
    "truncated weights": (lambda m: break_file(m, "model.safetensors"), "cannot load the model"),
    "empty weights": (lambda m: break_file(m, "model.safetensors", b""), "cannot load the model"),
    "broken config": (lambda m: break_file(m, "config.json"), "cannot load the model"),
    "list config": (lambda m: break_file(m, "config.json", b"[]"), "cannot load the model"),
    "odd config": (lambda m: edit_json(m, "config.json", n_head=7), "cannot load the model"),
    "text config": (lambda m: edit_json(m, "config.json", n_embd="x"), "cannot load the model"),
    "broken tokenizer": (lambda m: break_file(m, "tokenizer.json"), "cannot load the model"),
    "empty tokenizer": (lambda m: break_file(m, "tokenizer.json", b"{}"), "cannot load the model"),
    "broken format": (lambda m: break_file(m, "pair_format.json"), "pair_format.json"),
    "long responses": (
        lambda m: edit_json(m, "pair_format.json", response_length=10**9),
        "leave no room",
    ),
    "text responses": (lambda m: edit_json(m, "pair_format.json", response_length="8"), "whole"),
    "odd separator": (lambda m: edit_json(m, "pair_format.json", separator=[1]), "expected text"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_model_is_refused_by_name(model: Path, tmp_path: Path, kind: str):
    damage, message = DAMAGES[kind]
    (model / "evil.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')") if (
        kind == "auto_map"
    ) else None
    damage(model)
    source = write_rows(tmp_path / "in.jsonl", [GOOD])
    refused(run("score", model, source), message)
    assert not (tmp_path / "owned").exists()
    assert not (tmp_path / "in.scores.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--temperature", "1e300"), "temperature is 1e+300"),
        (("--temperature", "1e-300"), "temperature is 1e-300"),
        (("--temperature", "nan"), "temperature is nan"),
        (("--seed", "-1"), "seed"),
        (("--top-p", "2"), "top_p is 2.0"),
    ],
)
def test_impossible_sampling_is_refused(
    model: Path, tmp_path: Path, options: tuple[str, ...], message: str
):
    source = write_rows(tmp_path / "in.jsonl", [GOOD])
    refused(run("answer", model, source, *RATE, *options), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--learning-rate", "-1"), "learning_rate"),
        (("--learning-rate", "nan"), "learning_rate"),
        (("--learning-rate", "1e30", "--steps", "30"), "secondguess: "),
        (("--clip-norm", "-1"), "clip_norm"),
        (("--weight-decay", "-1"), "weight_decay"),
        (("--response-length", "100000"), "secondguess: "),
        (("--separator", "unknown"), "the tokenizer cannot encode 'unknown'"),
    ],
)
def test_impossible_trainings_are_refused(
    base: Path, tmp_path: Path, options: tuple[str, ...], message: str
):
    source = write_rows(tmp_path / "in.jsonl", [GOOD] * 4)
    refused(run("fit", source, "--model", base, "--out", tmp_path / "out", *options), message)
    assert not (tmp_path / "out").exists()
