"""Fitting a pair model by itself: a logistic regression, a head on it, a network if it helps.

Up to `MOST_CROSS_FITTED` rows everything is cross-fitted: each row is predicted by models that did
not see it, which decides whether the network is used, how long it is trained and what the
recalibration learns, and then all rows are fitted once more; none is set aside. With more rows, or
where validation rows are given, those decide.

Axes: rows (n), features (d), classes (K).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.fitting import (
    FitSettings,
    FittedModel,
    Rows,
    hold_out,
    train_network,
)
from secondguess.classification.heads import HeadName, PairModel
from secondguess.classification.held_out import (
    best_share,
    is_likelier,
    log_probs_of,
    predict_rows,
    weights_of,
    with_share,
)
from secondguess.classification.logistic import (
    NUM_SEARCH_FOLDS,
    CrossFitted,
    cross_fit_again,
    cross_fit_logistic,
    fit_logistic,
)
from secondguess.classification.splitting import folds_of
from secondguess.classification.stacking import StackedBackbone, fit_head, linear_model, with_body
from secondguess.models.residual_mlp import ResidualMLP
from secondguess.theory.records import Prediction
from secondguess.training.loop import TrainingHistory

MOST_CROSS_FITTED = 10_000
"""With more rows than this, a tenth of them decides, instead of all in turn."""
MOST_HELD_OUT = 5000
MIN_NETWORK_ROWS = 400
"""With fewer rows there is no network: it could not be told from chance whether it helps."""
MIN_MIXTURE_ROWS, MOST_MIXTURE_CLASSES = 2000, 10
"""Where a mixture head, with its many weights, is tried beside one correlation for all classes."""
NUM_LOGIT_FOLDS, MOST_MANY_FOLDS = 20, 5000
"""Folds of the log-odds, and up to how many rows; heads and networks have fewer, larger ones."""
_NO_HISTORY = TrainingHistory(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0), 0)


def fit_stacked(
    rows: Rows, settings: FitSettings, *, validation: Rows | None = None
) -> FittedModel:
    """Fit the regression, the head and, where held-out likelihood says so, the network.

    Args:
        rows: standardised inputs `(n, d)` and their responses.
        settings: what to fit.
        validation: rows that decide, instead of cross-fitting.
    """
    folds = regression_folds(rows, settings.seed)
    base = cross_fit_rows(rows, folds)
    rows = rows._replace(inputs=_with_logits(rows.inputs, base.logits))
    if validation is None and len(rows.data) > MOST_CROSS_FITTED:
        # The regression is of all rows: those that are held out have log-odds that did not see
        # them, as all others have.
        fraction = min(0.1, MOST_HELD_OUT / len(rows.data))
        rows, validation = hold_out(rows, fraction, seed=settings.seed)
    if validation is not None:
        return _fit_on_split(base, rows, validation, settings)
    return _fit_in_folds(base, rows, folds, settings)


def _fit_on_split(
    base: CrossFitted, rows: Rows, validation: Rows, settings: FitSettings
) -> FittedModel:
    candidates = [_linear(base, rows, settings, head) for head in _heads(rows, settings)]
    log_probs = [log_probs_of(other, validation) for other in candidates]
    likeliest = int(np.argmax([np.average(each, weights=validation.weights) for each in log_probs]))
    history = _NO_HISTORY
    free = candidates[likeliest]
    model = with_share(free, best_share([free], [validation]))
    if settings.network is not None and len(rows.data) >= MIN_NETWORK_ROWS:
        network, trained = _add_network(free, rows, settings, "network", validation)
        network = with_share(network, best_share([network], [validation]))
        if is_likelier([network], [model], [validation]):
            model, history = network, trained
    found = predict_rows(model, validation)
    return FittedModel(
        model, history, found, validation.data, validation.groups, validation.weights
    )


def _fit_in_folds(
    base: CrossFitted, rows: Rows, folds: IntArray, settings: FitSettings
) -> FittedModel:
    parts = _nested_parts(base, rows, folds)
    if not parts:
        model = _linear(base, rows, settings, _heads(rows, settings)[0])
        return FittedModel(with_share(model, 0.0), _NO_HISTORY)
    head, free = _choose_head(rows, parts, settings)
    free += [_linear(part.base, part.rows, settings, head) for part in parts[len(free) :]]
    held = [part.held for part in parts]
    share, steps = best_share(free, held), 0
    models = [with_share(model, share) for model in free]
    if settings.network is not None and len(rows.data) >= MIN_NETWORK_ROWS:
        networks, network_share, steps = _networks_in_folds(free, models, parts, settings)
        if steps:
            models, share = networks, network_share
    held_out = [predict_rows(model, part) for model, part in zip(models, held, strict=True)]
    order = np.argsort(np.concatenate([part.places for part in parts]))
    prediction = Prediction(
        np.concatenate([part.probs for part in held_out])[order],
        np.concatenate([part.variance for part in held_out])[order],
    )
    model, history = _linear(base, rows, settings, head), _NO_HISTORY
    if steps:
        model, history = _add_network(model, rows, settings, "all-rows", num_steps=steps)
    model = with_share(model, share)
    return FittedModel(model, history, prediction, rows.data, rows.groups, rows.weights)


class _Part(NamedTuple):
    """One large fold held out, and all that is fitted without it.

    Attributes:
        base: the regression of the other rows, cross-fitted once more among them.
        rows: the other rows, with those log-odds.
        held: the rows that are held out, with the log-odds of that regression.
        places: their row numbers.
    """

    base: CrossFitted
    rows: Rows
    held: Rows
    places: IntArray


def _nested_parts(base: CrossFitted, rows: Rows, folds: IntArray) -> list[_Part]:
    """Large folds whose responses nothing has seen that they are predicted with.

    The log-odds of all rows come from regressions that saw most of a fold's responses. A head that
    learns from them leans away from these responses: on the fold it looks worse than it is, and
    its variance too small. So each fold is left out from the regressions on.
    """
    num_classes, large = base.logits.shape[1], folds % NUM_SEARCH_FOLDS
    features = rows.inputs[:, :-num_classes]
    parts = []
    for fold in np.unique(large) if large.max() > 0 else ():
        train, held = np.flatnonzero(large != fold), np.flatnonzero(large == fold)
        some, others = rows.take(train), rows.take(held)
        inner = cross_fit_again(
            features[train].numpy(), some.data.counts(), folds[train], base, some.weights
        )
        logits = inner.model(features[held].numpy())
        parts.append(
            _Part(
                inner,
                some._replace(inputs=_with_logits(features[train], inner.logits)),
                others._replace(inputs=_with_logits(features[held], logits)),
                held,
            )
        )
    return parts


def _with_logits(features: Tensor, logits: FloatArray) -> Tensor:
    return torch.cat([features, torch.from_numpy(logits)], 1)


def _networks_in_folds(
    free: list[PairModel],
    linear: list[PairModel],
    parts: list[_Part],
    settings: FitSettings,
) -> tuple[list[PairModel], float, int]:
    """Networks grown from the free models, their share, and their mean number of steps.

    The number of steps is 0 where networks are of no use.
    """
    networks, steps, settled, share = [], [], [], 1.0
    held = [part.held for part in parts]
    for fold, (model, part) in enumerate(zip(free, parts, strict=True)):
        network, history = _add_network(model, part.rows, settings, f"fold-{fold}", part.held)
        networks.append(network)
        steps.append(history.best_step)
        if fold not in (1, len(parts) - 1):  # two of five are enough to see that they are of no use
            continue
        some = held[: len(networks)]
        share = best_share(networks, some)
        settled = [with_share(network, share) for network in networks]
        if not is_likelier(settled, linear[: len(networks)], some):
            return settled, share, 0
    # All rows are a quarter more than four fifths of them, and take as much longer to overfit.
    return settled, share, round(1.25 * float(np.mean(steps)))


def _heads(rows: Rows, settings: FitSettings) -> list[HeadName]:
    """The heads to choose from, the one with the fewest weights first."""
    if settings.head is not None:
        return [settings.head]
    if settings.loss == "snapshot":  # a law of p(.|x), which only a mixture can tell
        return ["mixture"]
    many = len(rows.data) >= MIN_MIXTURE_ROWS and rows.data.num_classes <= MOST_MIXTURE_CLASSES
    return ["correlation", "mixture"] if many else ["correlation"]


def _choose_head(
    rows: Rows, parts: list[_Part], settings: FitSettings
) -> tuple[HeadName, list[PairModel]]:
    """The head that makes the first two parts likelier, and its models for them."""
    heads, first = _heads(rows, settings), parts[:2]
    if len(heads) == 1:
        return heads[0], []
    models = {
        head: [_linear(part.base, part.rows, settings, head) for part in first] for head in heads
    }
    held = [part.held for part in first]

    def log_prob(head: HeadName) -> float:
        found = zip(models[head], held, strict=True)
        log_probs = np.concatenate([log_probs_of(model, part) for model, part in found])
        return float(weights_of(held) @ log_probs)

    chosen = max(heads, key=log_prob)
    return chosen, models[chosen]


def _linear(base: CrossFitted, rows: Rows, settings: FitSettings, head: HeadName) -> PairModel:
    logits = rows.inputs[:, -base.logits.shape[1] :].numpy()
    model = linear_model(base.model, logits, head, settings.num_components, rows.weights)
    fit_head(
        model,
        rows,
        eigenvalue_weight=settings.eigenvalue_weight,
        snapshot=settings.loss == "snapshot",
        seed=settings.seed,
    )
    return model


def _add_network(
    model: PairModel,
    rows: Rows,
    settings: FitSettings,
    name: str,
    validation: Rows | None = None,
    num_steps: int | None = None,
) -> tuple[PairModel, TrainingHistory]:
    network, backbone = settings.network, model.backbone
    assert network is not None
    assert isinstance(backbone, StackedBackbone)
    body = ResidualMLP(
        backbone.num_inputs + backbone.num_features,
        num_blocks=network.num_blocks,
        width=network.width,
        hidden_width=4 * network.width,
        generator=torch.Generator().manual_seed(settings.seed),
    )
    grown = with_body(model, body)
    history = train_network(
        grown, rows, settings, validation=validation, num_steps=num_steps, part=name
    )
    return grown.cpu(), history


def regression_folds(rows: Rows, seed: int) -> IntArray:
    """The fold of each row: many small ones where rows are few, within `NUM_SEARCH_FOLDS`."""
    num_folds = NUM_LOGIT_FOLDS if len(rows.data) <= MOST_MANY_FOLDS else NUM_SEARCH_FOLDS
    rng = np.random.default_rng(seed)
    return folds_of(len(rows.data), num_folds, rng=rng, groups=rows.groups)


def cross_fit_rows(rows: Rows, folds: IntArray) -> CrossFitted:
    """The regression that everything else is built on."""
    inputs, counts = rows.inputs.numpy(), rows.data.counts()
    if folds.max() == 0:  # too few rows to leave some out: hardly more than the class shares
        shares = counts / counts.sum(axis=1, keepdims=True)
        model = fit_logistic(inputs, shares, 1.0, weights=rows.weights)
        return CrossFitted(model, model(inputs), 1.0, np.ones(inputs.shape[1]))
    return cross_fit_logistic(
        inputs, counts, folds, rows.weights, spreads=rows.spreads, groups=rows.groups
    )
