"""A random forest of one event, on scikit-learn: the mean of its trees, and the variance of them.

Not among the paper's rivals, but what many would try first on a table. Trees are grown on
bootstrapped rows towards the share of responses that are 1; the smallest leaf is chosen by the
squared error on the rows that a tree has not seen, so that no row is held out.

Axes: rows (n), then columns of the table or responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from secondguess.theory.records import Prediction

_FEWEST_TREES = 20


@dataclass(frozen=True, kw_only=True)
class ForestConfig:
    """Size of the forest, and the leaves to choose from.

    >>> ForestConfig().num_trees
    50

    Attributes:
        num_trees: at least 20, so that every row is out of the bag of some of them.
        leaf_sizes: fewest rows of a leaf; the best of them is chosen out of bag.
        seed: of bootstrap and trees.
    """

    num_trees: int = 50
    leaf_sizes: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class FittedForest:
    """A forest, and how its leaves were chosen.

    Attributes:
        forest: the fitted one.
        out_of_bag_errors: by the smallest leaf, the mean squared error out of bag.
    """

    forest: RandomForestRegressor
    out_of_bag_errors: Mapping[int, float]


def fit(inputs: Tensor, responses: Tensor, config: ForestConfig | None = None) -> FittedForest:
    """Grow one forest per leaf size and keep the best.

    >>> import torch
    >>> inputs = torch.linspace(0, 1, 200)[:, None]
    >>> found = fit(inputs, (inputs > 0.5).long().expand(-1, 2), ForestConfig(leaf_sizes=(1, 50)))
    >>> min(found.out_of_bag_errors, key=found.out_of_bag_errors.get)
    1

    Args:
        inputs: `(n, columns)`.
        responses: `(n, k)`, 0 or 1.
        config: size and leaves.
    """
    config = config or ForestConfig()
    if config.num_trees < _FEWEST_TREES:
        raise ValueError(
            f"num_trees is {config.num_trees}; expected {_FEWEST_TREES} or more, so that every row "
            f"is out of the bag of some of them."
        )
    table, shares = inputs.numpy(), responses.double().mean(dim=1).numpy()
    errors: dict[int, float] = {}
    best: RandomForestRegressor | None = None
    for leaf_size in config.leaf_sizes:
        forest = RandomForestRegressor(
            config.num_trees,
            min_samples_leaf=leaf_size,
            oob_score=True,
            random_state=config.seed,
        ).fit(table, shares)
        errors[leaf_size] = float(np.mean((forest.oob_prediction_ - shares) ** 2))
        if best is None or errors[leaf_size] == min(errors.values()):
            best = forest
    assert best is not None
    return FittedForest(best, errors)


def predict(fitted: FittedForest, inputs: Tensor) -> Prediction:
    """The mean of the trees and their variance with n - 1, for both classes.

    >>> import torch
    >>> inputs = torch.linspace(0, 1, 200)[:, None]
    >>> fitted = fit(inputs, (inputs > 0.5).long().expand(-1, 2))
    >>> predict(fitted, inputs[[0, -1]]).probs
    array([[1., 0.],
           [0., 1.]])
    """
    trees = np.stack([tree.predict(inputs.numpy()) for tree in fitted.forest.estimators_])
    mean, variance = trees.mean(axis=0), trees.var(axis=0, ddof=1)
    return Prediction(np.stack([1 - mean, mean], axis=1), np.stack([variance] * 2, axis=1))
