"""Fitting a pair model by itself: a logistic regression, a head on it, a network if it helps.

Up to `MOST_CROSS_FITTED` rows everything is cross-fitted: each row is predicted by models that did
not see it, which decides whether the network is used, how long it is trained and what the
recalibration learns, and then all rows are fitted once more; none is set aside. With more rows, or
where validation rows are given, those decide.

Axes: rows (n), features (d), classes (K).
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from scipy.special import log_softmax

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.fitting import (
    FitSettings,
    FittedModel,
    Rows,
    hold_out,
    train_network,
)
from secondguess.classification.heads import HeadName, PairModel
from secondguess.classification.joint import PairJoint
from secondguess.classification.logistic import (
    NUM_SEARCH_FOLDS,
    CrossFitted,
    cross_fit_again,
    cross_fit_logistic,
    fit_logistic,
)
from secondguess.classification.offsets import set_own_share, takes_share
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import joints_of, row_log_probs
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
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How much of what a head adds to the regression's log-odds may be used."""
NUM_LOGIT_FOLDS, MOST_MANY_FOLDS = 20, 5000
"""Folds of the log-odds, and up to how many rows; heads and networks have fewer, larger ones."""
_LEAST_LOG = -30.0
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
    rows = rows._replace(inputs=torch.cat([rows.inputs, torch.from_numpy(base.logits)], 1))
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
    log_probs = [_log_probs(other, validation) for other in candidates]
    likeliest = int(np.argmax([np.average(each, weights=validation.weights) for each in log_probs]))
    history = _NO_HISTORY
    free = candidates[likeliest]
    model = _with_share(free, _best_share([free], [validation]))
    if settings.network is not None and len(rows.data) >= MIN_NETWORK_ROWS:
        network, trained = _add_network(free, rows, settings, "network", validation)
        network = _with_share(network, _best_share([network], [validation]))
        if _likelier([network], [model], [validation]):
            model, history = network, trained
    found = _predict(model, validation)
    return FittedModel(
        model, history, found, validation.data, validation.groups, validation.weights
    )


def _fit_in_folds(
    base: CrossFitted, rows: Rows, folds: IntArray, settings: FitSettings
) -> FittedModel:
    large = folds % NUM_SEARCH_FOLDS
    parts = [(np.flatnonzero(large != f), np.flatnonzero(large == f)) for f in np.unique(large)]
    if len(parts) < 2:
        model = _linear(base, rows, settings, _heads(rows, settings)[0])
        return FittedModel(_with_share(model, 0.0), _NO_HISTORY)
    head, free = _choose_head(base, rows, parts, settings)
    free += [_linear(base, rows.take(t), settings, head) for t, _ in parts[len(free) :]]
    held = [rows.take(h) for _, h in parts]
    share, steps = _nested_share(base, rows, folds, parts, settings, head), 0
    models = [_with_share(model, share) for model in free]
    if settings.network is not None and len(rows.data) >= MIN_NETWORK_ROWS:
        networks, steps = _networks_in_folds(free, models, rows, parts, settings)
        if steps:
            share = max(share, _best_share(networks, held))
            models = [_with_share(model, share) for model in networks]
    held_out = [_predict(model, part) for model, part in zip(models, held, strict=True)]
    order = np.argsort(np.concatenate([h for _, h in parts]))
    prediction = Prediction(
        np.concatenate([part.probs for part in held_out])[order],
        np.concatenate([part.variance for part in held_out])[order],
    )
    model, history = _linear(base, rows, settings, head), _NO_HISTORY
    if steps:
        model, history = _add_network(model, rows, settings, "all-rows", num_steps=steps)
    model = _with_share(model, share)
    if not steps:
        prediction = _mean(prediction, _predict(model, rows))
    return FittedModel(model, history, prediction, rows.data, rows.groups, rows.weights)


def _networks_in_folds(
    free: list[PairModel],
    linear: list[PairModel],
    rows: Rows,
    parts: list[tuple[IntArray, IntArray]],
    settings: FitSettings,
) -> tuple[list[PairModel], int]:
    """Networks grown from the free models, and their mean number of steps; 0 if of no use."""
    networks, steps = [], []
    held = [rows.take(part) for _, part in parts]

    def is_of_use() -> bool:
        some = held[: len(networks)]
        share = _best_share(networks, some)
        settled = [_with_share(network, share) for network in networks]
        return _likelier(settled, linear[: len(networks)], some)

    for fold, (model, (train, _)) in enumerate(zip(free, parts, strict=True)):
        network, history = _add_network(
            model, rows.take(train), settings, f"fold-{fold}", held[fold]
        )
        networks.append(network)
        steps.append(history.best_step)
        if fold == 1 and not is_of_use():  # two of five are enough to see that
            return networks, 0
    if not is_of_use():
        return networks, 0
    # All rows are a quarter more than four fifths of them, and take as much longer to overfit.
    return networks, round(1.25 * float(np.mean(steps)))


def _heads(rows: Rows, settings: FitSettings) -> list[HeadName]:
    """The heads to choose from, the one with the fewest weights first."""
    if settings.head is not None:
        return [settings.head]
    if settings.loss == "snapshot":  # a law of p(.|x), which only a mixture can tell
        return ["mixture"]
    many = len(rows.data) >= MIN_MIXTURE_ROWS and rows.data.num_classes <= MOST_MIXTURE_CLASSES
    return ["correlation", "mixture"] if many else ["correlation"]


def _choose_head(
    base: CrossFitted, rows: Rows, parts: list[tuple[IntArray, IntArray]], settings: FitSettings
) -> tuple[HeadName, list[PairModel]]:
    """The head that makes the first two parts likelier, and its models for them."""
    heads = _heads(rows, settings)
    if len(heads) == 1:
        return heads[0], []
    models = {
        head: [_linear(base, rows.take(train), settings, head) for train, _ in parts[:2]]
        for head in heads
    }
    log_probs = {
        head: np.concatenate(
            [
                _log_probs(model, rows.take(held))
                for model, (_, held) in zip(models[head], parts[:2], strict=True)
            ]
        )
        for head in heads
    }
    held = rows.take(np.concatenate([held for _, held in parts[:2]]))
    chosen = max(heads, key=lambda head: np.average(log_probs[head], weights=held.weights))
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
        return CrossFitted(model, model(inputs), 1.0)
    return cross_fit_logistic(inputs, counts, folds, rows.weights)


def _with_share(model: PairModel, share: float) -> PairModel:
    """A copy whose marginal leaves the regression's by this share of the way.

    How responses depend on each other it learned beside a marginal that was free to calibrate
    itself. Fitted beside a marginal that is too flat, the dependence would make up for it, and the
    variance come out too large.
    """
    model = copy.deepcopy(model)
    set_own_share(model.head, share)
    return model


def _best_share(models: list[PairModel], parts: list[Rows]) -> float:
    """The share of `SHARES` that predicts the responses to held-out parts best, if clearly.

    What a head adds to the regression's log-odds is mostly a gain, and where rows are few sometimes
    a loss: one number, chosen on rows that it was not fitted to, tells how much of it to use.
    """
    if not takes_share(models[0].head):
        return 1.0
    log_probs = np.concatenate(
        [_log_probs_by_share(model, part) for model, part in zip(models, parts, strict=True)]
    )
    best = int(np.argmax(_weights(parts) @ log_probs))
    return SHARES[best] if _is_clear(log_probs[:, best] - log_probs[:, 0], parts) else SHARES[0]


def _log_probs_by_share(model: PairModel, rows: Rows) -> FloatArray:
    """Mean log-probability of each row's responses, one by one, under each share: `(n, S)`."""
    counts = rows.data.counts()
    shares = counts / counts.sum(axis=1, keepdims=True)
    regression = _read(_with_share(model, 0.0), rows, _log_marginal)
    own = _read(model, rows, _log_marginal) - regression
    marginals = (log_softmax(regression + share * own, axis=1) for share in SHARES)
    return np.stack([(shares * each).sum(axis=1) for each in marginals], axis=1)


def _nested_share(
    base: CrossFitted,
    rows: Rows,
    folds: IntArray,
    parts: list[tuple[IntArray, IntArray]],
    settings: FitSettings,
    head: HeadName,
) -> float:
    """`_best_share` of linear models that have nothing at all of a part's responses.

    The log-odds of the other rows come from regressions that saw the part's responses. A head that
    learns from them leans away from these responses, and where rows are few its worth is
    underrated by more than it is.
    """
    num_classes = base.logits.shape[1]
    models, held_out = [], []
    for train, held in parts:
        some, others = rows.take(train), rows.take(held)
        inputs, other_inputs = some.inputs[:, :-num_classes], others.inputs[:, :-num_classes]
        inner = cross_fit_again(
            inputs.numpy(), some.data.counts(), folds[train], base.penalty, some.weights
        )
        logits = inner.model(other_inputs.numpy())
        some = some._replace(inputs=torch.cat([inputs, torch.from_numpy(inner.logits)], 1))
        models.append(_linear(inner, some, settings, head))
        held_out.append(
            others._replace(inputs=torch.cat([other_inputs, torch.from_numpy(logits)], 1))
        )
    return _best_share(models, held_out)


def _log_marginal(joint: PairJoint, _: PairData) -> FloatArray:
    return joint.log_marginal.double().clamp_min(_LEAST_LOG).numpy()


def _likelier(models: list[PairModel], others: list[PairModel], parts: list[Rows]) -> bool:
    """Whether held-out responses are clearly likelier than others make them.

    Args:
        models: one for each part.
        others: what they are compared with, one for each part.
        parts: rows that the models of the same place did not see.
    """
    pairs = zip(models, others, parts, strict=True)
    gain = np.concatenate([_log_probs(m, part) - _log_probs(o, part) for m, o, part in pairs])
    return _is_clear(gain, parts)


def _is_clear(gain: FloatArray, parts: list[Rows]) -> bool:
    """Whether the mean gain of the rows of all parts is above its standard error.

    Rows of one group are no independent witnesses: the error is one over groups.
    """
    weights = _weights(parts)
    excess = weights * (gain - np.average(gain, weights=weights))
    groups = [part.groups for part in parts if part.groups is not None]
    if groups:
        excess = np.bincount(np.unique(np.concatenate(groups), return_inverse=True)[1], excess)
    return bool(gain @ weights > np.sqrt(np.square(excess).sum()))


def _weights(parts: list[Rows]) -> FloatArray:
    every = [np.ones(len(part.data)) if part.weights is None else part.weights for part in parts]
    return np.concatenate(every)


def _predict(model: PairModel, rows: Rows) -> Prediction:
    both = _read(model, rows, lambda joint, _: np.stack(_moments(joint.prediction()), axis=1))
    return Prediction(both[:, 0], both[:, 1])


def _log_probs(model: PairModel, rows: Rows) -> FloatArray:
    return _read(model, rows, row_log_probs)


def _read(model: PairModel, rows: Rows, read: Callable[..., FloatArray]) -> FloatArray:
    model = model.double()
    found = np.concatenate(
        [read(joint, rows.data[part]) for part, joint in joints_of(model, rows.inputs)]
    )
    model.float()
    return found


def _mean(unseen: Prediction, seen: Prediction) -> Prediction:
    """Half of what heads said of rows that they did not see, and half of what the final one says.

    The final head was fitted to these rows, and errs on them a little less than on others. A head
    that was fitted without a row errs on it more than on others, by up to a fifth where rows are
    few: it learned from log-odds of regressions that did see the row, but of all rows it predicts
    this one from a regression that did not. Their mean errs as much as the final head on new rows.
    """
    return Prediction((unseen.probs + seen.probs) / 2, (unseen.variance + seen.variance) / 2)


def _moments(prediction: Prediction) -> tuple[FloatArray, FloatArray]:
    return prediction.probs, prediction.variance
