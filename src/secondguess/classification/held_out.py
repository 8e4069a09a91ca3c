"""What models say of rows that were held out, and what these rows say of the models.

Axes: rows (n), classes (K), shares (S).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import log_softmax

from secondguess._arrays import FloatArray
from secondguess.classification.fitting import Rows
from secondguess.classification.heads import PairModel
from secondguess.classification.joint import PairJoint
from secondguess.classification.offsets import set_own_share, takes_share
from secondguess.classification.pairs import PairData
from secondguess.classification.predicting import joints_of, row_log_probs
from secondguess.classification.splitting import is_clear
from secondguess.theory.records import Prediction

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How much of what a head adds to the regression's log-odds may be used."""
_LEAST_LOG = -30.0


def predict_rows(model: PairModel, rows: Rows) -> Prediction:
    """Probabilities and variances, `(n, K)`."""
    both = _read(model, rows, lambda joint, _: np.stack(_moments(joint.prediction()), axis=1))
    return Prediction(both[:, 0], both[:, 1])


def log_probs_of(model: PairModel, rows: Rows) -> FloatArray:
    """Log-likelihood of the responses to each row, `(n,)`."""
    return _read(model, rows, row_log_probs)


def with_share(model: PairModel, share: float) -> PairModel:
    """The model with a head whose marginal leaves the regression's by this share of the way.

    The head learned how responses depend on each other beside a marginal that was free to calibrate
    itself. Fitted beside a marginal that is too flat, the dependence would make up for it, and the
    variance would come out too large.
    """
    head = copy.deepcopy(model.head)
    set_own_share(head, share)
    return PairModel(model.backbone, head).train(model.training)


def best_share(models: Sequence[PairModel], parts: Sequence[Rows]) -> float:
    """The share of `SHARES` that predicts the responses to held-out parts best.

    What a head adds to the regression's log-odds is mostly a gain, and where rows are few sometimes
    a loss: one number, chosen on rows that it was not fitted to, tells how much of it to use.

    Args:
        models: one for each part.
        parts: rows that the model of the same place did not see.
    """
    if not takes_share(models[0].head):
        return 1.0
    log_probs = np.concatenate(
        [_log_probs_by_share(model, part) for model, part in zip(models, parts, strict=True)]
    )
    return SHARES[int(np.argmax(weights_of(parts) @ log_probs))]


def is_likelier(
    models: Sequence[PairModel], others: Sequence[PairModel], parts: Sequence[Rows]
) -> bool:
    """Whether held-out responses are clearly likelier than others make them.

    Args:
        models: one for each part.
        others: what they are compared with, one for each part.
        parts: rows that the models of the same place did not see.
    """
    pairs = zip(models, others, parts, strict=True)
    gain = np.concatenate([log_probs_of(m, part) - log_probs_of(o, part) for m, o, part in pairs])
    groups = [part.groups for part in parts if part.groups is not None]
    return is_clear(gain, weights_of(parts), np.concatenate(groups) if groups else None)


def weights_of(parts: Sequence[Rows]) -> FloatArray:
    """The weights of the rows of all parts, one after the other."""
    every = [np.ones(len(part.data)) if part.weights is None else part.weights for part in parts]
    return np.concatenate(every)


def _log_probs_by_share(model: PairModel, rows: Rows) -> FloatArray:
    """Mean log-probability of each row's responses, one by one, under each share: `(n, S)`."""
    counts = rows.data.counts()
    shares = counts / counts.sum(axis=1, keepdims=True)
    regression = _read(with_share(model, 0.0), rows, _log_marginal)
    own = _read(model, rows, _log_marginal) - regression
    marginals = (log_softmax(regression + share * own, axis=1) for share in SHARES)
    return np.stack([(shares * each).sum(axis=1) for each in marginals], axis=1)


def _log_marginal(joint: PairJoint, _: PairData) -> FloatArray:
    return joint.log_marginal.double().clamp_min(_LEAST_LOG).numpy()


def _read(model: PairModel, rows: Rows, read: Callable[..., FloatArray]) -> FloatArray:
    model = model.double()
    found = np.concatenate(
        [read(joint, rows.data[part]) for part, joint in joints_of(model, rows.inputs)]
    )
    model.float()
    return found


def _moments(prediction: Prediction) -> tuple[FloatArray, FloatArray]:
    return prediction.probs, prediction.variance
