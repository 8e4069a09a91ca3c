"""LoRA: an adapter is trained, saved, loaded and merged, and survives any interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language.models import VOCAB_SIZE, WORDS
from transformers import LlamaConfig, LlamaForCausalLM

from secondguess.language.fitting import fine_tuning, fit
from secondguess.language.model import PairLanguageModel, load_network
from secondguess.language.scoring import score_pairs
from secondguess.language.tokenizer import word_tokenizer


def small_smollm2(folder: Path, seed: int = 0) -> Path:
    """SmolLM2's architecture (grouped queries, tied embeddings) with few and small layers."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=36,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        bos_token_id=1,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    word_tokenizer(WORDS).save_pretrained(folder)
    return folder


def rows_of(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    chosen = rng.choice(WORDS, size=(count, 2))
    return [
        {"prompt": str(prompt), "responses": [str(answer), f"{answer} {answer}"]}
        for prompt, answer in chosen
    ]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_smollm2(tmp_path_factory.mktemp("models") / "base")


def test_only_the_adapter_is_trained_saved_and_merged_again(base: Path, tmp_path: Path) -> None:
    rows = rows_of(64)
    fitted = fit(
        rows,
        base,
        lora_rank=4,
        config=fine_tuning(20, learning_rate=0.01),
        checkpoint_dir=tmp_path / "checkpoints",
    )
    assert fitted.history.losses[-1] < fitted.history.losses[0]
    fitted.model.save(tmp_path / "model")
    assert not (tmp_path / "model" / "model.safetensors").exists()
    [checkpoint] = (tmp_path / "checkpoints").glob("*.safetensors")
    network, _ = load_network(base)
    assert checkpoint.stat().st_size < 4 * network.num_parameters()  # no copy of the base

    again = PairLanguageModel.load(tmp_path / "model")
    assert again.identity == fitted.model.identity
    np.testing.assert_array_equal(score_pairs(again, rows), score_pairs(fitted.model, rows))
    again.save(tmp_path / "again")
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def test_an_adapter_finds_its_own_base_or_says_which_it_needs(base: Path, tmp_path: Path) -> None:
    moved, folder = tmp_path / "base", tmp_path / "model"
    small_smollm2(moved)
    fit(rows_of(16), moved, lora_rank=2, config=fine_tuning(2)).model.save(folder)
    moved.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="load the adapter with base="):
        PairLanguageModel.load(folder)
    PairLanguageModel.load(folder, base=tmp_path / "elsewhere").save(tmp_path / "saved again")
    PairLanguageModel.load(tmp_path / "saved again")
    other = small_smollm2(tmp_path / "other", seed=1)
    with pytest.raises(ValueError, match="has other weights now"):
        PairLanguageModel.load(folder, base=other)


_FIT = """
import sys
from pathlib import Path
from language.test_adapters import rows_of
from secondguess.language.fitting import fine_tuning, fit

base, out = map(Path, sys.argv[1:])
fitted = fit(
    rows_of(64), base, lora_rank=4, validation=0.25,
    config=fine_tuning(60, learning_rate=0.01, validate_every=7),
    checkpoint_dir=out.with_suffix(".checkpoints"), checkpoint_every=5,
    tell=lambda line: print("started", flush=True),
)
fitted.model.save(out)
"""


def _interrupted(base: Path, out: Path, number: signal.Signals, seconds: float) -> bool:
    """Run the training, send it a signal after some seconds of training; whether it ended."""
    tests = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tests)])}
    process = subprocess.Popen(
        [sys.executable, "-c", _FIT, str(base), str(out)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        process.wait(120)
    process.stdout.close()
    return out.exists()


def _ends_with_the_same_bytes(base: Path, tmp_path: Path, count: int, seed: int) -> None:
    assert _interrupted(base, tmp_path / "whole", signal.SIGKILL, 120)
    expected = (tmp_path / "whole" / "adapter_model.safetensors").read_bytes()
    rng = np.random.default_rng(seed)
    kinds = [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]
    stopped = 0
    out = tmp_path / "stopped"
    while stopped < count:
        if _interrupted(base, out, kinds[stopped % 3], float(rng.uniform(0.05, 0.6))):
            assert (out / "adapter_model.safetensors").read_bytes() == expected
            out = tmp_path / f"stopped-{stopped}"
        stopped += 1
    if not out.exists():
        assert _interrupted(base, out, signal.SIGKILL, 120)
    assert (out / "adapter_model.safetensors").read_bytes() == expected


def test_stopped_in_three_ways_it_ends_with_the_same_bytes(base: Path, tmp_path: Path) -> None:
    _ends_with_the_same_bytes(base, tmp_path, count=3, seed=0)


@pytest.mark.slow
def test_stopped_twenty_times_it_ends_with_the_same_bytes(base: Path, tmp_path: Path) -> None:
    _ends_with_the_same_bytes(base, tmp_path, count=20, seed=1)


def test_the_best_validation_wins_and_training_stops_out_of_patience(base: Path) -> None:
    # Ten rows seen again and again: the other rows have other answers, and get worse.
    fitted = fit(
        rows_of(10),
        base,
        validation=rows_of(40, seed=9),
        batch_size=10,
        config=fine_tuning(200, learning_rate=0.01, validate_every=5, patience=3),
    )
    history = fitted.history
    assert fitted.num_held_out == 40
    assert len(history.losses) < 200
    assert history.best_step == history.validation_steps[history.validation_losses.argmin()]
    first, second = score_pairs(fitted.model, rows_of(40, seed=9))
    # Scored in the order of the rows; validation draws an order, and the loss is near either way.
    assert -(first + second).mean() == pytest.approx(history.validation_losses.min(), abs=0.3)


def test_gradient_checkpointing_changes_nothing_but_rounding(base: Path) -> None:
    rows = rows_of(32)
    plain, saving = (
        fit(rows, base, config=fine_tuning(5), lora_rank=2, gradient_checkpointing=saving)
        for saving in (False, True)
    )
    np.testing.assert_allclose(saving.history.losses, plain.history.losses, rtol=1e-5)


def test_rows_longer_than_max_length_are_bad_rows(base: Path) -> None:
    rows = [*rows_of(8), {"prompt": "w1 w2 w3 w4 w5 w6", "responses": ["w1", "w2 w2"]}]
    with pytest.raises(ValueError, match="context of 10"):
        fit(rows, base, max_length=10, config=fine_tuning(1))
    fitted = fit(rows, base, max_length=10, skip_bad=True, config=fine_tuning(1))
    assert fitted.num_skipped == 1
    assert fitted.model.formatter.context_length == 64  # the model itself can read more


def test_trackers_are_told(base: Path) -> None:
    from accelerate.tracking import GeneralTracker

    class Notes(GeneralTracker):
        name = "notes"
        requires_logging_directory = False

        def __init__(self) -> None:
            super().__init__()
            self.told: list[tuple[int | None, dict[str, Any]]] = []

        @property
        def tracker(self) -> None:
            return None

        def store_init_configuration(self, values: dict[str, Any]) -> None:
            self.told.append((None, values))

        def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
            self.told.append((step, values))

    notes = Notes()
    fit(
        rows_of(32),
        base,
        validation=0.25,
        config=fine_tuning(20, validate_every=10),
        log_with=[notes],
    )
    assert notes.told[0][1]["num_steps"] == "20"
    assert [step for step, values in notes.told[1:] if "loss" in values] == [10, 20]
    assert [step for step, values in notes.told[1:] if "validation_loss" in values] == [10, 20]
