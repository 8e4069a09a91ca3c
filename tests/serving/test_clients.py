"""Real clients, unchanged, against a real server on loopback."""

from __future__ import annotations

import openai
import pytest
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel, SecretStr
from serving.live import running
from serving.stand_in import KnownEngine

from secondguess.serving.app import create_app
from secondguess.serving.config import ServerConfig


@pytest.fixture(scope="module")
def address():
    config = ServerConfig(model_name="pairs", api_key="secret")
    with running(create_app(KnownEngine(), config)) as address:
        yield f"{address}/v1"


@pytest.fixture
def client(address: str):
    with OpenAI(base_url=address, api_key="secret", max_retries=0) as client:
        yield client


def ask(client: OpenAI, question: str = "known", **options):
    return client.chat.completions.create(
        model="pairs", messages=[{"role": "user", "content": question}], **options
    )


def test_openai_gets_answers_with_a_bound(client):
    [choice] = ask(client).choices
    assert choice.message.content.endswith("and so on")
    assert choice.secondguess["bound"] < 0.1


def test_openai_gets_refusals(client):
    [choice] = ask(client, "unknown").choices
    assert choice.message.content is None
    assert choice.message.refusal.startswith("I don't know")
    assert choice.finish_reason == "stop"


def test_openai_overrides_through_the_extra_body(client):
    [choice] = ask(client, "unknown", extra_body={"max_hallucination_rate": 0.9}).choices
    assert choice.message.content


def test_openai_streams(client):
    pieces = list(ask(client, stream=True))
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text.endswith("and so on")
    assert pieces[-1].choices[0].finish_reason == "stop"
    refused = list(ask(client, "unknown", stream=True))
    assert any(piece.choices[0].delta.refusal for piece in refused)


def test_openai_n_seed_and_logprobs(client):
    once, again = (ask(client, n=3, seed=1, logprobs=True) for _ in range(2))
    texts = [choice.message.content for choice in once.choices]
    assert len(texts) == 3
    assert texts == [choice.message.content for choice in again.choices]
    assert all(choice.logprobs.content[0].logprob < 0 for choice in once.choices)


def test_openai_parse_gives_the_refusal(client):
    class City(BaseModel):
        name: str

    parsed = client.chat.completions.parse(
        model="pairs", messages=[{"role": "user", "content": "known"}], response_format=City
    )
    assert parsed.choices[0].message.parsed is None
    assert parsed.choices[0].message.refusal


def test_openai_completions_and_models(client):
    assert client.completions.create(model="pairs", prompt="known").choices[0].text
    assert [model.id for model in client.models.list()] == ["pairs"]


def test_openai_reads_our_errors(client, address):
    with pytest.raises(openai.NotFoundError, match="no such model"):
        client.completions.create(model="other", prompt="known")
    with pytest.raises(openai.BadRequestError, match="tools"):
        ask(client, tools=[])
    with (
        OpenAI(base_url=address, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_langchain_asks_and_hears_refusals(address):
    model = ChatOpenAI(model="pairs", base_url=address, api_key=SecretStr("secret"), max_retries=0)
    assert str(model.invoke("known").content).endswith("and so on")
    refused = model.invoke("unknown")
    assert not refused.content
    assert "don't know" in refused.additional_kwargs["refusal"]
