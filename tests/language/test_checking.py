"""`check` tells a calibrated model from one that is not, and its guarantees hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language.table_network import SPELLINGS, table_model
from typer.testing import CliRunner
from worlds import random_world

from secondguess.cli.app import app
from secondguess.language.checking import check, property_rate
from secondguess.language.fitting import fine_tuning, fit
from secondguess.language.model import PairLanguageModel
from secondguess.language.tokenizer import word_tokenizer
from secondguess.models.transformer import (
    SinusoidalTransformerConfig,
    SinusoidalTransformerForCausalLM,
)

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


def test_the_command_tells_a_calibrated_model_from_an_overfitted_one(tmp_path: Path) -> None:
    """One has seen every pair once, the other 40 pairs until it knew them by heart."""
    num_coins = 40
    held_out = coin_rows(1500, num_coins, seed=2)
    source = tmp_path / "held-out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in held_out))
    records = {}
    for name, num_rows in (("calibrated", 400 * 64), ("overfitted", 40)):
        trained_model(coin_rows(num_rows, num_coins, seed=1), num_coins).save(tmp_path / name)
        result = CliRunner().invoke(app, ["check", str(tmp_path / name), str(source), "--json"])
        assert result.exit_code == 0, result.output
        records[name] = json.loads(result.stdout)
        report = CliRunner().invoke(app, ["check", str(tmp_path / name), str(source)]).stdout
        assert ("no sign against calibration" in report) == (name == "calibrated")
        assert ("do not rely on them" in report) == (name == "overfitted")
    good, bad = records["calibrated"], records["overfitted"]
    assert good["signs"] == []
    assert len(bad["signs"]) >= 2
    assert good["root_mean_square_asymmetry"] < 0.2 < bad["root_mean_square_asymmetry"]
    assert good["mean_log_first"] > bad["mean_log_first"]
    # A bent coin is known after one look: log 2 nats for half of the rows.
    assert good["gain"] == pytest.approx(np.log(2) / 2, abs=0.05)


def test_an_exactly_calibrated_model_shows_no_sign() -> None:
    rng = np.random.default_rng(4)
    world = random_world(rng, num_inputs=6, num_classes=5, num_groups=3)
    model = table_model(world, "positions")
    rows = rng.choice(len(world.input_probs), size=300, p=world.input_probs)
    drawn = [rng.choice(5, size=2, p=world.true_probs[row]) for row in rows]
    found = check(
        model,
        [
            {"prompt": f"x{row}", "responses": [SPELLINGS[first], SPELLINGS[second]]}
            for row, (first, second) in zip(rows, drawn, strict=True)
        ],
    )
    assert found.root_mean_square_asymmetry < 1e-12
    assert found.share_above_one == 0
    assert found.signs == []


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
