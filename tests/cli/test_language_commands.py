"""fit, score, answer, check and show: what they write, what they refuse, and how they go on."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language.models import WORDS, network_of, pair_model
from transformers import T5Config, T5ForConditionalGeneration
from typer.testing import CliRunner, Result

from secondguess.cli.app import app
from secondguess.language.answering import answer
from secondguess.language.checking import Verdict
from secondguess.language.findings import CheckFinding
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import score
from secondguess.language.tokenizer import word_tokenizer
from secondguess.training.loop import TrainingConfig, learning_rate_at

GOOD = {"prompt": "w1 w2", "responses": ["w3", "w4 w5"]}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write_rows(path: Path, rows: list[Any]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def many_rows(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)

    def text(longest: int) -> str:
        return " ".join(rng.choice(WORDS, size=rng.integers(1, longest + 1)))

    return [
        {"id": index, "prompt": text(6), "responses": [text(5) for _ in range(rng.integers(2, 4))]}
        for index in range(count)
    ]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    pair_model("gpt2", response_length=8).save(directory)
    return directory


def test_score_writes_what_the_library_computes(model_dir: Path, tmp_path: Path) -> None:
    rows = many_rows(13)
    source = write_rows(tmp_path / "in.jsonl", rows)
    result = run("score", model_dir, source, "--window-size", 5)
    assert result.exit_code == 0, result.output
    assert "bounds hold if calibrated on pairs" in result.output
    written = read_rows(tmp_path / "in.scores.jsonl")
    assert [row["line"] for row in written] == list(range(1, 14))
    assert [row["input"]["id"] for row in written] == list(range(13))
    model = PairLanguageModel.load(model_dir)
    for row, found in zip(rows, written, strict=True):
        [expected] = score(model, [row])
        for one, two in zip(found["responses"], expected, strict=True):
            assert one["text"] == two.text
            np.testing.assert_allclose(one["token_log_marginal"], two.log_marginal, atol=1e-5)
            np.testing.assert_allclose(one["cheating"], two.cheating, atol=2e-5)
            assert one["log_marginal"] == pytest.approx(sum(one["token_log_marginal"]))
            assert one["epistemic_confidence"] == pytest.approx(
                float(two.scores.epistemic_confidence), rel=1e-4
            )


@pytest.mark.parametrize("strategy", ["selective", "rejection", "top1"])
def test_answer_writes_what_the_library_decides(
    model_dir: Path, tmp_path: Path, strategy: Any
) -> None:
    rows = [{"prompt": row["prompt"]} for row in many_rows(6)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    result = run(
        *("answer", model_dir, source, "--max-hallucination-rate", 0.7, "--strategy", strategy),
        *("--num-candidates", 4, "--seed", 5, "--out", tmp_path / "out.jsonl"),
    )
    assert result.exit_code == 0, result.output
    decisions = answer(
        PairLanguageModel.load(model_dir),
        [row["prompt"] for row in rows],
        0.7,
        strategy=strategy,
        num_candidates=4,
        rng=np.random.default_rng([5, 1]),
    )
    for found, decision in zip(read_rows(tmp_path / "out.jsonl"), decisions, strict=True):
        assert found["abstained"] == decision.abstained
        assert found["answer"] == (decision.response.text if decision.response else None)
        assert found["gap"] == decision.gap
        assert found["cut_off"] == decision.cut_off
        if decision.bound is None:
            assert found["bound"] is found["rests_on"] is None
            continue
        assert found["outside_theorem"] == decision.bound.outside_theorem
        bound = None if decision.bound.outside_theorem else decision.bound.value
        assert found["bound"] == bound
        assert found["rests_on"] == "if calibrated on pairs"


BAD_LINES: list[tuple[Any, str]] = [
    ('{"prompt": "w1", "responses"', "broken JSON"),
    ({"prompt": "w1", "responses": ["w3", ""]}, "a response is empty"),
    ({"prompt": "w1", "responses": ["w3", "w4 " * 9]}, "a response has 10 tokens with its end"),
    ({"prompt": "w1 " * 90, "responses": ["w3", "w4"]}, "the prompt has 91 tokens, which leaves"),
    ({"prompt": "w1", "responses": []}, "expected at least 1"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_LINES)
def test_a_bad_line_is_named_and_earlier_windows_stay(
    model_dir: Path, tmp_path: Path, bad: Any, message: str
) -> None:
    rows: list[Any] = [GOOD] * 7
    rows[5] = bad
    source = write_rows(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out.jsonl"
    command = ("score", model_dir, source, "--out", out, "--window-size", 2)
    result = run(*command)
    assert result.exit_code == 2
    assert f"{source}, line 6: " in result.output
    assert message in result.output
    finished = sorted(path.name[:8] for path in out.with_name("out.jsonl.parts").glob("*-*"))
    assert finished == ["00000000", "00000001"]
    # Corrected, the run goes on from there.
    write_rows(source, [*rows[:5], GOOD, GOOD])
    assert run(*command).exit_code == 0
    assert len(read_rows(out)) == 7


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": "w1 " * 90}, "the prompt has 91 tokens, which leaves no room"),
        ({"question": "w1"}, "the row has the keys ['question']; expected prompt"),
        ({"prompt": "who"}, "the tokenizer cannot encode 'who'"),
        ("{", "broken JSON"),
    ],
)
def test_answer_names_a_bad_line(model_dir: Path, tmp_path: Path, bad: Any, message: str) -> None:
    source = write_rows(tmp_path / "in.jsonl", [{"prompt": "w1"}, {"prompt": "w2"}, bad])
    command = ("answer", model_dir, source, "--max-hallucination-rate", 0.5)
    result = run(*command)
    assert result.exit_code == 2
    assert f"{source}, line 3: " in result.output
    assert message in result.output
    result = run(*command, "--skip-bad", "--out", tmp_path / "skipped.jsonl")
    assert "3 rows, 1 lines skipped" in result.output


def test_bad_lines_can_be_skipped_and_are_counted(model_dir: Path, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [GOOD, *(bad for bad, _ in BAD_LINES), GOOD])
    result = run("score", model_dir, source, "--skip-bad")
    assert result.exit_code == 0, result.output
    assert "7 rows, 5 lines skipped" in result.output
    written = read_rows(tmp_path / "in.scores.jsonl")
    assert ["skipped" in row for row in written] == [False, *[True] * 5, False]
    assert "line 2: broken JSON" in written[1]["skipped"]


def test_fit_refuses_a_prompt_with_one_response(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [GOOD, {"prompt": "w1", "responses": ["w2"]}])
    base = tmp_path / "base"
    network_of("gpt2").save_pretrained(base)
    word_tokenizer(WORDS).save_pretrained(base)
    result = run("fit", source, "--model", base, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert f"{source}, line 2: the prompt has 1 response(s)" in result.output
    assert not (tmp_path / "out").exists()


def test_encoder_decoders_and_models_without_format_are_refused(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [GOOD])
    base = tmp_path / "t5"
    config = T5Config(vocab_size=40, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(config).save_pretrained(base)
    word_tokenizer(WORDS).save_pretrained(base)
    result = run("fit", source, "--model", base, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "encoder-decoder model (t5)" in result.output
    result = run("score", base, source)
    assert result.exit_code == 2
    assert "was not trained on pairs" in result.output
    result = run("fit", source, "--model", tmp_path / "nowhere", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "cannot load the model" in result.output


@pytest.mark.parametrize("missing", ["score", "answer", "check", "show"])
def test_a_missing_file_is_named(model_dir: Path, tmp_path: Path, missing: str) -> None:
    path = tmp_path / "nowhere.jsonl"
    options = {"answer": ["--max-hallucination-rate", 0.1]}.get(missing, [])
    models = [] if missing == "show" else [model_dir]
    result = run(missing, *models, path, *options)
    assert result.exit_code == 2
    assert str(path) in result.output


def test_answer_refuses_an_impossible_rate(model_dir: Path, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [GOOD])
    result = run("answer", model_dir, source, "--max-hallucination-rate", 5)
    assert result.exit_code == 2
    assert "max_hallucination_rate is 5.0" in result.output


def test_fit_trains_saves_and_scores_without_a_padding_token(tmp_path: Path) -> None:
    """Cheating pays: both responses are the same random word, so y2 is known after y1."""
    rng = np.random.default_rng(0)
    words = [str(rng.choice(WORDS[:8])) for _ in range(64)]
    rows = [{"prompt": "w9", "responses": [word, word]} for word in words]
    source = write_rows(tmp_path / "in.jsonl", rows)
    base = tmp_path / "base"
    network_of("llama", scale=0.02).save_pretrained(base)
    tokenizer = word_tokenizer(WORDS)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(base)
    out = tmp_path / "out"
    command = (
        *("fit", source, "--model", base, "--out", out, "--steps", 60, "--batch-size", 32),
        *("--learning-rate", 0.01),
    )
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert (out / "model.safetensors").is_file()
    assert not (tmp_path / "out.checkpoints").exists()
    again = run(*command)
    assert again.exit_code == 2
    assert "out exists; name another output" in again.output
    model = PairLanguageModel.load(out)
    assert model.formatter.config.response_length == 2
    first, second = (
        np.array(values)
        for values in zip(
            *(
                (each.log_marginal.sum(), each.log_self_conditional.sum())
                for each in score(model, [{"prompt": "w9", "responses": WORDS[:8]}])[0]
            ),
            strict=True,
        )
    )
    assert second.mean() > first.mean() + 1


def test_check_prints_what_each_bound_rests_on(model_dir: Path, tmp_path: Path) -> None:
    model = shutil.copytree(model_dir, tmp_path / "model")  # the finding is kept beside it
    rng = np.random.default_rng(0)
    rows = [
        {"prompt": "w1", "responses": ["w2", "w3"], "polite": (rng.random(2) < 0.4).tolist()}
        for _ in range(200)
    ]
    source = write_rows(tmp_path / "in.jsonl", rows)
    result = run("check", model, source, "--property", "polite")
    assert result.exit_code == 0, result.output
    assert "hold if calibrated on pairs" in result.output
    assert "of prompts, guaranteed by a calibration set (100 rows, failure rate 0.05)" in (
        result.output
    )
    record = json.loads(run("check", model, source, "--property", "polite", "--json").stdout)
    assert record["property"]["lower"] <= 0.4 <= record["property"]["upper"]
    assert record["property"]["rests_on"] == "guaranteed by a calibration set"
    assert record["bounds_rest_on"] == "if calibrated on pairs"
    rows[3]["polite"] = [True, "no"]
    result = run("check", model, write_rows(source, rows), "--property", "polite")
    assert result.exit_code == 2
    assert "line 4: polite is [True, 'no']; expected true or false only" in result.output


@pytest.mark.parametrize(
    ("verdict", "rate", "message"),
    [
        (Verdict.NO_SIGN, 0.2, "max_hallucination_rate is 0.2, below 0.300"),
        (Verdict.NEVER, 0.9, "the check of 50 pairs says that the model never cheats"),
        (Verdict.NO_SIGN, 0.9, None),
    ],
)
def test_answer_heeds_the_check(
    tmp_path: Path, verdict: Verdict, rate: float, message: str | None
) -> None:
    model = pair_model("gpt2", response_length=8)
    model.save(tmp_path / "model")
    source = write_rows(tmp_path / "in.jsonl", [{"prompt": "w1"}])
    command = ("answer", tmp_path / "model", source, "--max-hallucination-rate", rate)
    result = run(*command, "--out", tmp_path / "unchecked.jsonl")
    assert result.exit_code == 0
    assert "was not checked" in result.output
    CheckFinding(verdict, 0.3, 50, model.identity).save_beside(tmp_path / "model")
    result = run(*command, "--out", tmp_path / "checked.jsonl")
    if message is None:
        assert result.exit_code == 0, result.output
        return
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "checked.jsonl").exists()
    result = run(*command, "--out", tmp_path / "told.jsonl", "--ignore-check")
    assert result.exit_code == 0
    assert f"ignored: {message}" in result.output
    # The finding about another model is none about this one, and a damaged one is refused.
    CheckFinding(verdict, 0.3, 50, {"weights": "other"}).save_beside(tmp_path / "model")
    assert "was not checked" in run(*command, "--out", tmp_path / "other.jsonl").output
    (tmp_path / "model.check.json").write_text('{"kind": "secondguess check", "format": 1}')
    result = run(*command, "--out", tmp_path / "damaged.jsonl")
    assert result.exit_code == 2
    assert "model.check.json is damaged" in result.output


def test_show_colours_tokens_by_their_cheating(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_rows(tmp_path / "in.jsonl", [GOOD, {"prompt": "w1", "responses": [""]}])
    assert run("score", model_dir, source, "--skip-bad").exit_code == 0
    monkeypatch.setenv("COLUMNS", "200")
    plain = run("show", tmp_path / "in.scores.jsonl").output
    assert "w1 w2 → w4 w5 ⏎  confidence" in plain
    assert "skipped: " in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    assert "\x1b[48;2;" in run("show", tmp_path / "in.scores.jsonl").output
    assert "... (--limit 1)" in run("show", tmp_path / "in.scores.jsonl", "--limit", 1).output
    result = run("show", source)
    assert result.exit_code == 2
    assert "line 1: no scores" in result.output


def launch(*arguments: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "secondguess.cli", *map(str, arguments)],
        env=environment,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_fit_stopped_by_a_signal_saves_says_so_and_resumes(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_rows(tmp_path / "in.jsonl", [GOOD] * 4)
    base, out = tmp_path / "base", tmp_path / "out"
    network_of("llama", scale=0.02).save_pretrained(base)
    word_tokenizer(WORDS).save_pretrained(base)
    command = ("fit", source, "--model", base, "--steps", 6, "--batch-size", 2, "--out")
    assert run(*command, tmp_path / "expected").exit_code == 0

    def at(config: TrainingConfig, step: int) -> float:
        if step == 3:
            signal.raise_signal(number)
        return learning_rate_at(config, step)

    with monkeypatch.context() as patch:
        patch.setattr("secondguess.training.loop.learning_rate_at", at)
        stopped = run(*command, out)
    assert stopped.exit_code == 128 + number
    assert (
        f"secondguess: stopped by {number.name} after step 4, with a checkpoint" in stopped.stderr
    )
    assert "run the same command again to resume" in stopped.stderr
    assert not out.exists()
    assert run(*command, out).exit_code == 0
    weights = "model.safetensors"
    assert (out / weights).read_bytes() == (tmp_path / "expected" / weights).read_bytes()


@pytest.mark.parametrize("command", ["score", "answer"])
def test_a_second_writer_of_one_output_is_told(
    model_dir: Path, tmp_path: Path, command: str
) -> None:
    source = write_rows(tmp_path / "in.jsonl", many_rows(200))
    out = tmp_path / "out.jsonl"
    rate = ("--max-hallucination-rate", 0.7) if command == "answer" else ()
    arguments = (command, model_dir, source, "--out", out, "--window-size", 1, *rate)
    first = launch(*arguments)
    parts = out.with_name(out.name + ".parts")
    while first.poll() is None and not list(parts.glob("*-*.jsonl")):
        time.sleep(0.005)
    first.send_signal(signal.SIGSTOP)  # in the midst of its work, for as long as we like
    second = run(*arguments)
    first.send_signal(signal.SIGCONT)
    assert second.exit_code == 2
    assert f"another process is writing {out}" in " ".join(second.stderr.split())
    assert first.wait() == 0
    assert [row["line"] for row in read_rows(out)] == list(range(1, 201))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["score", "answer"])
def test_killed_commands_end_with_the_same_output(
    model_dir: Path, tmp_path: Path, command: str
) -> None:
    source = write_rows(tmp_path / "in.jsonl", many_rows(1200))
    options = ["--window-size", 20]
    if command == "answer":
        options += ["--max-hallucination-rate", 0.7, "--strategy", "rejection", "--seed", 3]
    expected, out = tmp_path / "expected.jsonl", tmp_path / "killed.jsonl"
    assert launch(command, model_dir, source, "--out", expected, *options).wait() == 0
    parts = out.with_name(out.name + ".parts")
    moments = random.Random(0)
    for num_done in sorted(moments.sample(range(1, 50), 3)):
        process = launch(command, model_dir, source, "--out", out, *options)
        while process.poll() is None and len(list(parts.glob("*-*.jsonl"))) < num_done:
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.05))
        assert process.poll() is None, "it ended before it was killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not out.exists()
    assert launch(command, model_dir, source, "--out", out, *options).wait() == 0
    assert out.read_bytes() == expected.read_bytes()


@pytest.mark.slow
def test_accelerate_spreads_score_over_processes(model_dir: Path, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", many_rows(50))
    options = ("--window-size", 4, "--batch-size", 8)
    alone = launch("score", model_dir, source, "--out", tmp_path / "alone.jsonl", *options)
    assert alone.wait() == 0
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    command = ["-m", "secondguess.cli", "score", model_dir, source, "--out", tmp_path / "two.jsonl"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*launcher, *map(str, [*command, *options])], env=environment, check=True)
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


def test_float32_is_what_commands_compute_in(model_dir: Path) -> None:
    assert PairLanguageModel.load(model_dir).network.dtype == torch.float32
