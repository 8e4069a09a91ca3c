"""Fine-tuning a text encoder on several ratings per text: one of two layers, at random."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from pages import DOCS, filled
from scripts import load_script

import secondguess as sg

transformers = pytest.importorskip("transformers")
WORDS = ["[PAD]", "[UNK]", "awful", "fine", "great", "soup", "was", "the"]


def _tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = Tokenizer(
        WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"
    )


def _encoder():
    torch.manual_seed(0)
    return transformers.BertModel(
        transformers.BertConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
        )
    )


@pytest.fixture(scope="module")
def example():
    return load_script("examples/encoder/run.py")


def test_an_encoder_is_trained_with_its_head_and_knows_what_raters_say(example, tmp_path) -> None:
    rng = np.random.default_rng(0)
    stars = rng.integers(3, size=120)
    texts = [
        f"the soup was {WORDS[2 + star]}" + " the" * (row % 3) for row, star in enumerate(stars)
    ]
    said = np.where(rng.random((120, 3)) < 0.1, rng.integers(3, size=(120, 3)), stars[:, None])
    who = np.array([rng.permutation(9)[:3] for _ in range(120)])
    ratings = sg.PairData.from_responses(said, annotators=who)
    encoder, tokens = _encoder(), example.tokenize(_tokenizer(), texts)
    before = encoder.embeddings.word_embeddings.weight.clone()
    settings = {"num_steps": 80, "batch_size": 20, "learning_rate": 0.01}
    model = example.fine_tune(encoder, tokens, ratings[:120], np.arange(120), **settings)
    assert (model.predict(tokens) == stars).mean() > 0.9
    assert example.errors(model.predict_moments(tokens), ratings)["accuracy"] > 0.9
    # The copy was trained, all of it; the user's encoder is as it was.
    trained = model.model_.backbone.encoder.embeddings.word_embeddings.weight
    assert not torch.equal(trained, before)
    assert torch.equal(encoder.embeddings.word_embeddings.weight, before)
    # Padding does not matter.
    alone = example.tokenize(_tokenizer(), texts[:1])
    np.testing.assert_allclose(
        model.predict_proba(alone)[0], model.predict_proba(tokens)[0], atol=1e-4
    )
    model.save(tmp_path / "saved")
    loaded = sg.PairClassifier.load(tmp_path / "saved", backbone=example.MeanPooled(_encoder()))
    np.testing.assert_array_equal(loaded.predict_variance(tokens), model.predict_variance(tokens))


def test_edits_of_one_review_stay_on_one_side(example) -> None:
    groups = np.repeat(np.arange(30), 4)
    training, testing = example.split(groups, 40, seed=0)
    assert len(training) == 40
    assert not set(groups[training]) & set(groups[testing])


def test_the_page_holds_what_the_result_says() -> None:
    import encoder_page

    assert filled(encoder_page.PAGE, encoder_page.TABLES) == (DOCS / encoder_page.PAGE).read_text()
    record = json.loads(encoder_page.RESULT.read_text())
    tuned, frozen = record["rows"]
    assert (tuned["method"], frozen["method"]) == encoder_page.METHODS
    assert 0.58 < tuned["grouping_error"] / frozen["grouping_error"] < 0.62
    assert record["texts"] == 800
    for row in (tuned, frozen):
        assert 0.9 < row["mean_variance"] / row["grouping_error"] < 1.1
