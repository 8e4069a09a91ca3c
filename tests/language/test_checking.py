"""`check` tells a calibrated model from one that is not, and its guarantees hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language.table_network import RESPONSE_LENGTH, TableNetwork
from typer.testing import CliRunner

from secondguess.cli.app import app
from secondguess.language.checking import PairCheck, Verdict, check
from secondguess.language.fitting import fine_tuning, fit
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.model import PairLanguageModel
from secondguess.language.properties import property_rate
from secondguess.language.tokenizer import word_tokenizer
from secondguess.models.transformer import (
    SinusoidalTransformerConfig,
    SinusoidalTransformerForCausalLM,
)
from secondguess.theory.records import SelfCheatScores

KINDS = ("fair", "bent")
SIDES = ("heads", "tails")


def coin_rows(count: int, num_coins: int, seed: int) -> list[dict[str, Any]]:
    """Fair coins, and bent ones that always fall on one side that nobody can see in the prompt."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        kind = str(rng.choice(KINDS))
        side = rng.integers(2)
        falls = [int(rng.integers(2)) if kind == "fair" else int(side) for _ in range(2)]
        coin = f"c{rng.integers(num_coins)}"
        rows.append({"prompt": f"{kind} {coin}", "responses": [SIDES[fall] for fall in falls]})
    return rows


def trained_model(rows: list[dict[str, Any]], num_coins: int) -> PairLanguageModel:
    words = [*KINDS, *SIDES, *(f"c{index}" for index in range(num_coins))]
    config = SinusoidalTransformerConfig(
        vocab_size=len(words) + 2,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    network = SinusoidalTransformerForCausalLM(config)
    training = fine_tuning(400, learning_rate=3e-3, warmup_steps=30)
    return fit(rows, (network, word_tokenizer(words)), batch_size=64, config=training).model


TOPICS, WORDINGS, PROMPTS, PAIRS = 4, 12, 3, 400
TOPIC_WORDS = [f"t{index}" for index in range(TOPICS)]
WORDING_WORDS = [f"v{index}" for index in range(WORDINGS)]
TEXTS = [f"{topic} {wording}" for topic in TOPIC_WORDS for wording in WORDING_WORDS]


def topic_model(joint: np.ndarray) -> PairLanguageModel:
    """The model of a joint `(texts, texts)`, the same for every prompt."""
    words = [*TOPIC_WORDS, *WORDING_WORDS, *(f"x{index}" for index in range(PROMPTS))]
    formatter = PairFormatter(
        word_tokenizer(words), PairFormat(response_length=RESPONSE_LENGTH), context_length=64
    )
    network = TableNetwork(formatter, np.stack([joint] * PROMPTS), TEXTS)
    return PairLanguageModel(network.eval(), formatter)


def topic_joint() -> np.ndarray:
    """Both responses are on one topic that nobody sees; 1 pair in 12 repeats its wording."""
    same = np.eye(TOPICS) / TOPICS
    return np.kron(same, np.full((WORDINGS, WORDINGS), 1 / WORDINGS**2))


def topic_rows(seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(PAIRS):
        topic = rng.integers(TOPICS)
        texts = [TEXTS[topic * WORDINGS + rng.integers(WORDINGS)] for _ in range(2)]
        rows.append({"prompt": f"x{rng.integers(PROMPTS)}", "responses": texts})
    return rows


def by_heart() -> np.ndarray:
    """Eight pairs in both orders, and hardly anything else."""
    joint = 0.02 * topic_joint()
    index = {text: place for place, text in enumerate(TEXTS)}
    for row in topic_rows(seed=99)[:8]:
        y1, y2 = (index[text] for text in row["responses"])
        joint[y1, y2] += 0.98 / 16
        joint[y2, y1] += 0.98 / 16
    return joint


def joints() -> dict[Verdict, np.ndarray]:
    calibrated = topic_joint()
    marginal = calibrated.sum(axis=1)
    return {
        Verdict.NO_SIGN: calibrated,
        Verdict.NEVER: np.outer(marginal, marginal),
        Verdict.BY_HEART: by_heart(),
        Verdict.TOO_MUCH: 0.4 * calibrated + 0.6 * np.diag(marginal),
        Verdict.TOO_LITTLE: 0.4 * calibrated + 0.6 * np.outer(marginal, marginal),
    }


@pytest.mark.statistical
@pytest.mark.parametrize("verdict", list(joints()))
def test_each_model_is_named_for_what_it_is(verdict: Verdict) -> None:
    """The calibrated one is misnamed in fewer than 5e-4 of seeds; exact repeats are rare."""
    found = check(topic_model(joints()[verdict]), topic_rows(1), rng=np.random.default_rng(2))
    assert found.verdict is verdict
    # A symmetric mixture of products has no confidence above 1; pairs known by heart are none.
    if verdict is Verdict.BY_HEART:
        assert found.share_above_one > 0.2
        assert found.resolution > 0.2
    else:
        assert found.resolution < 1e-9
    assert found.marginal_difference.side == 0
    if verdict is Verdict.NEVER:
        np.testing.assert_allclose(found.scores.epistemic_confidence, 1)
        assert found.use_of_first.mean == pytest.approx(0, abs=1e-9)


def simulated_check(
    rng: np.random.Generator, num_pairs: int, *, recalibrated: bool = False
) -> PairCheck:
    """The check of an exactly calibrated table with heavy tails, drawn without a network."""
    size = 6
    truths = rng.dirichlet(np.full(size, 0.2), size=3)
    joint = np.einsum("gi,gj->ij", truths, truths) / 3
    marginal, given = joint.sum(axis=1), joint / joint.sum(axis=1, keepdims=True)

    def after(first: np.ndarray) -> np.ndarray:
        return (
            (rng.random(len(first))[:, None] > given[first].cumsum(axis=1))
            .sum(axis=1)
            .clip(max=size - 1)
        )

    y1, drawn_first = rng.choice(size, size=(2, num_pairs), p=marginal)
    y2, drawn, drawn_second = after(y1), after(y1), after(drawn_first)
    log_p, log_given = np.log(marginal), np.log(given)
    return PairCheck(
        log_first=log_p[y1],
        log_second=log_given[y1, y2],
        log_second_alone=log_p[y2],
        log_second_after_other=log_given[np.roll(y1, 1), y2],
        asymmetry=np.zeros(num_pairs),
        scores=SelfCheatScores(log_p[y1], log_given[y1, y1]),
        repeated=y1 == y2,
        overlap=(y1 == y2).astype(float),
        drawn_log_first=log_p[drawn_first],
        drawn_gain=log_given[y1, drawn] - log_p[drawn],
        drawn_overlap=(y1 == drawn).astype(float),
        drawn_log_second=log_p[drawn_second],
        guessed=drawn_first == y1,
        log_guess=log_p[drawn_first],
        recalibrated=recalibrated,
    )


@pytest.mark.statistical
@pytest.mark.parametrize("num_pairs", [5, 50, 500])
@pytest.mark.parametrize("recalibrated", [False, True])
def test_calibrated_models_are_hardly_ever_accused(num_pairs: int, recalibrated: bool) -> None:
    """Each of 1,000 is accused with probability below 5e-4; more than 6 of them, below 1e-6."""
    rng = np.random.default_rng(num_pairs)
    verdicts = [
        simulated_check(rng, num_pairs, recalibrated=recalibrated).verdict for _ in range(1000)
    ]
    assert sum(verdict is not Verdict.NO_SIGN for verdict in verdicts) <= 6


def test_noise_sets_the_resolution() -> None:
    base = simulated_check(np.random.default_rng(0), 400)
    sure = SelfCheatScores(np.full(400, -1.0), np.full(400, -1.0))
    assert replace(base, scores=sure).resolution == 0
    noisy = replace(base, scores=sure, asymmetry=np.full(400, 0.1 * np.sqrt(2)))
    assert noisy.resolution == pytest.approx(-np.expm1(-0.1))
    above = SelfCheatScores(np.full(400, -1.0), np.full(400, -1.0 - np.log(1.2)))
    assert replace(base, scores=above).resolution == pytest.approx(0.2)
    # Scatter around 1: that some of it falls near 1 by chance makes no bound finer.
    scatter = 0.05 * np.random.default_rng(1).standard_normal(400)
    scattered = SelfCheatScores(np.full(400, -1.0), -1.0 - scatter)
    assert replace(base, scores=scattered).resolution == pytest.approx(0.05 / np.sqrt(2), rel=0.15)
    # Confidence of 5 everywhere: no bound means anything.
    wild = SelfCheatScores(np.full(400, -1.0), np.full(400, -1.0 - np.log(5)))
    assert replace(base, scores=wild).resolution == 1


def test_the_command_tells_a_trained_model_from_an_overfitted_one(tmp_path: Path) -> None:
    """One has seen every pair once, the other 40 pairs until it knew them by heart."""
    num_coins = 40
    held_out = coin_rows(1500, num_coins, seed=2)
    source = tmp_path / "held-out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in held_out))
    records = {}
    for name, num_rows in (("trained", 400 * 64), ("overfitted", 40)):
        trained_model(coin_rows(num_rows, num_coins, seed=1), num_coins).save(tmp_path / name)
        result = CliRunner().invoke(app, ["check", str(tmp_path / name), str(source), "--json"])
        assert result.exit_code == 0, result.output
        records[name] = json.loads(result.stdout)
        report = CliRunner().invoke(app, ["check", str(tmp_path / name), str(source)]).stdout
        assert ("verdict: no sign against calibration" in report) == (name == "trained")
        assert ("do not rely on them" in report) == (name == "overfitted")
    good, bad = records["trained"], records["overfitted"]
    assert good["verdict"] == Verdict.NO_SIGN
    assert bad["verdict"] == Verdict.BY_HEART
    assert good["root_mean_square_asymmetry"] < 0.2 < bad["root_mean_square_asymmetry"]
    assert good["mean_log_first"] > bad["mean_log_first"]
    # Noise says nothing about the other one: it is wrong with little noise, so its verdict counts.
    assert 0 < good["resolution"] < 0.2
    # A bent coin is known after one look: log 2 nats for half of the rows.
    assert good["gain"] == pytest.approx(np.log(2) / 2, abs=0.05)


@pytest.mark.statistical
def test_the_propertys_interval_covers_as_often_as_it_says() -> None:
    """Misses stay below the miss rate in at least 1 - failure_rate of the calibration sets.

    Each of 100 sets fails with probability at most 0.05; more than 17 failures would have
    probability below 1e-5.
    """
    rng = np.random.default_rng(0)
    failures = 0
    for _ in range(100):
        rates = rng.beta(2, 5, size=400)
        found = property_rate(rng.random((400, 2)) < rates[:, None], failure_rate=0.05)
        new = rng.beta(2, 5, size=4000)
        lower, upper = found.interval.lower[0], found.interval.upper[0]
        failures += np.mean((new < lower) | (new > upper)) > 0.1
    assert failures <= 17


def test_a_property_needs_rows() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 2\); expected at least 4 rows"):
        property_rate(np.ones((2, 2)))
