"""Associations: the norms, soft targets, the judgement, and a whole run on a small model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from secondguess.experiments.associations import run as associations
from secondguess.experiments.associations.evaluation import (
    OURS,
    prediction_of,
    recalibration_of,
    truth_of,
)
from secondguess.experiments.associations.norms import (
    NOBODY_ELSE,
    Cue,
    find_norms,
    read_cues,
    split,
)
from secondguess.experiments.associations.pairs import (
    association_batches,
    even_draws,
    response_length,
    soft_pair_loss,
)
from secondguess.experiments.associations.scoring import ScoredAnswers, Vocabulary
from secondguess.language.collating import collate_pairs
from secondguess.language.formatting import PairFormat, PairFormatter
from secondguess.language.shared_prompts import pair_loss
from secondguess.language.tokenizer import word_tokenizer
from secondguess.theory.records import SelfCheatScores
from secondguess.theory.reliability import second_order_ece

WORDS = ["Word", "association:", "->", NOBODY_ELSE, "nurse", "sick", "night", "day", "dark"]


def small_model(*more: str) -> tuple[LlamaForCausalLM, PairFormatter]:
    tokenizer = word_tokenizer(sorted({*WORDS, *more}))
    torch.manual_seed(0)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32,
            initializer_range=0.5, tie_word_embeddings=True, bos_token_id=1, eos_token_id=0,
        )
    )  # fmt: skip
    return network.eval(), PairFormatter(tokenizer, PairFormat(response_length=4))


def test_people_whose_answer_nobody_shares_are_a_response() -> None:
    texts, people = Cue("doctor", 10, {"nurse": 6, "sick": 2}).responses()
    assert texts == [" nurse", " sick", f" {NOBODY_ELSE}"]
    assert people.tolist() == [6, 2, 2]
    assert Cue("doctor", 8, {"nurse": 6, "sick": 2}).responses()[0] == [" nurse", " sick"]
    with pytest.raises(ValueError, match="3 participants and 6 recorded"):
        Cue("doctor", 3, {"nurse": 6})


def test_missing_and_damaged_norms_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SECONDGUESS_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="no data were named"):
        find_norms()
    with pytest.raises(FileNotFoundError, match=r"w3\.usf\.edu"):
        read_cues(tmp_path)
    file = tmp_path / "usf-free-association.jsonl"
    file.write_text('{"cue": "a", "participants": 5, "answers": {"b": 3}}\n{"cue": "c"}\n')
    with pytest.raises(ValueError, match="line 2: 'participants'"):
        read_cues(tmp_path)


def test_the_norms_are_those_of_the_data_notes() -> None:
    try:
        cues = read_cues(find_norms())
    except FileNotFoundError as error:
        pytest.skip(f"the norms are not at hand: {error}")
    assert len(cues) == 5017
    assert sum(sum(cue.answers.values()) for cue in cues) == 612_506
    assert sum(cue.participants for cue in cues) == 747_453


def test_parts_share_no_cue() -> None:
    cues = [Cue(str(n), 2, {}) for n in range(50)]
    one, other = split(cues, (30, 10, 10), seed=0), split(cues, (30, 5, 5), seed=0)
    assert len({cue.word for part in one for cue in part}) == 50
    assert one.training == other.training


def test_even_draws_are_draws_of_people() -> None:
    people = np.array([5, 3, 2])
    rng = np.random.default_rng(0)
    draws = np.array([even_draws(people, 2, rng) for _ in range(4000)])
    shares = np.bincount(draws.ravel(), minlength=3) / draws.size
    # Statistical, four standard errors of 8,000 draws (they are less than independent ones have).
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=4 * 0.5 / np.sqrt(draws.size))


def test_soft_targets_have_the_expected_loss_of_drawn_pairs() -> None:
    """Exactly: the mean over all first draws, weighted, against all ordered pairs of people."""
    cue = Cue("night", 7, {"day": 3, "dark day": 2})
    network, formatter = small_model()
    texts, people = cue.responses()
    responses = [formatter.response_tokens(text) for text in texts]
    prompt = formatter.prompt_tokens(cue.prompt)
    expected = 0.0
    for first in range(3):
        for second in range(3):
            others = people - (np.arange(3) == first)
            weight = people[first] / people.sum() * others[second] / others.sum()
            # A batch of two, so that the prompt is shared as in the soft loss.
            pair = formatter.lay_out(prompt, responses[first], responses[second])
            batch = collate_pairs([pair, pair], end=formatter.end, padding_side="right")
            expected += weight * pair_loss(network, batch).item()
    batch_at = association_batches([cue], formatter, cues_per_step=1, pairs_per_cue=1, seed=0)
    losses: dict[tuple[int, ...], float] = {}
    for step in range(200):
        batch = batch_at(step)
        key = tuple(batch["input_ids"][0].tolist())
        if key not in losses:
            losses[key] = soft_pair_loss(network, batch).item()
    pairs = {
        tuple(formatter.lay_out(prompt, responses[i], responses[j]).tokens): (i, j)
        for i in range(3)
        for j in range(3)
    }
    assert len(losses) == 9
    soft = 0.0
    for tokens, loss in losses.items():
        first, second = pairs[tokens]
        others = people - (np.arange(3) == first)
        soft += people[first] / people.sum() * others[second] / others.sum() * loss
    assert soft == pytest.approx(expected, rel=1e-5)


def test_words_are_proposed_by_their_first_tokens() -> None:
    _, formatter = small_model()
    cues = [Cue("night", 20, {"day": 6, "dark day": 3, "dark night": 9})]
    vocabulary = Vocabulary(cues, formatter)
    ids = formatter.tokenizer.get_vocab()
    log_first = np.full(len(ids), np.log(1e-3))
    log_first[ids["dark"]], log_first[ids["day"]] = np.log(0.6), np.log(0.3)
    # 0.6 is shared 1 to 3 between the two words that start with "dark".
    assert vocabulary.likely(log_first, 3) == ["dark night", "day", "dark day"]


def answers_of_a_world(rng: np.random.Generator, num_cues: int, bend: float) -> ScoredAnswers:
    """Beta truths around known means, and a model that is right but for a bend of its logits."""
    mean = rng.uniform(0.05, 0.6, num_cues)
    size = rng.uniform(2, 20, num_cues)
    truth = rng.beta(mean * size, (1 - mean) * size)
    asked = np.full(num_cues, 150.0)
    people = rng.binomial(150, truth).astype(float)
    again = mean + (1 - mean) / (size + 1)

    def bent(probs: np.ndarray) -> np.ndarray:
        logits = bend * np.log(probs / (1 - probs))
        return -np.log1p(np.exp(-logits))

    return ScoredAnswers(
        np.arange(num_cues),
        np.array(["word"] * num_cues),
        SelfCheatScores(bent(mean), bent(again)),
        people,
        asked,
        np.ones(num_cues, dtype=bool),
    )


@pytest.mark.statistical
def test_recalibration_on_other_cues_mends_a_bent_model() -> None:
    """Ten times the distance between before and after that chance makes; seed fixed."""
    rng = np.random.default_rng(0)
    held_out, test = (answers_of_a_world(rng, 4000, 1.5) for _ in "12")
    correct = recalibration_of(held_out)
    logits = -np.log(np.expm1(-test.scores.log_marginal)) / 1.5
    true = 1 / (1 + np.exp(-logits))
    wrong_before, wrong_after = (
        np.abs(prediction_of(scores).probs - true).mean()
        for scores in (test.scores, correct(test.scores))
    )
    assert wrong_after < 0.1 * wrong_before
    assert correct.repeat.slope == pytest.approx(1 / 1.5, rel=0.1)
    before, after = prediction_of(test.scores), prediction_of(correct(test.scores))
    truth = truth_of(test)
    assert second_order_ece(after, truth) < 0.5 * second_order_ece(before, truth)


def test_a_run_ends_with_tables_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    answers = [f"a{n}" for n in range(12)]
    cues = []
    for index in range(60):
        people = rng.multinomial(60, rng.dirichlet(np.full(12, 0.3)))
        shared = {word: int(n) for word, n in zip(answers, people, strict=True) if n > 1}
        cues.append(Cue(f"c{index}", 60, shared))
    small = replace(associations.PRESETS["quick"], sizes=(24, 16, 20), num_answers=4)
    small = replace(small, training=replace(small.training, lora_rank=2))
    monkeypatch.setitem(associations.PRESETS, "quick", small)
    network, formatter = small_model(*answers, *(cue.word for cue in cues))
    network.save_pretrained(tmp_path / "base")
    formatter.tokenizer.save_pretrained(tmp_path / "base")
    assert response_length(cues, formatter.tokenizer) == 2
    options = {"preset": "quick", "out": tmp_path / "out", "model": str(tmp_path / "base")}
    directory = associations.run_associations(**options, cues=cues)
    result = json.loads((directory / "result.json").read_text())
    scores = result["metrics"]["scores"]
    assert scores["num_events"] == 20 * 4
    assert set(scores["methods"][OURS]) == set(scores["prompted"][OURS])
    assert len(scores["examples"]["known"]) == 10
    assert len(result["claims"]) == 4
    assert (directory / "page.json").exists()
    before = (directory / "arrays.npz").stat().st_mtime_ns
    parts = (directory / "parts" / "training" / "result.json").stat().st_mtime_ns
    associations.run_associations(**options, cues=cues)
    assert (directory / "parts" / "training" / "result.json").stat().st_mtime_ns == parts
    assert (directory / "arrays.npz").stat().st_mtime_ns >= before
