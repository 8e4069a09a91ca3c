"""Logistic regression on shares of annotators: the linear start of a pair model.

It is convex, fast, and hard to beat where rows are few or features good. What is built on its
log-odds must not have been seen by it: `cross_fit_logistic` gives each row the log-odds of a
regression that was fitted without it, and the regression of all rows for new inputs.

Axes: rows (n), features (d), classes (K).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.splitting import is_clear

SPREAD_POWERS = (0.5, 1.0)
"""How much of its spread a standardised column may be given back; 1 is the column as it came."""
PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)
"""Ridge penalties to choose from and between, the strongest first; inputs are standardised."""
MAX_ITERATIONS = 100
_TOLERANCE = 1e-7
NUM_SEARCH_FOLDS = 5
SEARCH_ON_ALL = 20_000
"""With more rows than this, one fold chooses the penalty instead of all of them."""


@dataclass(frozen=True)
class Logistic:
    """Log-odds `inputs @ weight + bias`, up to a constant per row.

    Attributes:
        weight: `(d, K)`.
        bias: `(K,)`.
    """

    weight: FloatArray
    bias: FloatArray

    def __call__(self, inputs: FloatArray) -> FloatArray:
        """Log-odds of all rows, `(n, K)`."""
        return inputs @ self.weight + self.bias


@dataclass(frozen=True)
class CrossFitted:
    """A regression of all rows, and what regressions without a row said about it.

    Attributes:
        model: fitted to all rows.
        logits: `(n, K)`, out of fold.
        penalty: the one chosen, on the squared norm of the weights of scaled columns.
        scales: `(d,)`, what the columns were multiplied by for that.
    """

    model: Logistic
    logits: FloatArray
    penalty: float
    scales: FloatArray


def fit_logistic(
    inputs: FloatArray,
    shares: FloatArray,
    penalty: float,
    start: Logistic | None = None,
    weights: FloatArray | None = None,
) -> Logistic:
    """The weights that minimise the cross-entropy with shares plus half a ridge penalty.

    >>> inputs = np.array([[-1.0], [1.0]])
    >>> fitted = fit_logistic(inputs, np.array([[0.8, 0.2], [0.2, 0.8]]), 1e-6)
    >>> log_odds = fitted(inputs)
    >>> (log_odds[1, 1] - log_odds[1, 0]).round(2)  # log(0.8 / 0.2)
    np.float64(1.39)

    Args:
        inputs: `(n, d)`, standardised.
        shares: `(n, K)`, rows summing to one.
        penalty: weight of the squared norm of the weights; the bias is free.
        start: where to begin.
        weights: `(n,)`, of the rows in the mean; equal by default.
    """
    num_features, num_classes = inputs.shape[1], shares.shape[1]
    # float32 halves the time of the two products, and the last digits are not needed.
    x, wanted = inputs.astype(np.float32), shares.astype(np.float32)
    x_transposed = np.ascontiguousarray(x.T) if len(x) < 10_000 else x.T
    part = np.full(len(x), 1 / len(x)) if weights is None else weights / weights.sum()
    part = part[:, None].astype(np.float32)

    def loss_and_slope(flat: FloatArray) -> tuple[float, FloatArray]:
        weight = flat[:-num_classes].reshape(num_features, num_classes).astype(np.float32)
        log_probs = x @ weight + flat[-num_classes:].astype(np.float32)
        # By hand: most regressions are small, and SciPy's checks would take half of their time.
        log_probs -= log_probs.max(axis=1, keepdims=True)
        log_probs -= np.log(np.exp(log_probs).sum(axis=1, keepdims=True))
        excess = (np.exp(log_probs) - wanted) * part
        loss = -np.einsum("nk,nk->", wanted * part, log_probs, dtype=np.float64)
        loss += 0.5 * penalty * np.einsum("dk,dk->", weight, weight, dtype=np.float64)
        slope = x_transposed @ excess + penalty * weight
        return loss, np.concatenate([slope.ravel(), excess.sum(axis=0)]).astype(np.float64)

    flat = np.zeros((num_features + 1) * num_classes)
    if start is not None:
        flat = np.concatenate([start.weight.ravel(), start.bias])
    options = {"maxiter": MAX_ITERATIONS, "ftol": _TOLERANCE}
    found = minimize(loss_and_slope, flat, jac=True, method="L-BFGS-B", options=options).x
    # As float32, so that a network that holds them says the same to the last digit.
    found = found.astype(np.float32).astype(np.float64)
    return Logistic(
        found[:-num_classes].reshape(num_features, num_classes), found[-num_classes:].copy()
    )


def cross_fit_logistic(
    inputs: FloatArray,
    counts: IntArray,
    folds: IntArray,
    weights: FloatArray | None = None,
    *,
    spreads: FloatArray | None = None,
    groups: NDArray[Any] | None = None,
) -> CrossFitted:
    """Out-of-fold log-odds under the ridge penalty that predicts other folds best.

    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.normal(size=(200, 2))
    >>> counts = rng.multinomial(3, [0.5, 0.3, 0.2], size=200)
    >>> cross_fit_logistic(inputs, counts, np.arange(200) % 20).logits.shape
    (200, 3)

    A regression without a fifth of the rows errs more than that of all rows, by up to a tenth where
    features are many, and everything that is learned from its log-odds would take those errors for
    the regression's own. So the penalty is chosen on `NUM_SEARCH_FOLDS` large folds, and the
    log-odds come from as many folds as there are, each within one of the large ones, whose
    regression it starts from: that has not seen the rows either.

    Columns of embeddings, principal components and pixels come on one scale, and those that spread
    least are mostly noise: standardised, they would weigh as much as the others. How much of their
    spread is given back to the columns is chosen on the large folds, too (`SPREAD_POWERS`); all
    stay standardised unless that is clearly worse.

    Args:
        inputs: `(n, d)`, standardised.
        counts: `(n, K)` annotator counts.
        folds: `(n,)`, the fold of each row, from 0; those that leave the same remainder when
            divided by `NUM_SEARCH_FOLDS` are one large fold.
        weights: `(n,)`, of the rows; one each by default.
        spreads: `(d,)`, standard deviations of the columns before they were standardised; by
            default, or where they are all alike, the columns stay as they are.
        groups: `(n,)` labels; what rows of one group say counts once.
    """
    weights = np.ones(len(counts)) if weights is None else weights
    shares = _smoothed_shares(counts, weights.sum())
    large = folds % NUM_SEARCH_FOLDS
    best = _search(inputs, shares, large, weights)
    scales = np.ones(inputs.shape[1])
    if spreads is not None and np.ptp(spreads) > 0:
        relative = spreads / np.sqrt(np.mean(spreads**2))
        first = max(0, best.nearest - 2)
        for tried in (relative**power for power in SPREAD_POWERS):
            found = _search(inputs * tried, shares, large, weights, first)
            gain, held_out = best.losses - found.losses, found.held_out
            keys = None if groups is None else groups[held_out]
            if is_clear(gain[held_out], weights[held_out], keys):
                best, scales = found, tried
    # What is best for four fifths of the rows is so much too strong for all of them.
    penalty = best.penalty * (1 - 1 / NUM_SEARCH_FOLDS)
    return _out_of_fold(inputs, shares, folds, penalty, scales, weights, best.models)


def cross_fit_again(
    inputs: FloatArray,
    counts: IntArray,
    folds: IntArray,
    like: CrossFitted,
    weights: FloatArray | None = None,
) -> CrossFitted:
    """As `cross_fit_logistic`, under the penalty and on the scales of another one."""
    weights = np.ones(len(counts)) if weights is None else weights
    shares = _smoothed_shares(counts, weights.sum())
    starts: list[Logistic | None] = [None] * NUM_SEARCH_FOLDS
    return _out_of_fold(inputs, shares, folds, like.penalty, like.scales, weights, starts)


class _Searched(NamedTuple):
    """The best penalty of a search.

    Attributes:
        penalty: between the values of the grid.
        nearest: place in the grid of the value next to it.
        losses: `(n,)`, of the rows that were held out under that value.
        held_out: `(n,)`, which rows these are.
        models: by fold, under that value; None for folds that were not searched.
    """

    penalty: float
    nearest: int
    losses: FloatArray
    held_out: NDArray[np.bool_]
    models: Sequence[Logistic | None]


def _search(
    inputs: FloatArray,
    shares: FloatArray,
    large: IntArray,
    weights: FloatArray,
    first: int = 0,
) -> _Searched:
    """The penalty that predicts large folds best, from the `first` of the grid on."""
    searched = range(int(large.max()) + 1 if len(shares) <= SEARCH_ON_ALL else 1)
    held_out = large <= searched[-1]
    models: list[Logistic | None] = [None] * NUM_SEARCH_FOLDS
    totals, best = [], None
    for index, penalty in enumerate(PENALTIES[first:], first):
        models, losses = list(models), np.zeros(len(shares))
        for fold in searched:
            held = large == fold
            models[fold] = model = fit_logistic(
                inputs[~held], shares[~held], penalty, models[fold], weights[~held]
            )
            losses[held] = -(shares[held] * log_softmax(model(inputs[held]), axis=1)).sum(axis=1)
        totals.append(losses @ weights)
        if totals[-1] == min(totals):
            best = _Searched(penalty, index, losses, held_out, models)
        elif totals[-1] > 1.005 * min(totals):  # weaker penalties will only overfit more
            break
    assert best is not None
    return best._replace(penalty=_lowest_between(PENALTIES[first:], totals))


def _out_of_fold(
    inputs: FloatArray,
    shares: FloatArray,
    folds: IntArray,
    penalty: float,
    scales: FloatArray,
    weights: FloatArray,
    starts: Sequence[Logistic | None],
) -> CrossFitted:
    scaled, logits = inputs * scales, np.empty(shares.shape)
    for fold in np.unique(folds):
        held = folds == fold
        start = starts[fold % NUM_SEARCH_FOLDS]
        fitted = fit_logistic(scaled[~held], shares[~held], penalty, start, weights[~held])
        logits[held] = fitted(scaled[held])
    model = fit_logistic(scaled, shares, penalty, starts[0], weights)
    return CrossFitted(_on_inputs(model, scales), logits, penalty, scales)


def _on_inputs(model: Logistic, scales: FloatArray) -> Logistic:
    """The same regression of columns that are not scaled.

    In float32, so that a network that holds its weights says the same to the last digit.
    """
    weight = model.weight * scales[:, None]
    return Logistic(weight.astype(np.float32).astype(np.float64), model.bias)


def _smoothed_shares(counts: IntArray, total: float) -> FloatArray:
    """One label, spread over all classes and rows: a class that a fold lacks stays possible."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    return (shares + 1 / (total * counts.shape[1])) / (1 + 1 / total)


def _lowest_between(penalties: Sequence[float], losses: Sequence[float]) -> float:
    """Where a parabola through the lowest loss and its neighbours is lowest; a search in logs.

    >>> round(_lowest_between((1.0, 0.1, 0.01), [3.0, 2.0, 3.0]), 6)
    0.1
    >>> _lowest_between((1.0, 0.1), [2.0, 3.0])  # at the end
    1.0
    """
    best = int(np.argmin(losses))
    if not 0 < best < len(losses) - 1:
        return penalties[best]
    near = slice(best - 1, best + 2)
    logs = np.log(penalties[near])
    square, slope, _ = np.polyfit(logs, losses[near], 2)
    if square <= 0:
        return penalties[best]
    return float(np.exp(np.clip(-slope / (2 * square), logs[-1], logs[0])))
