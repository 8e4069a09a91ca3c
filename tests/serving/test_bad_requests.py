"""Bad requests of all kinds: refused in OpenAI's shape, never a 500, nothing unescaped.

Half of them are made by schemathesis from the server's own OpenAPI document, half by hand. Answers
that are fine (a strange but valid request) count too: what matters is that nothing breaks.
"""

from __future__ import annotations

import json
import logging
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from serving.byte_model import byte_model
from serving.live import running
from serving.stand_in import KnownEngine

from secondguess.language.engines import LocalEngine
from secondguess.serving.app import create_app
from secondguess.serving.config import ServerConfig

CHAT, COMPLETE, SCORE = "/v1/chat/completions", "/v1/completions", "/score"
EVIL = "\x1b[2J\x07<script>alert(1)</script>\"'&\r\nHTTP/1.1 200 OK\n# HELP fake\u202e\u2028"
DEEP = 5_000


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    config = ServerConfig(model_name="pairs", max_samples=64, max_body=200_000)
    with TestClient(create_app(LocalEngine(byte_model()), config)) as client:
        yield client


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "pairs", "messages": [{"role": "user", "content": "hello"}], **fields}


def text(**fields: Any) -> dict[str, Any]:
    return {"model": "pairs", "prompt": "hello", **fields}


def schema(inner: Any) -> dict[str, Any]:
    """A chat that wants answers of this schema."""
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": inner}}
    return chat(response_format=wanted)


def check_refusal(response: Any) -> None:
    assert 400 <= response.status_code < 500, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith((".", "..."))
    assert len(response.content) < 10_000
    assert all(byte >= 32 for byte in response.content)  # escaped by JSON


WRONG_VALUES: list[Any] = [None, True, "x", "", -1, 0.5, 10**30, -1e308, [], [[]], {}, {"a": 1}]
FIELDS = {
    "n": [None],
    "temperature": [None, 0.5],
    "top_p": [None, 0.5],
    "seed": [None, -1],
    "stop": [None, "x", []],
    "stream": [None, True],
    "max_tokens": [None, 10**30],
    "max_hallucination_rate": [None, 0.5],
    "strategy": [None],
    "num_candidates": [None],
    "min_probability": [None, 0.5],
    "gap": [None],
    "user": [None, "x", ""],
}
"""Which of the wrong values are right for a field."""
WRONG_TYPES = [
    (path, field, value)
    for path in (CHAT, COMPLETE)
    for field, right in FIELDS.items()
    for value in WRONG_VALUES
    if not any(value is each or (value == each and value is not True) for each in right)
]


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
def test_wrong_types_are_refused_by_name(client: TestClient, path: str):
    for where, field, value in WRONG_TYPES:
        if where == path:
            body = chat() if path == CHAT else text()
            response = client.post(path, json=body | {field: value})
            check_refusal(response)
            assert response.json()["error"]["param"].startswith(field), (field, value)


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"model": "pairs"',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "text": b"hello",
    "two": b"{}{}",
    "trailing comma": b'{"model": "pairs",}',
    "single quotes": b"{'model': 'pairs'}",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": json.dumps(chat()).encode("utf-16"),
    "Latin-1": '{"model": "pärs"}'.encode("latin-1"),
    "a zero byte": b'{"model": "pairs\x00"}',
    "a lone surrogate": b'{"model": "\\ud800"}',
    "bytes": bytes(range(256)),
    "NaN": json.dumps(chat(temperature=float("nan"))).encode(),
    "infinity": json.dumps(chat(top_p=float("inf"))).encode(),
    "a number too large": json.dumps(chat()).encode()[:-1] + b', "temperature": 1e999}',
    "a number too long": json.dumps(chat()).encode()[:-1] + b', "seed": ' + b"9" * 5000 + b"}",
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep, unclosed": b"[" * 150_000,
    "deep schema": json.dumps(schema({})).encode().replace(
        b'"schema": {}', b'"schema": ' + b'{"not":' * DEEP + b"{}" + b"}" * DEEP
    ),
    "huge": b"x" * 200_001,
    "a form": b"model=pairs&prompt=hello",
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_broken_bodies_are_refused(client: TestClient, name: str):
    for path in (CHAT, COMPLETE, SCORE):
        headers = {"Content-Type": "application/json"}
        check_refusal(client.post(path, content=BODIES[name], headers=headers))


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "text/plain; application/json", "application/x-www-form-urlencoded",
     "multipart/form-data; boundary=x", "application/jsonp", "x" * 5000],
)  # fmt: skip
def test_other_content_types_are_refused(client: TestClient, kind: str):
    response = client.post(
        CHAT, content=json.dumps(chat()).encode(), headers={"Content-Type": kind}
    )
    check_refusal(response)
    assert response.status_code == 415


STRANGE: dict[str, tuple[str, dict[str, Any]]] = {
    "another model": (CHAT, chat(model=EVIL)),
    "no message": (CHAT, chat(messages=[])),
    "a message of nobody": (CHAT, chat(messages=[{"content": "x"}])),
    "an unknown role": (CHAT, chat(messages=[{"role": EVIL, "content": "x"}])),
    "an image": (CHAT, chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}])),
    "two messages without a template": (CHAT, chat(messages=chat()["messages"] * 2)),
    "tools": (CHAT, chat(tools=[{"type": "function"}])),
    "an unknown field": (CHAT, chat(**{EVIL: 1})),
    "a long unknown field": (CHAT, chat(**{"x" * 10_000: 1})),
    "a thousand unknown fields": (CHAT, chat(**{f"x{index}": 1 for index in range(1000)})),
    "a prompt of no text": (COMPLETE, text(prompt="")),
    "a prompt of no token": (COMPLETE, text(prompt=[])),
    "a prompt too long": (COMPLETE, text(prompt="x" * 1000)),
    "a prompt far too long": (COMPLETE, text(prompt=EVIL * 2000)),
    "an unknown token": (COMPLETE, text(prompt=[257])),
    "a huge token": (COMPLETE, text(prompt=[10**30])),
    "a negative token": (COMPLETE, text(prompt=[-1])),
    "tokens that are not": (COMPLETE, text(prompt=[True, False])),
    "mixed tokens": (COMPLETE, text(prompt=[1, "x"])),
    "too many prompts": (COMPLETE, text(prompt=["x"] * 129)),
    "too many samples": (COMPLETE, text(prompt=["x"] * 10, n=16, num_candidates=64)),
    "log-probabilities of others": (CHAT, chat(logprobs=True, top_logprobs=5)),
    "a pattern": (CHAT, schema({"properties": {"a": {"pattern": "(a+)+$"}}})),
    "a schema elsewhere": (CHAT, schema({"$ref": "http://127.0.0.1:1/x"})),
    "an address": (CHAT, schema({"$id": "http://127.0.0.1:1/", "$ref": "#/x"})),
    "another draft inside": (CHAT, schema({"not": {"$schema": "http://json-schema.org/schema#"}})),
    "a schema that is none": (CHAT, schema({"type": EVIL})),
    "a reference into data": (CHAT, schema({"$ref": "#/enum/0", "enum": [{"pattern": "x"}]})),
    "no schema": (CHAT, chat(response_format={"type": "json_schema"})),
    "an unknown format": (CHAT, chat(response_format={"type": "xml"})),
    "no responses": (SCORE, {"prompt": "x", "responses": []}),
    "an empty response": (SCORE, {"prompt": "x", "responses": [""]}),
    "a long response": (SCORE, {"prompt": "x", "responses": ["y" * 1000]}),
    "a response with an end": (SCORE, {"prompt": "x", "responses": ["a<end>b"]}),
    "neither prompt nor messages": (SCORE, {"responses": ["x"]}),
    "both": (SCORE, {"prompt": "x", "messages": chat()["messages"], "responses": ["x"]}),
    "an empty prompt to score": (SCORE, {"prompt": "", "responses": ["x"]}),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_requests_are_refused(client: TestClient, name: str):
    path, body = STRANGE[name]
    check_refusal(client.post(path, json=body))


UNUSUAL: dict[str, tuple[str, dict[str, Any]]] = {
    "nearly frozen": (CHAT, chat(temperature=5e-324)),
    "nearly one token": (CHAT, chat(top_p=5e-324)),
    "nearly every token": (CHAT, chat(top_p=1 - 1e-16)),
    "nearly no token": (CHAT, chat(min_probability=1 - 1e-16)),
    "nearly certain": (CHAT, chat(max_hallucination_rate=5e-324)),
    "many tokens": (CHAT, chat(max_tokens=10**30)),
    "stopped at once": (CHAT, chat(stop=[chr(code) for code in (97, 98, 99, 100)])),
    "stopped by a control character": (CHAT, chat(stop="\x00", return_candidates=True)),
    "evil words": (CHAT, chat(messages=[{"role": "user", "content": EVIL}], logprobs=True)),
    "evil parts": (CHAT, chat(messages=[
        {"role": "user", "content": [{"type": "text", "text": EVIL}], "name": EVIL}])),
    "a stream": (CHAT, chat(messages=[{"role": "user", "content": EVIL}], stream=True, n=3)),
    "a false schema": (CHAT, schema({"not": {}})),
    "a schema of many references": (CHAT, schema({"$ref": "#/$defs/d0", "$defs": {
        f"d{k}": {"allOf": [{"$ref": f"#/$defs/d{k + 1}"}] * 4} for k in range(100)}})),
    "a schema of itself": (CHAT, schema({"$ref": "#"})),
    "a schema of nothing": (CHAT, schema({"$ref": "#/$defs/nothing"})),
    "a draft": (CHAT, schema({"$schema": "http://json-schema.org/draft-07/schema#"})),
    "a property called pattern": (CHAT, schema({"properties": {"pattern": {"type": "string"}}})),
    "evil responses": (SCORE, {"prompt": EVIL, "responses": ["<b>", "\x1b[", "\u202e"]}),
    "the largest number": (COMPLETE, text(seed=2**63 - 1)),
    "tokens": (COMPLETE, text(prompt=[[1, 2], "x", [256]], logprobs=1, stream=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_requests_are_answered(client: TestClient, name: str):
    path, body = UNUSUAL[name]
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert b"\x1b" not in response.content


def test_schemas_that_branch_or_overflow_do_not_fit_but_end():
    class Says(KnownEngine):
        """Every response is the text `said`."""

        def _scored(self, prompt: Any, response: Any):
            return replace(super()._scored(prompt, response), text=said)

    branching = {f"d{k}": {"allOf": [{"$ref": f"#/$defs/d{k + 1}"}] * 4} for k in range(100)}
    for said, inner, fits in [
        ("{}", {"$ref": "#/$defs/d0", "$defs": branching}, False),
        ("{}", {"$ref": "#"}, False),
        ("{}", {"$ref": "#/$defs/nowhere"}, False),
        ("9" * 400, {"multipleOf": 0.5}, False),
        ("[" * 50_000, {}, False),
        ('{"pattern": "x"}', {"properties": {"pattern": {"type": "string"}}}, True),
        ("NaN", {"type": "object"}, False),
        ("[]", {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}}, True),
    ]:
        with TestClient(create_app(Says(), ServerConfig(model_name="pairs"))) as client:
            body = schema(inner) | {"messages": [{"role": "user", "content": "known"}]}
            response = client.post(CHAT, json=body)
            assert response.status_code == 200, (said[:20], inner)
            assert (response.json()["choices"][0]["message"]["content"] is not None) == fits


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", f"/v1/models/{'x' * 5000}", 404),
        ("GET", "/v1/models/%1b%5B2J%0A%00%ff", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/", 405),
        ("PATCH", "/metrics", 405),
        ("OPTIONS", CHAT, 405),
    ],
)
def test_other_paths_and_methods_are_refused(client, method, path, status):
    response = client.request(method, path)
    check_refusal(response)
    assert response.status_code == status


def test_duplicate_headers_do_not_pass_a_wrong_key():
    config = ServerConfig(model_name="pairs", api_key="secret")
    with TestClient(create_app(KnownEngine(), config)) as client:
        for keys in [("wrong", "wronger"), ("secret", "wrong"), ("wrong", "")]:
            headers = [("Authorization", f"Bearer {key}") for key in keys]
            check_refusal(client.get("/v1/models", headers=headers))  # pyright: ignore


def test_nothing_of_a_request_reaches_the_log_or_the_metrics(caplog):
    class Broken(KnownEngine):
        def sample(self, draws):
            raise RuntimeError(f"cannot sample {EVIL}")

    app = create_app(Broken(), ServerConfig(model_name="pairs"))
    with caplog.at_level(logging.DEBUG), TestClient(app) as client:
        client.get(f"/{'x' * 10}%1b%5b2J<script>")
        response = client.post(CHAT, json=chat(messages=[{"role": "user", "content": "known"}]))
        assert response.status_code == 500
        assert EVIL[:3] not in response.text
        metrics = client.get("/metrics").text
    [bug] = [record for record in caplog.records if record.name == "secondguess.serving"]
    said = bug.getMessage()
    assert "cannot sample" in said
    assert all(sign.isascii() and (sign.isprintable() or sign == "\n") for sign in said)
    assert "\nHTTP/1.1" not in said
    assert "script" not in metrics
    assert 'status="500"' in metrics
    others = [
        record.getMessage()
        for record in caplog.records
        if record is not bug and not record.name.startswith("httpx")  # the client's own log
    ]
    assert not any("\x1b" in each or "script" in each for each in others)


def test_slow_clients_are_given_up_and_do_not_stop_the_server():
    config = ServerConfig(model_name="pairs", timeout=0.5)
    with running(create_app(KnownEngine(), config)) as address:
        host, port = address.removeprefix("http://").split(":")

        def spoken(text: bytes) -> bytes:
            with socket.create_connection((host, int(port)), timeout=20) as client:
                client.sendall(text)
                said = b""
                while piece := client.recv(65536):
                    said += piece
                return said

        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        slow = spoken(head + b'Content-Length: 100\r\n\r\n{"model"')
        assert slow.startswith(b"HTTP/1.1 408")
        assert b'"error"' in slow
        chunked = spoken(head + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        assert chunked.startswith(b"HTTP/1.1 408")
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n"):
            assert spoken(garbage).startswith(b"HTTP/1.1 400")
        waiting = socket.create_connection((host, int(port)))
        waiting.sendall(b"POST /v1/comp")  # never finishes its first line
        assert httpx.get(f"{address}/health").status_code == 200
    waiting.close()  # the server ended although it was still open


CHECKS = [
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
]


def fuzz(num_examples: int) -> Counter[int]:
    """How many requests made from the server's own document got which status."""
    config = ServerConfig(model_name="pairs", max_samples=64)
    app = create_app(LocalEngine(byte_model()), config)
    document = schemathesis.openapi.from_asgi("/openapi.json", app)
    seen: Counter[int] = Counter()
    found: Any = document.get_all_operations()
    for operation in (each.ok() for each in found):
        if operation.method == "get" and "{" not in operation.path:
            continue
        modes = list(GenerationMode) if operation.method == "post" else [GenerationMode.POSITIVE]
        for mode in modes:

            @hypothesis.settings(
                max_examples=num_examples,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
            )
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def run(case: schemathesis.Case):
                response = case.call()
                seen[response.status_code] += 1
                assert response.status_code < 500
                if response.status_code != 200:
                    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
                case.validate_response(response, checks=CHECKS)

            run()
    return seen


def test_requests_made_from_the_document():
    assert fuzz(6).total() >= 36


@pytest.mark.slow
def test_three_hundred_requests_made_from_the_document():
    seen = fuzz(60)
    assert seen.total() >= 300
    assert seen[200] >= 10  # they reach the model, too
