"""The files of CIFAR-10H, made small or wrong on purpose, and the real ones where they are."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.cifar10h.real_cifar import NEEDS_DATA

from secondguess.classification.pairs import PairData
from secondguess.experiments.cifar10h import data, download
from secondguess.experiments.cifar10h.data import AnnotatedInputs, Cifar10H
from secondguess.experiments.data import DATA_VARIABLE


def rows(number: int) -> AnnotatedInputs:
    images = np.zeros((number, 3, 1, 1), np.uint8)
    responses = PairData.from_responses(np.tile(np.arange(number)[:, None] % 10, 2))
    return AnnotatedInputs(images, responses, np.arange(number))


def test_splits_are_those_of_the_paper() -> None:
    splits = Cifar10H(pretraining=rows(20), annotated=rows(10_000))
    assert splits.finetuning.labels.tolist() == list(range(3000))
    assert splits.validation.labels.tolist() == list(range(3000, 5000))
    assert splits.all_finetuning.labels.tolist() == list(range(5000))
    assert splits.test.labels.tolist() == list(range(5000, 10_000))
    assert len(splits.test.responses) == 5000


def test_without_a_folder_the_error_says_how_to_get_the_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match=r"set SECONDGUESS_DATA.*download cifar10h FOLDER"):
        data.load()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"data_batch_1 is missing.*download cifar10h FOLDER"
    ):
        data.load(tmp_path)


class Trap:
    """Unpickling one would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_a_batch_cannot_run_code(tmp_path: Path) -> None:
    folder = tmp_path / data.IMAGE_FOLDER
    folder.mkdir()
    sprung = tmp_path / "sprung"
    (folder / "data_batch_1").write_bytes(pickle.dumps({b"data": Trap(sprung), b"labels": []}))
    with pytest.raises(ValueError, match="data_batch_1 is not a CIFAR-10 batch"):
        data.load(tmp_path)
    assert not sprung.exists()


def write_images(folder: Path, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random images in the official layout; returns the labels of both parts."""
    (folder / data.IMAGE_FOLDER).mkdir()
    labels = rng.integers(10, size=(6, 10_000))
    pixels = rng.integers(256, size=(10_000, 3072), dtype=np.uint8)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    for name, y in zip(names, labels, strict=True):
        with (folder / data.IMAGE_FOLDER / name).open("wb") as file:
            pickle.dump({b"data": pixels, b"labels": y.tolist()}, file)
    return labels[:5].ravel(), labels[5]


def test_other_images_and_labels_in_another_order_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    train_labels, test_labels = write_images(tmp_path, rng)
    with pytest.raises(ValueError, match="the training pixels have mean"):
        data.load(tmp_path)

    monkeypatch.setattr(data, "_check_pixels", lambda path, images: None)
    np.save(tmp_path / data.PRETRAINING_FILE, np.tile(train_labels[:, None], 3))
    counts = 50 * np.eye(10, dtype=np.int64)[test_labels]
    np.save(tmp_path / data.COUNTS_FILE, counts)
    loaded = data.load(tmp_path)
    assert np.array_equal(loaded.annotated.responses.counts(), counts)
    assert np.array_equal(loaded.pretraining.labels, train_labels)

    np.save(tmp_path / data.COUNTS_FILE, rng.permutation(counts))
    with pytest.raises(ValueError, match=r"agrees with CIFAR-10's labels for 1\d.\d%"):
        data.load(tmp_path)
    np.save(tmp_path / data.COUNTS_FILE, counts[:5])
    with pytest.raises(ValueError, match=r"shape \(5, 10\); expected .* of shape \(10000, 10\)"):
        data.load(tmp_path)


def test_a_download_with_other_bytes_is_not_kept(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"something else")
    file = download.OfficialFile(url=source.as_uri(), sha256="0" * 64)
    with pytest.raises(ValueError, match="expected 0000"):
        download.fetch(file, target)
    assert not target.exists()


def test_the_published_labels_are_read_without_running_code(tmp_path: Path) -> None:
    votes = np.arange(12).reshape(4, 3) % 10
    published = {f"random_label{i + 1}": votes[:, i] for i in range(3)}
    torch.save(published | {"clean_label": votes[:, 0]}, tmp_path / "human.pt")
    assert np.array_equal(download.read_cifar10n(tmp_path / "human.pt"), votes)

    sprung = tmp_path / "sprung"
    torch.save(published | {"clean_label": Trap(sprung)}, tmp_path / "trap.pt")
    with pytest.raises(pickle.UnpicklingError):
        download.read_cifar10n(tmp_path / "trap.pt")
    assert not sprung.exists()


@NEEDS_DATA
def test_the_real_files_load_and_have_their_published_facts() -> None:
    loaded = data.load()
    assert (len(loaded.pretraining), len(loaded.annotated)) == (50_000, 10_000)
    pixels = loaded.pretraining.inputs / np.float32(255)
    np.testing.assert_allclose(pixels.std(axis=(0, 2, 3)), data.CHANNEL_DEVIATION, atol=1e-4)
    votes = loaded.pretraining.responses.labels
    wrong = (votes != loaded.pretraining.labels[:, None]).mean(axis=0)
    assert wrong.round(3).tolist() == [0.172, 0.181, 0.176]
    majority = loaded.annotated.responses.counts().argmax(axis=1)
    assert np.mean(majority == loaded.annotated.labels) == 0.9921
