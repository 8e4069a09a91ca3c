"""X for a backbone of one's own: pixels, tensors, what tokenizers give; and where it is trained."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import Tensor, nn

from secondguess import PairClassifier, triage
from secondguess.training.loop import TrainingConfig, train

NUM_ROWS = 60
RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=NUM_ROWS)
Y = np.where(RNG.random((NUM_ROWS, 3)) < 0.2, RNG.integers(3, size=(NUM_ROWS, 3)), LABELS[:, None])
QUICK: dict[str, Any] = {"num_steps": 30, "batch_size": 16, "learning_rate": 0.05}


class Pool(nn.Module):
    """Token ids and their mask to the mean embedding; a word for each label."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.seen: list[int] = []

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        self.seen.append(len(input_ids))
        assert input_ids.dtype == torch.int64
        mask = attention_mask.unsqueeze(-1)
        return (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)


def tokens(kind: Any) -> Any:
    """One row for each label: its word, another, and padding."""
    ids = np.stack([LABELS + 1, np.full(NUM_ROWS, 9), np.zeros(NUM_ROWS, int)], axis=1)
    return {"input_ids": kind(ids), "attention_mask": kind((ids > 0).astype(int))}


class Encoding(UserDict):
    """As the tokenizers of Hugging Face return it: a mapping that is no dict."""


def model(backbone: nn.Module, **settings: Any) -> PairClassifier:
    torch.manual_seed(0)
    return PairClassifier("responses", backbone=backbone, **QUICK | settings)


def test_what_a_tokenizer_gives_is_passed_on_by_name() -> None:
    torch.manual_seed(0)
    backbone = Pool()
    tensors = Encoding(tokens(torch.from_numpy))
    fitted = model(backbone).fit(tensors, Y)
    probs = fitted.predict_proba(tensors)
    assert (fitted.predict(tensors) == LABELS).mean() > 0.9
    for other in (tokens(np.asarray), tokens(np.ndarray.tolist)):  # arrays and lists are the same
        again = model(backbone).fit(other, Y)
        np.testing.assert_array_equal(again.predict_proba(other), probs)
    assert not hasattr(fitted, "n_features_in_")
    # Everything that follows from joints counts rows, not names.
    assert fitted.predict_confidence(tensors).shape == (NUM_ROWS, 3)
    assert triage(fitted, tensors).ignorance.shape == (NUM_ROWS,)
    assert np.isfinite(fitted.score(tensors, Y))
    with pytest.warns(UserWarning, match="57 of 60 rows of the calibration set are exact copies"):
        found = fitted.calibrate(tensors, Y, min_variance=0.1)
    assert found.predict_interval(tensors, miss_rate=0.5).lower.shape == (NUM_ROWS, 3)


def test_rows_go_through_ones_own_backbone_a_batch_at_a_time(tmp_path) -> None:
    fitted = model(Pool()).fit(tokens(torch.from_numpy), Y)
    fitted.save(tmp_path / "saved")
    loaded = PairClassifier.load(tmp_path / "saved", backbone=Pool())
    for each in (fitted, loaded):
        body = each.model_.backbone
        assert isinstance(body, Pool)
        body.seen.clear()
        each.predict_proba(tokens(torch.from_numpy))
        assert max(body.seen) == 16
    np.testing.assert_array_equal(
        fitted.predict_variance(tokens(np.asarray)), loaded.predict_variance(tokens(np.asarray))
    )


def test_a_tokenizer_can_be_a_step_of_a_pipeline() -> None:
    texts = np.array(["bad", "fair", "good"])[LABELS]
    words = {"bad": 1, "fair": 2, "good": 3}

    def tokenize(texts: Any) -> Any:
        ids = torch.tensor([[words[text]] for text in texts])
        return Encoding(input_ids=ids, attention_mask=torch.ones_like(ids))

    steps = make_pipeline(FunctionTransformer(tokenize), model(Pool())).fit(texts, Y)
    assert (steps.predict(texts) == LABELS).mean() > 0.9
    assert triage(steps, texts).ignorance.shape == (NUM_ROWS,)


def test_parts_of_different_lengths_and_ragged_ones_are_refused() -> None:
    bad = tokens(torch.from_numpy)
    bad["attention_mask"] = bad["attention_mask"][:-1]
    with pytest.raises(ValueError, match=r"'input_ids': 60, 'attention_mask': 59"):
        model(Pool()).fit(bad, Y)
    bad["attention_mask"] = [[1], [1, 1]] * 30
    with pytest.raises(ValueError, match=r"X\['attention_mask'\].*padding=True"):
        model(Pool()).fit(bad, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model(Pool()).fit(tokens(torch.from_numpy), Y[:-1])
    with pytest.raises(ValueError, match="NaN or infinity"):
        model(nn.Linear(2, 3)).fit(torch.full((NUM_ROWS, 2), torch.nan), Y)


def test_a_backbone_that_gives_no_tensor_is_named() -> None:
    class Outputs(Pool):
        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
            return {"last_hidden_state": super().forward(input_ids, attention_mask)}

    with pytest.raises(TypeError, match=r"returns dict; expected a tensor.*pools"):
        model(Outputs()).fit(tokens(torch.from_numpy), Y)


class Pixels(nn.Module):
    """A small network for images, which looks at what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        assert images.dtype == torch.float32
        assert images.max() <= 1
        return self.layers(images)


def test_pixels_are_scaled_to_one_batch_by_batch() -> None:
    images = RNG.integers(256, size=(NUM_ROWS, 3, 4, 4), dtype=np.uint8)
    torch.manual_seed(0)
    backbone = Pixels()
    whole = model(backbone).fit(images, Y)
    scaled = model(backbone).fit((images / 255).astype(np.float32), Y)
    np.testing.assert_allclose(
        whole.predict_proba(images), scaled.predict_proba(images / 255), atol=1e-5
    )
    tensors = model(backbone).fit(torch.from_numpy(images), Y)
    np.testing.assert_array_equal(whole.predict_proba(images), tensors.predict_proba(images))
    assert whole.n_features_in_ == 3


def test_tensors_are_as_good_as_arrays() -> None:
    inputs = RNG.normal(size=(NUM_ROWS, 2)).astype(np.float32)
    torch.manual_seed(0)
    backbone = nn.Linear(2, 5)
    array = model(backbone).fit(inputs, Y).predict_variance(inputs)
    tensor = torch.from_numpy(inputs).requires_grad_()
    np.testing.assert_array_equal(model(backbone).fit(tensor, Y).predict_variance(tensor), array)
    # The estimator's own networks take them too.
    own = PairClassifier("responses", backbone="linear")
    np.testing.assert_array_equal(
        own.fit(torch.from_numpy(inputs), Y).predict_proba(torch.from_numpy(inputs)),
        own.fit(inputs, Y).predict_proba(inputs),
    )


def test_images_need_a_backbone() -> None:
    images = RNG.integers(256, size=(NUM_ROWS, 4, 4), dtype=np.uint8)
    with pytest.raises(ValueError, match=r"X has shape \(60, 4, 4\).*backbone="):
        PairClassifier("responses").fit(images, Y)


def test_a_device_is_where_the_training_happens() -> None:
    # The device "meta" has shapes and no numbers, so that torch names it in its complaint.
    with pytest.raises(RuntimeError, match="meta"):
        train(
            nn.Linear(1, 1),
            loss=lambda module, batch: module(batch).mean(),
            batch_at=lambda step: torch.zeros(3, 1),
            config=TrainingConfig(num_steps=1),
            device="meta",
        )


def test_a_device_of_an_estimator() -> None:
    inputs = RNG.normal(size=(NUM_ROWS, 2)).astype(np.float32)
    torch.manual_seed(0)
    backbone = nn.Linear(2, 5)
    named = model(backbone, device="cpu").fit(inputs, Y).predict_proba(inputs)
    np.testing.assert_array_equal(named, model(backbone).fit(inputs, Y).predict_proba(inputs))
    for wrong in ("nowhere", "cuda:99"):
        with pytest.raises(ValueError, match=f"device is '{wrong}', which this machine"):
            model(backbone, device=wrong).fit(inputs, Y)
