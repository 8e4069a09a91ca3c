"""Fitting a pair model by itself: a logistic regression, a head on it, a network if it helps.

Up to `MOST_CROSS_FITTED` rows everything is cross-fitted: each row is predicted by models that did
not see it, which decides whether the network is used, how long it is trained and what the
recalibration learns, and then all rows are fitted once more; none is set aside. With more rows, or
where validation rows are given, those decide.

Axes: rows (n), features (d), classes (K).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from secondguess._arrays import FloatArray, IntArray
from secondguess.classification.fitting import (
    FitSettings,
    FittedModel,
    Rows,
    hold_out,
    train_network,
)
from secondguess.classification.heads import HeadName, PairModel
from secondguess.classification.logistic import (
    NUM_SEARCH_FOLDS,
    SEARCH_ON_ALL,
    CrossFitted,
    cross_fit_logistic,
    fit_logistic,
)
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
NUM_LOGIT_FOLDS = 20
"""Folds of the log-odds, up to `SEARCH_ON_ALL` rows; heads and networks have fewer, larger ones."""
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
    seed = settings.seed
    if validation is None and len(rows.data) > MOST_CROSS_FITTED:
        fraction = min(0.1, MOST_HELD_OUT / len(rows.data))
        rows, validation = hold_out(rows, fraction, seed=seed)
    rng = np.random.default_rng(seed)
    many = len(rows.data) <= SEARCH_ON_ALL
    num_folds = NUM_LOGIT_FOLDS if many else NUM_SEARCH_FOLDS
    small_folds = folds_of(len(rows.data), num_folds, rng=rng, groups=rows.groups)
    folds = small_folds % NUM_SEARCH_FOLDS
    base = _cross_fit(rows, small_folds)
    inputs = torch.cat([rows.inputs, torch.from_numpy(base.logits)], 1)
    with_logits = rows._replace(inputs=inputs)
    if validation is not None:
        return _fit_on_split(base, with_logits, validation, settings)
    return _fit_in_folds(base, with_logits, folds, settings)


def _fit_on_split(
    base: CrossFitted, rows: Rows, validation: Rows, settings: FitSettings
) -> FittedModel:
    candidates = [_linear(base, rows, settings, head) for head in _heads(rows, settings)]
    likeliest = int(np.argmax([_log_probs(other, validation).mean() for other in candidates]))
    model, history = candidates[likeliest], _NO_HISTORY
    if settings.network is not None and len(rows.data) >= MIN_NETWORK_ROWS:
        network, trained = _add_network(model, rows, settings, "network", validation)
        gain = _log_probs(network, validation) - _log_probs(model, validation)
        if _helps(gain):
            model, history = network, trained
    return FittedModel(
        model, history, _predict(model, validation), validation.data, validation.groups
    )


def _fit_in_folds(
    base: CrossFitted, rows: Rows, folds: IntArray, settings: FitSettings
) -> FittedModel:
    parts = [(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in np.unique(folds)]
    if len(parts) < 2:
        model = _linear(base, rows, settings, _heads(rows, settings)[0])
        return FittedModel(model, _NO_HISTORY)
    head, linear = _choose_head(base, rows, parts, settings)
    linear += [_linear(base, rows.take(t), settings, head) for t, _ in parts[len(linear) :]]
    models, steps = linear, 0
    if settings.network is not None and len(rows.data) >= MIN_NETWORK_ROWS:
        models, steps = _networks_in_folds(linear, rows, parts, settings)
    held_out = [
        _predict(model, rows.take(held)) for model, (_, held) in zip(models, parts, strict=True)
    ]
    order = np.argsort(np.concatenate([held for _, held in parts]))
    prediction = Prediction(
        np.concatenate([part.probs for part in held_out])[order],
        np.concatenate([part.variance for part in held_out])[order],
    )
    model, history = _linear(base, rows, settings, head), _NO_HISTORY
    if steps:
        model, history = _add_network(model, rows, settings, "all-rows", num_steps=steps)
    else:
        prediction = _mean(prediction, _predict(model, rows))
    return FittedModel(model, history, prediction, rows.data, rows.groups)


def _networks_in_folds(
    linear: list[PairModel],
    rows: Rows,
    parts: list[tuple[IntArray, IntArray]],
    settings: FitSettings,
) -> tuple[list[PairModel], int]:
    """The networks of all folds and their mean number of steps; without gain, what came and 0."""
    networks, steps, gains = [], [], []
    for fold, (model, (train, held)) in enumerate(zip(linear, parts, strict=True)):
        network, history = _add_network(
            model, rows.take(train), settings, f"fold-{fold}", rows.take(held)
        )
        networks.append(network)
        steps.append(history.best_step)
        gains.append(_log_probs(network, rows.take(held)) - _log_probs(model, rows.take(held)))
        if fold == 1 and not _helps(np.concatenate(gains)):
            return linear, 0  # two of five are enough to see that it is of no use
    if not _helps(np.concatenate(gains)):
        return linear, 0
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
    chosen = max(heads, key=lambda head: log_probs[head].mean())
    return chosen, models[chosen]


def _linear(base: CrossFitted, rows: Rows, settings: FitSettings, head: HeadName) -> PairModel:
    logits = rows.inputs[:, -base.logits.shape[1] :].numpy()
    model = linear_model(base.model, logits, head, settings.num_components)
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


def _cross_fit(rows: Rows, folds: IntArray) -> CrossFitted:
    inputs, counts = rows.inputs.numpy(), rows.data.counts()
    if folds.max() == 0:  # too few rows to leave some out: hardly more than the class shares
        model = fit_logistic(inputs, counts / counts.sum(axis=1, keepdims=True), 1.0)
        return CrossFitted(model, model(inputs), 1.0)
    return cross_fit_logistic(inputs, counts, folds)


def _helps(gain: FloatArray) -> bool:
    """Whether a gain of log-likelihood per row is more than its standard error."""
    return gain.mean() > gain.std() / np.sqrt(len(gain))


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
