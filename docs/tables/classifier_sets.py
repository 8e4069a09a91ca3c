"""The data sets of docs/classifiers.md: features, and how often each label was given.

Five have real annotators (in the folder that the user names): CEBaB, stars and what people say
about the food, CIFAR-10H, as frozen features and as pixels, and CIFAR-10N. Four are made; their
makers were written down before any classifier saw them, and no default was chosen on them.
Annotators there see more than the classifier does, so that there is something not to know.

Axes: rows (n), features (d), classes (K).
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, make_classification, make_moons
from sklearn.ensemble import RandomForestClassifier

NUM_COMPONENTS = 64
"""More features than this are replaced by so many principal components."""


@dataclass(frozen=True)
class Part:
    """Rows of a data set.

    Attributes:
        features: `(n, d)`.
        counts: `(n, K)`, how often each label was given.
    """

    features: np.ndarray
    counts: np.ndarray

    def take(self, rows: np.ndarray) -> Part:
        """Some of the rows."""
        return Part(self.features[rows], self.counts[rows])


def draw(probs: np.ndarray, num_annotators: int, rng: np.random.Generator) -> np.ndarray:
    """Counts `(n, K)` of annotators who answer by these probabilities."""
    return rng.multinomial(num_annotators, probs / probs.sum(axis=1, keepdims=True))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities `(n, K)`."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def blurred_digits(rng: np.random.Generator) -> tuple[Part, np.ndarray]:
    """Handwritten digits: annotators see 8 x 8 pixels, the classifier 4 x 4. Five labels each."""
    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    means = np.stack([images[labels == k].mean(axis=0) for k in range(10)])
    distance = ((images[:, None] - means) ** 2).sum(axis=2)
    probs = softmax(-distance / 150)
    small = images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(len(images), 16)
    return Part(small, draw(probs, 5, rng)), np.arange(len(images))


def teacher(rng: np.random.Generator) -> tuple[Part, np.ndarray]:
    """A table of 20 columns and 4 classes; a forest that sees 8 more columns is the law."""
    made = make_classification(
        16_000,
        28,
        n_informative=12,
        n_redundant=4,
        n_classes=4,
        n_clusters_per_class=3,
        flip_y=0.1,
        random_state=11,
    )
    columns, labels = (np.asarray(part) for part in made)
    forest = RandomForestClassifier(40, min_samples_leaf=20, random_state=11)
    probs = np.asarray(forest.fit(columns, labels).predict_proba(columns))
    return Part(columns[:, :20], draw(probs, 3, rng)), np.arange(len(columns))


def moons(rng: np.random.Generator) -> tuple[Part, np.ndarray]:
    """Two moons in a plane; a third number, which annotators see, may turn the answer round."""
    made = make_moons(16_000, noise=0.25, random_state=11)
    plane, labels = (np.asarray(part) for part in made)
    turned = rng.random(len(plane)) < np.where(plane[:, 0] > 0.5, 0.3, 0.02)
    sure = np.where(labels ^ turned, 0.9, 0.1)
    return Part(plane, draw(np.stack([1 - sure, sure], axis=1), 2, rng)), np.arange(len(plane))


def crowd(rng: np.random.Generator) -> tuple[Part, np.ndarray]:
    """Twelve classes, 67 labels each; people see 4 columns more, and some answers are stray."""
    columns = rng.normal(size=(11_000, 28))
    bent = np.tanh(columns @ rng.normal(size=(28, 40)) / 3)
    logits = 2.5 * bent @ rng.normal(size=(40, 12)) / np.sqrt(6) - np.linspace(0, 3, 12)
    probs = 0.85 * softmax(logits) + 0.15 * softmax(-np.linspace(0, 3, 12)[None])
    return Part(columns[:, :24], draw(probs, 67, rng)), np.arange(len(columns))


def cebab(folder: Path) -> tuple[Part, np.ndarray]:
    """Restaurant reviews, five ratings each; edits of one review are one group."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))  # whose reader serves here too
    reviews = importlib.import_module("annotators.reviews").load_reviews(folder)
    counts = np.stack([(reviews.ratings == stars).sum(axis=1) for stars in "12345"], axis=1)
    return Part(np.load(folder / "cebab-features.npy"), counts), np.asarray(reviews.groups)


def cebab_food(folder: Path) -> tuple[Part, np.ndarray]:
    """The same reviews; what they say about the food: good, bad or nothing. Five labels each."""
    rows = []
    with zipfile.ZipFile(folder / "cebab-v1.1.zip") as archive:
        for fold in ("train_inclusive", "dev", "test"):
            rows += json.loads(archive.read(f"CEBaB-v1.1/{fold}.json"))
    said = [row["food_aspect_label_distribution"] or {} for row in rows]
    counts = np.array(
        [[row.get(label, 0) for label in ("Negative", "unknown", "Positive")] for row in said]
    )
    asked = np.flatnonzero(counts.sum(axis=1) > 1)
    groups = np.array([row["original_id"] for row in rows])
    features = np.load(folder / "cebab-features.npy")
    return Part(features[asked], counts[asked]), groups[asked]


def cifar10h_pixels(folder: Path) -> tuple[Part, np.ndarray]:
    """The images of CIFAR-10H themselves, 16 x 16 pixels in three colours."""
    with (folder / "cifar-10-batches-py" / "test_batch").open("rb") as file:
        images = pickle.load(file, encoding="bytes")[b"data"].reshape(-1, 3, 16, 2, 16, 2)
    features = images.mean(axis=(3, 5)).reshape(len(images), -1)
    return Part(features, np.load(folder / "cifar10h-counts.npy")), np.arange(len(features))


def cifar10h(folder: Path) -> tuple[Part, np.ndarray]:
    """Test images of CIFAR-10, about 51 labels each."""
    features = np.load(folder / "cifar10h-features.npy")
    return Part(features, np.load(folder / "cifar10h-counts.npy")), np.arange(len(features))


def cifar10n(folder: Path) -> tuple[Part, np.ndarray]:
    """Training images of CIFAR-10, three labels each."""
    features = np.load(folder / "cifar10n-features.npy")
    labels = np.load(folder / "cifar10n-labels.npy")[: len(features)]
    counts = np.stack([(labels == k).sum(axis=1) for k in range(10)], axis=1)
    return Part(features, counts), np.arange(len(features))


REAL: dict[str, Callable[[Path], tuple[Part, np.ndarray]]] = {
    "CEBaB": cebab,
    "CEBaB food": cebab_food,
    "CIFAR-10H": cifar10h,
    "CIFAR-10H pixels": cifar10h_pixels,
    "CIFAR-10N": cifar10n,
}
MADE: dict[str, Callable[[np.random.Generator], tuple[Part, np.ndarray]]] = {
    "blurred digits": blurred_digits,
    "teacher": teacher,
    "moons": moons,
    "crowd": crowd,
}


def load(name: str, folder: Path, seed: int, order: int = 0) -> tuple[Part, Part, np.ndarray]:
    """Rows to train on in random order, rows to test on, and the groups of the first.

    A quarter of the groups, 5,000 rows at most, is the test; the seed decides which. For each
    `order` the other rows come in another one, beside the same test. Where features are many, all
    rows but the test, without their labels, decide the principal components that stand for them.
    (Components of a few hundred training rows would fit those rows and no others: cross-fitted
    errors would come out too large, for every method.)
    """
    rng = np.random.default_rng([seed, 7])
    rows, groups = MADE[name](rng) if name in MADE else REAL[name](folder)
    units, unit = np.unique(groups, return_inverse=True)
    place = rng.permutation(len(units))[unit]
    testing = rng.permutation(np.flatnonzero(place < len(units) // 4))
    training = rng.permutation(np.flatnonzero(place >= len(units) // 4))
    features = rows.features
    if features.shape[1] > NUM_COMPONENTS:
        features = (features - features[training].mean(axis=0, dtype=np.float64)).astype(np.float64)
        values, vectors = np.linalg.eigh(features[training].T @ features[training])
        features = features @ vectors[:, np.argsort(values)[::-1][:NUM_COMPONENTS]]
    rows = Part(features, rows.counts)
    if order > 0:
        training = np.random.default_rng([order, 7]).permutation(training)
    return rows.take(training), rows.take(testing[:5000]), groups[training]
