"""The annotators example: its data, its cache, and that its page is what its result says."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reviews() -> ModuleType:
    return load_script("examples/annotators/reviews.py")


def _archive(folder: Path, ratings: list[str]) -> None:
    row = {
        "id": "7_0",
        "original_id": "7",
        "description": "Fine soup.",
        "review_workers": {f"w{i}": stars for i, stars in enumerate(ratings)},
    }
    with zipfile.ZipFile(folder / "cebab-v1.1.zip", "w") as archive:
        for fold in ("train_inclusive", "dev", "test"):
            archive.writestr(f"CEBaB-v1.1/{fold}.json", json.dumps([row]))


def test_reads_the_archive_as_it_is_published(reviews, tmp_path) -> None:
    _archive(tmp_path, list("12345"))
    loaded = reviews.load_reviews(tmp_path)
    assert loaded.ratings.tolist() == [list("12345")] * 3
    assert loaded.groups.tolist() == ["7"] * 3


def test_says_where_the_data_come_from_and_what_is_wrong_with_them(reviews, tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="https://cebabing"):
        reviews.load_reviews(tmp_path)
    _archive(tmp_path, list("1234"))
    with pytest.raises(ValueError, match="review 7_0 has ratings"):
        reviews.load_reviews(tmp_path)


def test_the_published_data_are_complete(reviews) -> None:
    folder = os.environ.get("SECONDGUESS_DATA")
    if not folder or not (Path(folder) / reviews.ARCHIVE).exists():
        pytest.skip("needs SECONDGUESS_DATA to name a folder with cebab-v1.1.zip")
    loaded = reviews.load_reviews(Path(folder))
    assert loaded.ratings.shape == (15_090, 5)
    assert len(set(loaded.groups)) == 2299


def test_embeddings_are_made_once(reviews, tmp_path, monkeypatch) -> None:
    calls = []

    class Encoder:
        def __call__(self, texts):
            calls.append(len(texts))
            return np.array([[len(text), 1] for text in texts], dtype=np.float32)

    monkeypatch.setattr(reviews, "_Encoder", Encoder)
    monkeypatch.setattr(reviews, "TEXTS_PER_PIECE", 2)
    texts = ["a", "bb", "ccc"]
    first = reviews.embed(texts, tmp_path)
    np.testing.assert_array_equal(first, [[1, 1], [2, 1], [3, 1]])
    np.testing.assert_array_equal(reviews.embed(texts, tmp_path), first)
    reviews.embed([*texts[:2], "other"], tmp_path)
    assert calls == [2, 1, 1]


@pytest.mark.parametrize("name", ["annotators", "heads"])
def test_the_page_is_made_from_the_result(name) -> None:
    result = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())
    page = load_script(f"examples/{name}/page.py").render(result)
    assert page == (ROOT / "docs" / f"{name}.md").read_text()
