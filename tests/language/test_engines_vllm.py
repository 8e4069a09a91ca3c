"""The engine on vLLM: against a stand-in that speaks its protocol, and against vLLM itself.

The second needs an environment with vLLM; `SECONDGUESS_VLLM_PYTHON` names its interpreter.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from scripts import load_script
from typer.testing import CliRunner

from secondguess.cli.app import app
from secondguess.language import engines_vllm
from secondguess.language.engine_answers import answer_with
from secondguess.language.engines import Draw, EngineError, LocalEngine, Question
from secondguess.language.engines_vllm import VllmEngine
from secondguess.language.examples import tiny_pair_model
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.generation import Sampling
from secondguess.language.meanings import DrawnPairs, judge_pairs
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import Tokens, score_tokens


def benchmark() -> ModuleType:
    """Where the model and the start of a vLLM server are written down."""
    return load_script("benchmarks/engines.py")


@pytest.fixture(scope="module")
def model() -> PairLanguageModel:
    return benchmark().padded_model()


class StandIn:
    """Answers as vLLM does, with the numbers of a model in this process."""

    def __init__(self, model: PairLanguageModel) -> None:
        self.model = model
        self.bodies: list[dict[str, Any]] = []

    @torch.inference_mode()
    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "served", "max_model_len": 64}]})
        body = json.loads(request.content)
        self.bodies.append(body)
        choices = []
        for index, tokens in enumerate(body["prompt"]):
            if "prompt_logprobs" in body:
                choices.append({"index": index, **self._read(tokens)})
            else:
                [drawn] = LocalEngine(self.model).sample(
                    [Draw(tuple(tokens), (body["seed"],), Sampling())]
                )
                ids = [*drawn.tokens[:-1], 9] if drawn.cut_off else [*drawn.tokens]
                choices.append({"index": index, "token_ids": ids})
        return httpx.Response(200, json={"choices": choices[::-1]})

    def _read(self, tokens: list[int]) -> dict[str, Any]:
        logits = self.model.network(input_ids=torch.tensor([tokens])).logits[0]
        log_probs = logits.log_softmax(-1).tolist()
        read = [None] + [
            {str(token): {"logprob": log_probs[place][token]}}
            for place, token in enumerate(tokens[1:])
        ]
        return {
            "prompt_logprobs": read,
            "logprobs": {"token_logprobs": [log_probs[-1][self.model.formatter.end]]},
        }


@pytest.fixture
def stand_in(model: PairLanguageModel) -> StandIn:
    return StandIn(model)


@pytest.fixture
def engine(model: PairLanguageModel, stand_in: StandIn) -> VllmEngine:
    transport = httpx.MockTransport(stand_in)
    return VllmEngine("http://vllm", model.formatter, batch_size=4, transport=transport)


def prompts_of(model: PairLanguageModel) -> list[Tokens]:
    return [model.formatter.prompt_tokens(text) for text in ("hello", "who are you?")]


def check_scores(engine: Any, model: PairLanguageModel, tolerance: float) -> None:
    """The engine gives the scores of the model in this process, for its own draws."""
    draws = [Draw(prompt, (k,), Sampling()) for k in range(8) for prompt in prompts_of(model)]
    drawn = engine.sample(draws)
    items = [(draw.prompt, each.tokens) for draw, each in zip(draws, drawn, strict=True)]
    for ours, theirs in zip(LocalEngine(model).score(items), drawn, strict=True):
        assert theirs.text == ours.text
        assert theirs.log_marginal == pytest.approx(ours.log_marginal, abs=tolerance)
        assert theirs.log_self_conditional == pytest.approx(
            ours.log_self_conditional, abs=tolerance
        )
    again = engine.sample(draws)
    assert [each.tokens for each in again] == [each.tokens for each in drawn]
    assert len({each.tokens for each in drawn}) > 8


def test_scores_are_those_of_the_model(engine, model):
    check_scores(engine, model, 1e-4)


def test_it_sends_tokens_and_asks_for_what_vllm_understands(engine, stand_in, model):
    [prompt, _] = prompts_of(model)
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=3)
    [drawn] = engine.sample([Draw(prompt, (1, 2), sampling)])
    first, second = stand_in.bodies
    assert first["prompt"] == [list(prompt)]
    assert (first["temperature"], first["top_p"], first["top_k"]) == (0.5, 0.9, 3)
    assert (first["min_tokens"], first["max_tokens"]) == (1, 6)
    laid_out = model.formatter.lay_out(prompt, drawn.tokens, drawn.tokens)
    assert second["prompt"] == [laid_out.tokens[:-1]]
    assert (second["max_tokens"], second["prompt_logprobs"]) == (1, 0)
    assert second["allowed_token_ids"] == [model.formatter.end]


def test_cut_off_responses_say_so(engine, model):
    drawn = engine.sample([Draw(prompts_of(model)[0], (k,), Sampling()) for k in range(10)])
    assert any(each.cut_off for each in drawn)
    for each in drawn:
        assert each.tokens[-1] == model.formatter.end
        assert len(each.tokens) == 6 or not each.cut_off


def test_decisions_are_those_of_the_model_for_the_same_candidates(engine, model):
    class Repeats(LocalEngine):
        """Scores in this process what the other engine draws."""

        def sample(self, draws):
            drawn = engine.sample(draws)
            items = [(draw.prompt, each.tokens) for draw, each in zip(draws, drawn, strict=True)]
            scored = zip(self.score(items), drawn, strict=True)
            return [replace(ours, cut_off=theirs.cut_off) for ours, theirs in scored]

    check_decisions(engine, Repeats(model), prompts_of(model))


def check_decisions(one: Any, other: Any, prompts: list[Tokens]) -> None:
    outcomes = set()
    for strategy in ("selective", "rejection", "top1"):
        for rate in (0.05, 0.3, 0.9):
            mine, theirs = (
                answer_with(each, prompts * 4, rate, seed=[7], strategy=strategy, num_candidates=4)
                for each in (one, other)
            )
            assert [each.response for each in mine] == [each.response for each in theirs]
            assert [each.num_candidates for each in mine] == [
                each.num_candidates for each in theirs
            ]
            outcomes |= {each.abstained for each in mine}
    assert outcomes == {True, False}


def initial(text: str) -> str:
    return "early" if text[:1] < "U" else "late"


def check_meanings(engine: VllmEngine, model: PairLanguageModel, monkeypatch) -> None:
    """The engine judges meanings as the model in this process does from the same pairs."""
    seen: list[DrawnPairs] = []

    def noted(drawn: Any, *arguments: Any, **options: Any) -> Any:
        seen.extend(drawn)
        return judge_pairs(drawn, *arguments, **options)

    monkeypatch.setattr(engines_vllm, "judge_pairs", noted)
    questions = [Question(prompt, (3,), 6, initial) for prompt in prompts_of(model)]
    theirs = engine.judge(questions)
    assert [len(each.pairs) for each in seen] == [6, 6]

    def score_pairs(items: Any) -> Any:
        return score_tokens(model, items, batch_size=8)

    ours = judge_pairs(seen, initial, model.formatter, score_pairs, recalibration=None)
    for mine, others in zip(ours, theirs, strict=True):
        assert {each.meaning for each in mine} == {"early", "late"}
        for one, other in zip(mine, others, strict=True):
            assert (one.meaning, one.text, one.num_draws) == (
                *(other.meaning, other.text),
                other.num_draws,
            )
            for kind in ("scores", "cautious"):
                a, b = getattr(one, kind), getattr(other, kind)
                assert a.log_marginal == pytest.approx(b.log_marginal, abs=1e-4)
                assert a.log_self_conditional == pytest.approx(b.log_self_conditional, abs=1e-4)
    again = engine.judge(questions[:1])[0]
    assert [each.text for each in again] == [each.text for each in theirs[0]]


def test_meanings_are_those_of_the_model(engine, stand_in, model, monkeypatch):
    check_meanings(engine, model, monkeypatch)
    [prompt, _] = prompts_of(model)
    begun = [
        body["prompt"][0]
        for body in stand_in.bodies
        if "prompt_logprobs" not in body and len(body["prompt"][0]) > len(prompt)
    ]
    # A second response is drawn behind the prompt, the first one and its filling.
    assert sum(len(each) == len(prompt) + 6 for each in begun) >= 6


def test_models_that_vllm_would_misread_are_refused(model):
    settings = PairFormat(response_length=6, layout="positions")
    formatter = PairFormatter(model.formatter.tokenizer, settings)
    with pytest.raises(ValueError, match="--layout padded"):
        VllmEngine("http://vllm", formatter)


@pytest.mark.parametrize("command", ["serve", "score", "answer"])
def test_commands_refuse_them_before_anything_else(tmp_path, command):
    tiny_pair_model().save(tmp_path / "model")  # of a kind that only this library knows
    (tmp_path / "data.jsonl").write_text('{"prompt": "flip", "responses": ["heads"]}\n')
    data = [] if command == "serve" else [str(tmp_path / "data.jsonl")]
    rate = [] if command == "score" else ["--max-hallucination-rate", "0.2"]
    run = CliRunner().invoke(
        app, [command, str(tmp_path / "model"), *data, *rate, "--engine", "http://127.0.0.1:1"]
    )
    assert run.exit_code == 2
    assert "--layout padded" in run.output


def test_the_context_of_the_server_limits_prompts(engine):
    assert engine.formatter.max_prompt_length == 64 - 2 * 6


def test_what_vllm_cannot_do_is_refused(engine, model):
    sampling = Sampling(min_probability=0.1)
    assert "min_probability" in (engine.objection(sampling) or "")
    with pytest.raises(ValueError, match="min_probability"):
        answer_with(engine, prompts_of(model), 0.5, seed=[0], sampling=sampling)


def test_an_engine_that_is_away_or_refuses_says_so(model):
    def refuses(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "served"}]})
        return httpx.Response(400, text="\x1b[2Jno")

    engine = VllmEngine("http://vllm", model.formatter, transport=httpx.MockTransport(refuses))
    with pytest.raises(EngineError, match=r"status 400: '\\x1b"):
        engine.score([((1,), (2, 0))])
    with pytest.raises(EngineError, match="is vLLM running there"):
        VllmEngine("http://127.0.0.1:1", model.formatter)


def vllm_python() -> str:
    """The interpreter of an environment with vLLM."""
    named = os.environ.get("SECONDGUESS_VLLM_PYTHON")
    if named and shutil.which(named):
        return named
    if importlib.util.find_spec("vllm"):
        return sys.executable
    pytest.skip("there is no vLLM: set SECONDGUESS_VLLM_PYTHON to a Python that has it")


@pytest.fixture(scope="module")
def served(model: PairLanguageModel, tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """The address of a vLLM server, and the folder of its model."""
    python = vllm_python()
    folder = tmp_path_factory.mktemp("vllm") / "model"
    model.save(folder)
    with benchmark().vllm_server(python, folder) as address:
        yield address, folder


@pytest.mark.slow
def test_vllm_scores_and_decides_as_the_model_does(served, model):
    address, folder = served
    engine = VllmEngine.connect(address, folder)
    check_scores(engine, model, 1e-4)

    class Replayed(LocalEngine):
        def sample(self, draws):
            drawn = engine.sample(draws)
            items = [(draw.prompt, each.tokens) for draw, each in zip(draws, drawn, strict=True)]
            return self.score(items)

    check_decisions(engine, Replayed(model), prompts_of(model))


@pytest.mark.slow
def test_vllm_judges_meanings_as_the_model_does(served, model, monkeypatch):
    address, folder = served
    check_meanings(VllmEngine.connect(address, folder), model, monkeypatch)


@pytest.mark.slow
def test_the_commands_work_through_vllm(served, tmp_path, monkeypatch):
    address, folder = served
    file = tmp_path / "data.jsonl"
    rows = [{"prompt": f"say {k}", "responses": ["one", "two"]} for k in range(20)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = {}
    for name, engine in (("ours", []), ("theirs", ["--engine", address])):
        out = tmp_path / f"{name}.jsonl"
        run = CliRunner().invoke(app, ["score", str(folder), str(file), "--out", str(out), *engine])
        assert run.exit_code == 0, run.output
        scores[name] = [json.loads(line) for line in out.read_text().splitlines()]
    for ours, theirs in zip(scores["ours"], scores["theirs"], strict=True):
        for one, other in zip(ours["responses"], theirs["responses"], strict=True):
            assert np.allclose(one["cheating"], other["cheating"], atol=1e-4)
    out = tmp_path / "answers.jsonl"
    options = ["--max-hallucination-rate", "0.5", "--strategy", "rejection"]
    run = CliRunner().invoke(
        app, ["answer", str(folder), str(file), "--out", str(out), "--engine", address, *options]
    )
    assert run.exit_code == 0, run.output
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(answers) == 20
    assert any(not each["abstained"] for each in answers)
    options = ["--max-hallucination-rate", "0.99", "--meaning", "(?s)(.)", "--overwrite"]
    run = CliRunner().invoke(
        app, ["answer", str(folder), str(file), "--out", str(out), "--engine", address, *options]
    )
    assert run.exit_code == 0, run.output
    assert len(out.read_text().splitlines()) == 20
