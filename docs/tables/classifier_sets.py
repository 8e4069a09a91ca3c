"""The data sets of docs/classifiers.md: features, and how often each label was given.

Three have real annotators (CEBaB, CIFAR-10H, CIFAR-10N: frozen features, in the folder that the
user names). Three are made from what scikit-learn has at hand; their makers were written down
before any classifier saw them, and no default was chosen on them. Annotators there see more than
the classifier does, so that there is something not to know.

Axes: rows (n), features (d), classes (K).
"""

from __future__ import annotations

import importlib
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


def cebab(folder: Path) -> tuple[Part, np.ndarray]:
    """Restaurant reviews, five ratings each; edits of one review are one group."""
    reviews = importlib.import_module("annotators.reviews").load_reviews(folder)
    counts = np.stack([(reviews.ratings == stars).sum(axis=1) for stars in "12345"], axis=1)
    return Part(np.load(folder / "cebab-features.npy"), counts), np.asarray(reviews.groups)


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
    "CIFAR-10H": cifar10h,
    "CIFAR-10N": cifar10n,
}
MADE: dict[str, Callable[[np.random.Generator], tuple[Part, np.ndarray]]] = {
    "blurred digits": blurred_digits,
    "teacher": teacher,
    "moons": moons,
}


def load(name: str, folder: Path, seed: int) -> tuple[Part, Part, np.ndarray]:
    """Rows to train on in random order, rows to test on, and the groups of the first.

    A quarter of the groups, 5,000 rows at most, is the test. Where features are many, all rows but
    the test, without their labels, decide the principal components that stand for them. (Components
    of a few hundred training rows would fit those rows and no others: cross-fitted errors would
    come out too large, for every method.)
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
    return rows.take(training), rows.take(testing[:5000]), groups[training]
