"""The server over its own interface: shapes, decisions, refusals, limits."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient
from serving.byte_model import byte_model
from serving.stand_in import KnownEngine

from secondguess.language.checking import Verdict
from secondguess.language.engines import LocalEngine
from secondguess.language.findings import CheckFinding
from secondguess.language.marked import MarkedAnswers
from secondguess.language.scoring import ScoredResponse
from secondguess.serving.app import create_app
from secondguess.serving.config import Defaults, ServerConfig
from secondguess.serving.records import token_texts
from secondguess.theory.calibration.thresholds import GuaranteedThreshold


@pytest.fixture
def engine() -> KnownEngine:
    return KnownEngine()


@pytest.fixture
def client(engine: KnownEngine):
    with TestClient(create_app(engine, ServerConfig(model_name="pairs"))) as client:
        yield client


def ask(client: TestClient, question: str = "known", **fields):
    body = {"model": "pairs", "messages": [{"role": "user", "content": question}], **fields}
    return client.post("/v1/chat/completions", json=body)


def test_an_answer_carries_its_bound(client):
    [choice] = ask(client).json()["choices"]
    assert choice["message"]["content"].endswith("and so on")
    assert choice["message"]["refusal"] is None
    ours = choice["secondguess"]
    assert ours["abstained"] is False
    assert ours["bound"] == pytest.approx(1 - (1 / 3) / 0.34)
    assert ours["confidence"] == pytest.approx((1 / 3) / 0.34)
    assert ours["rests_on"] == "if calibrated on pairs"


def test_an_abstention_is_a_refusal_that_clients_do_not_raise_on(client):
    [choice] = ask(client, "unknown").json()["choices"]
    assert choice["message"]["content"] is None
    assert choice["message"]["refusal"].startswith("I don't know.")
    assert choice["finish_reason"] == "stop"
    assert choice["secondguess"]["abstained"] is True
    assert choice["secondguess"]["bound"] is None


def test_a_request_may_allow_more(client):
    [choice] = ask(client, "unknown", max_hallucination_rate=0.9).json()["choices"]
    assert choice["message"]["content"]
    assert choice["secondguess"]["bound"] == pytest.approx(1 - (1 / 3) / 0.99)


def test_strategies(client):
    def first(**fields):
        [choice] = ask(client, "mixed", seed=3, return_candidates=True, **fields).json()["choices"]
        return choice["secondguess"], choice["message"]["content"]

    ours, said = first(strategy="rejection", num_candidates=20)
    assert said.startswith("rome")
    assert len(ours["candidates"]) == ours["num_candidates"] == 20
    ours, said = first(strategy="selective")
    assert len(ours["candidates"]) == 1
    assert (said is not None) == ours["candidates"][0]["text"].startswith("rome")


def test_rejection_draws_no_more_than_it_needs(client, engine):
    def drawn(question: str) -> int:
        engine.batches.clear()
        [choice] = ask(client, question, seed=3, num_candidates=20).json()["choices"]
        assert choice["secondguess"]["num_candidates"] == sum(engine.batches)
        return sum(engine.batches)

    assert drawn("known") == 1
    assert 1 <= drawn("mixed") < 20
    assert drawn("unknown") == 20


def test_the_same_seed_gives_the_same_answer_and_n_gives_others(client):
    once, again = (ask(client, seed=7, n=8).json()["choices"] for _ in range(2))
    texts = [choice["message"]["content"] for choice in once]
    assert texts == [choice["message"]["content"] for choice in again]
    assert len(set(texts)) > 1
    assert [choice["index"] for choice in once] == list(range(8))


def test_stop_and_max_tokens_cut_and_score_what_is_left(client):
    [choice] = ask(client, stop=["and"], logprobs=True).json()["choices"]
    assert choice["message"]["content"].strip() in ("rome", "oslo", "lima")
    assert choice["finish_reason"] == "stop"
    assert len(choice["logprobs"]["content"]) == 1
    [choice] = ask(client, max_tokens=2).json()["choices"]
    assert choice["message"]["content"].endswith("and")
    assert choice["finish_reason"] == "length"
    assert choice["secondguess"]["cut_off"] is True


def test_logprobs_and_cheating_go_token_by_token(client):
    [choice] = ask(client, logprobs=True).json()["choices"]
    content = choice["logprobs"]["content"]
    assert [each["token"].strip() for each in content][1:] == ["and", "so", "on"]
    assert content[0]["logprob"] == pytest.approx(-1.0986, abs=1e-3)
    assert len(choice["secondguess"]["token_cheating"]) == 5  # with the end


def test_pieces_join_to_the_text(client):
    [choice] = ask(client, logprobs=True, return_candidates=True).json()["choices"]
    pieces = [each["token"] for each in choice["logprobs"]["content"]]
    assert "".join(pieces) == choice["message"]["content"]
    for each in choice["secondguess"]["candidates"]:
        assert "".join(each["tokens"]) == each["text"]
        assert len(each["tokens"]) == len(each["token_cheating"])


def test_letters_of_several_tokens_stay_whole():
    formatter = byte_model().formatter
    tokens = formatter.response_tokens("zé€")
    scored = ScoredResponse(tokens, "zé€", np.zeros(7), np.zeros(7))
    assert token_texts(formatter, scored) == ["z", "", "é", "", "", "€", ""]


def test_completions_take_texts_tokens_and_lists(client, engine):
    tokens = list(engine.formatter.prompt_tokens("known"))
    for prompt, number in [("known", 1), (tokens, 1), (["known", "unknown"], 2), ([tokens], 1)]:
        body = {"model": "pairs", "prompt": prompt, "logprobs": 1}
        answer = client.post("/v1/completions", json=body).json()
        assert len(answer["choices"]) == number
        assert answer["choices"][0]["text"]
    assert client.post(
        "/v1/completions", json={"model": "pairs", "prompt": ["known", "unknown"]}
    ).json()["choices"][1]["secondguess"]["refusal"]


def test_streams_come_in_events(client):
    for stream, path in [(True, "/v1/chat/completions"), (True, "/v1/completions")]:
        body = {"model": "pairs", "stream": stream, "stream_options": {"include_usage": True}}
        asked = {"messages": [{"role": "user", "content": "known"}], "prompt": "known"}
        body |= {"messages": asked["messages"]} if "chat" in path else {"prompt": asked["prompt"]}
        response = client.post(path, json=body)
        assert response.headers["content-type"].startswith("text/event-stream")
        *events, last = response.text.strip().split("\n\n")
        assert last == "data: [DONE]"
        parsed = [json.loads(event.removeprefix("data: ")) for event in events]
        assert parsed[-1]["usage"]["total_tokens"] > 0
        assert parsed[-2]["choices"][0]["secondguess"]["abstained"] is False


def test_json_formats_reject_texts_that_do_not_fit(client):
    [choice] = ask(client, response_format={"type": "json_object"}).json()["choices"]
    assert choice["message"]["content"] is None
    assert choice["message"]["refusal"]
    schema = {"name": "x", "schema": {"type": "object", "properties": {"a": {"pattern": "(a+)+"}}}}
    refused = ask(client, response_format={"type": "json_schema", "json_schema": schema})
    assert refused.status_code == 400
    assert "pattern" in refused.json()["error"]["message"]


def test_scores_of_given_responses(client):
    body = {"prompt": "unknown", "responses": ["rome", "oslo and on"]}
    data = client.post("/score", json=body).json()["data"]
    assert [each["text"] for each in data] == body["responses"]
    assert data[0]["confidence"] == pytest.approx((1 / 3) / 0.99)
    assert [each["gap"] for each in data] == pytest.approx([1 - (1 / 3) / 0.99] * 2)


def test_models_health_metrics(client):
    assert client.get("/v1/models").json()["data"][0]["id"] == "pairs"
    assert client.get("/v1/models/pairs").json()["object"] == "model"
    assert client.get("/v1/models/other").status_code == 404
    assert client.get("/health").json() == {"status": "ok"}
    ask(client)
    ask(client, "unknown")
    text = client.get("/metrics").text
    assert 'secondguess_decisions_total{outcome="answered"} 1.0' in text
    assert 'secondguess_decisions_total{outcome="abstained"} 1.0' in text


def test_a_key_is_asked_for_before_anything_is_read(engine):
    config = ServerConfig(model_name="pairs", api_key="secret")
    with TestClient(create_app(engine, config)) as client:
        assert client.get("/health").status_code == 200
        assert ask(client).status_code == 401
        for wrong in ("Bearer secre", "Bearer secretx", "Basic secret", "Bearer ", "secret"):
            assert client.get("/v1/models", headers={"Authorization": wrong}).status_code == 401
        right = {"Authorization": "Bearer secret"}
        assert client.get("/v1/models", headers=right).status_code == 200


def test_other_sites_may_not_call_unless_asked(engine):
    origin = {"Origin": "https://elsewhere.example"}
    for origins, expected in [((), None), (("https://elsewhere.example",), origin["Origin"])]:
        config = ServerConfig(model_name="pairs", cors_origins=origins)
        with TestClient(create_app(engine, config)) as client:
            headers = client.get("/v1/models", headers=origin).headers
            assert headers.get("access-control-allow-origin") == expected


def test_a_bug_is_an_error_without_its_details(engine):
    engine.fails_on = engine.formatter.prompt_tokens("unknown")
    app = create_app(engine, ServerConfig(model_name="pairs"))
    with TestClient(app, raise_server_exceptions=False) as client:
        response = ask(client, "unknown")
        assert response.status_code == 500
        assert "a bug" not in response.text
        assert ask(client).status_code == 200


def test_defaults_of_the_operator_hold(engine):
    defaults = Defaults(max_hallucination_rate=0.9, strategy="selective")
    config = ServerConfig(model_name="pairs", defaults=defaults)
    with TestClient(create_app(engine, config)) as client:
        [choice] = ask(client, "unknown").json()["choices"]
        assert choice["message"]["content"]
        assert choice["secondguess"]["num_candidates"] == 1


def test_the_page_runs_nothing_but_its_own_script(client):
    response = client.get("/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


CITY = "(rome|oslo|lima)"


def test_meanings_are_judged_where_the_operator_says_so(engine):
    with TestClient(create_app(engine, ServerConfig(model_name="pairs", meaning=CITY))) as client:
        assert client.get("/v1/models").json()["data"][0]["secondguess"]["meaning"] == CITY
        [choice] = ask(client, seed=1, return_candidates=True).json()["choices"]
        ours = choice["secondguess"]
        assert choice["message"]["content"] == f"{ours['meaning']} and so on"
        assert ours["num_candidates"] == sum(each["times"] for each in ours["candidates"]) == 10
        meanings = [each["meaning"] for each in ours["candidates"]]
        assert len(set(meanings)) == len(meanings) > 1
        [choice] = ask(client, "mixed", strategy="rejection", seed=3).json()["choices"]
        assert choice["secondguess"]["meaning"] == "rome"
        [choice] = ask(client, "unknown", logprobs=True).json()["choices"]
        assert choice["message"]["refusal"].startswith("I don't know.")
        for field, value in [("temperature", 0.5), ("stop", "and"), ("max_tokens", 2)]:
            refused = ask(client, **{field: value})
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == field
        body = {"model": "pairs", "prompt": ["known", "unknown"], "logprobs": 1, "n": 2}
        answered = client.post("/v1/completions", json=body).json()["choices"]
        assert [each["secondguess"]["abstained"] for each in answered] == [False] * 2 + [True] * 2


def test_a_model_judges_its_own_meanings():
    config = ServerConfig(model_name="pairs", meaning="words")
    app = create_app(LocalEngine(byte_model()), config)
    with TestClient(app) as client:
        once, again = (
            ask(client, max_hallucination_rate=0.99, seed=4, return_candidates=True).json()
            for _ in range(2)
        )
        [one], [other] = once["choices"], again["choices"]
        assert one["secondguess"] == other["secondguess"]
        assert len(one["secondguess"]["candidates"]) > 1


def marked(max_gap: float = 0.1) -> MarkedAnswers:
    return MarkedAnswers(GuaranteedThreshold(-max_gap, 0.05, 0.01, 400, 200, 3.0), chosen_at=0.99)


@pytest.mark.parametrize("strategy", ["selective", "rejection", "top1"])
def test_a_guaranteed_answer_is_chosen_as_the_marked_ones_were(engine, strategy):
    """About `mixed` some candidates are sure; whoever looks for them gives unmarked answers."""
    defaults = Defaults(max_hallucination_rate=0.1, strategy=strategy)
    config = ServerConfig(model_name="pairs", defaults=defaults, marked=marked())
    with TestClient(create_app(engine, config)) as client:
        given = []
        for seed in range(12):
            [chosen] = ask(client, "mixed", seed=seed, max_hallucination_rate=0.99).json()[
                "choices"
            ]
            [choice] = ask(client, "mixed", seed=seed).json()["choices"]
            sure = chosen["secondguess"]["bound"] <= 0.1
            assert choice["message"]["content"] == (chosen["message"]["content"] if sure else None)
            given.append(sure)
            if not sure:
                assert "at most 0.05 of my answers are wrong" in choice["message"]["refusal"]
                # What was chosen is withheld: no further candidate is drawn.
                assert choice["secondguess"]["num_candidates"] == (10 if strategy == "top1" else 1)
        assert 0 < sum(given) < len(given)


def test_a_rate_that_the_check_speaks_against_is_refused(engine):
    finding = CheckFinding(Verdict.NO_SIGN, 0.05, 500, {})
    config = ServerConfig(model_name="pairs", finding=finding)
    with TestClient(create_app(engine, config)) as client:
        assert (
            ask(client).status_code == ask(client, max_hallucination_rate=0.05).status_code == 200
        )
        refused = ask(client, max_hallucination_rate=0.04)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["param"] == "max_hallucination_rate"
        assert "0.050, the finest bound" in error["message"]
        [model] = client.get("/v1/models").json()["data"]
        assert model["secondguess"]["resolution"] == 0.05
    worse = CheckFinding(Verdict.TOO_MUCH, 0.05, 500, {})
    config = ServerConfig(model_name="pairs", finding=worse, marked=marked())
    with TestClient(create_app(engine, config)) as client:
        assert ask(client).status_code == 200  # guaranteed, whatever the model is
        assert ask(client, max_hallucination_rate=0.5).status_code == 400
        assert ask(client, temperature=0.5).status_code == 400


def test_a_guarantee_is_stated_only_where_the_request_changes_nothing(engine):
    config = ServerConfig(model_name="pairs", marked=marked())
    with TestClient(create_app(engine, config)) as client:
        expected = {
            "max_gap": 0.1,
            "chosen_at": 0.99,
            "max_error_rate": 0.05,
            "failure_rate": 0.01,
            "num_marked": 400,
            "rests_on": "guaranteed by a calibration set",
        }

        def guarantee(**fields):
            return ask(client, **fields).json()["choices"][0]["secondguess"]["guarantee"]

        assert guarantee() == guarantee(temperature=1, n=2, seed=3, max_tokens=100) == expected
        for field, value in [
            ("temperature", 0.5),
            ("top_p", 0.9),
            ("stop", "and"),
            ("max_tokens", 2),
            ("strategy", "top1"),
            ("num_candidates", 3),
            ("max_hallucination_rate", 0.2),
            ("response_format", {"type": "json_object"}),
        ]:
            assert guarantee(**{field: value}) is None, field
