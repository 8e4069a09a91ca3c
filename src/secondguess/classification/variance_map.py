"""A monotone map of the epistemic variance, fitted to squared errors on held-out pairs.

A network that has overfitted understates its errors, and not by the same factor everywhere.
`PairRecalibration` repairs the likelihood of pairs with two scalars; this map repairs the variance
itself. What it moves is the total variance of a row, V = sum over classes of V(y), towards the
squared error that held-out rows of that V have, which two responses estimate without bias. The
joint follows: each row is mixed with `diag(m)` or `m m^T` until its total variance is the mapped
one (`PairJoint.correlated`). So the marginal stays, the joint stays valid, and variance,
confidence, likelihood and intervals all speak of the same joint.

Axes: rows (n), then classes (K).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from secondguess._arrays import FloatArray
from secondguess.classification.joint import PairJoint
from secondguess.classification.pairs import PairData
from secondguess.classification.splitting import folds_of
from secondguess.theory.metrics import squared_error_estimate
from secondguess.theory.records import Prediction

JointT = TypeVar("JointT", bound=PairJoint)
MapKind = Literal["identity", "scale", "power", "isotonic"]

MIN_ROWS = 50
"""With fewer held-out rows the variance is left as it is."""
MIN_CURVED_ROWS = 200
"""With fewer, the map is one factor or none."""
_EXPONENTS = np.geomspace(0.25, 4, 25)
_NUM_KNOTS = 60
NUM_FOLDS = 5
_MOST = 1 - 1e-9
_NOTHING = 1e-6
"""A mean variance below this has nothing in it but rounding."""


@dataclass(frozen=True, kw_only=True)
class VarianceMap:
    """A piecewise linear, never falling function of a row's total variance.

    >>> from secondguess.classification.table_joint import TableJoint
    >>> sure = TableJoint(torch.tensor([[[0.81, 0.09], [0.09, 0.01]]]).log())  # variance 0
    >>> VarianceMap(kind="isotonic", stated=(0.0, 1.0), found=(0.09, 1.0))(sure).epistemic_variance
    tensor([[0.0450, 0.0450]])

    Attributes:
        kind: `identity`, `scale` (one factor), `power` (a factor and an exponent) or `isotonic`.
        stated: total variances in rising order.
        found: what they are mapped to; constant beyond the ends.
    """

    kind: MapKind = "identity"
    stated: tuple[float, ...] = (0.0, 1.0)
    found: tuple[float, ...] = (0.0, 1.0)

    @classmethod
    def from_plain(cls, fields: dict[str, Any]) -> VarianceMap:
        """From the fields as JSON holds them."""
        found = {name: tuple(fields[name]) for name in ("stated", "found")}
        return cls(kind=fields["kind"], **found)

    def of(self, total: FloatArray) -> FloatArray:
        """The mapped total variances, before they are held to what the marginal allows."""
        return np.interp(total, self.stated, self.found)

    def __call__(self, joint: JointT) -> JointT:
        """The joint with its total variance mapped, between 0 and sum m (1 - m)."""
        if self.kind == "identity":
            return joint
        marginal = joint.marginal
        total = joint.epistemic_variance.sum(-1)
        most = (marginal * (1 - marginal)).sum(-1)
        wanted = torch.from_numpy(self.of(total.double().cpu().numpy())).to(total)
        wanted = torch.minimum(wanted.clamp_min(0), most)
        tiny = torch.finfo(total.dtype).tiny
        raised = (wanted - total) / (most - total).clamp_min(tiny)
        lowered = wanted / total.clamp_min(tiny) - 1
        correlation = torch.where(wanted >= total, raised, lowered)
        return joint.correlated(correlation.clamp(-_MOST, _MOST))


def fit_variance_map(
    prediction: Prediction,
    data: PairData,
    *,
    rng: np.random.Generator,
    groups: ArrayLike | None = None,
    weights: FloatArray | None = None,
) -> VarianceMap:
    """The map that predicts held-out squared errors best, as cross-validation sees it.

    The unbiased squared error of a row has as mean what its variance should be, so that least
    squares finds the conditional mean: as one factor, as a power of the stated variance, or by
    isotonic regression, the latter two where there are many rows. None is used where it does not
    predict other rows better than the simpler maps.

    >>> from secondguess.classification.table_joint import TableJoint
    >>> sure = TableJoint(torch.tensor([[0.5, 0.5], [0.5, 0.5]]).square().log().expand(100, 2, 2))
    >>> agree = PairData.from_responses([[0, 0], [1, 1]] * 50)
    >>> found = fit_variance_map(sure.prediction(), agree, rng=np.random.default_rng(0))
    >>> found(sure).epistemic_variance[0]
    tensor([0.2500, 0.2500])

    Args:
        prediction: of n rows that the model was not trained on, `(n, K)`.
        data: their responses; rows with a single one are not used.
        rng: decides the folds.
        groups: `(n,)` labels; rows that share one are in the same fold.
        weights: `(n,)`, of the rows; equal by default.
    """
    paired = data.has_pair
    parts = (np.ones(len(data)) if weights is None else weights)[paired]
    total = prediction.variance[paired].sum(axis=1)
    if len(total) < MIN_ROWS:
        return VarianceMap()
    errors = squared_error_estimate(prediction.probs[paired], data[paired].counts()).sum(axis=1)
    kinds: tuple[MapKind, ...] = ("identity", "scale", "power", "isotonic")
    if len(total) < MIN_CURVED_ROWS:
        kinds = kinds[:2]
    keys = None if groups is None else np.asarray(groups)[paired]
    folds = folds_of(len(total), NUM_FOLDS, rng=rng, groups=keys)
    if folds.max() == 0:  # too few groups to see which map predicts others
        return VarianceMap()
    losses = {kind: np.empty(len(total)) for kind in kinds}
    for fold in range(NUM_FOLDS):
        held = folds == fold
        for kind in kinds:
            fitted = _fit(kind, total[~held], errors[~held], parts[~held])
            losses[kind][held] = (fitted.of(total[held]) - errors[held]) ** 2
    best = min(kinds, key=lambda kind: losses[kind] @ parts)
    return _fit(best, total, errors, parts)


def _fit(kind: MapKind, total: FloatArray, errors: FloatArray, parts: FloatArray) -> VarianceMap:
    """The map of a kind, by least squares with weights `parts`."""
    if kind == "identity":
        return VarianceMap()
    mean_total, mean_error = (np.average(values, weights=parts) for values in (total, errors))
    if kind == "scale" and mean_total > _NOTHING:
        factor = max(mean_error, 0.0) / mean_total
        return VarianceMap(kind=kind, stated=(0.0, 1.0), found=(0.0, float(factor)))
    if kind == "scale":  # a model that states no variance at all can only be given a constant one
        level = float(max(mean_error, 0.0))
        return VarianceMap(kind=kind, stated=(0.0, 1.0), found=(level, level))
    if kind == "power":
        return _fit_power(np.maximum(total, 0.0), errors, parts)
    order = np.argsort(total, kind="stable")
    part = parts[order]
    starts = isotonic_regression(errors[order], weights=part).blocks[:-1]
    sizes = np.add.reduceat(part, starts)
    # One knot per block, at its mean: the map is continuous, and no two rows of nearly the same
    # variance are torn apart by a step.
    stated = np.add.reduceat(part * total[order], starts) / sizes
    found = np.maximum(np.add.reduceat(part * errors[order], starts) / sizes, 0.0)
    return VarianceMap(kind=kind, stated=tuple(stated.tolist()), found=tuple(found.tolist()))


def _fit_power(total: FloatArray, errors: FloatArray, parts: FloatArray) -> VarianceMap:
    """The power of the variance that predicts the errors best, with their mean."""
    if np.average(total, weights=parts) <= _NOTHING:
        return _fit("scale", total, errors, parts)
    top = float(total.max())
    shapes = (total / top) ** _EXPONENTS[:, None]
    mean_error = float(np.average(errors, weights=parts))
    factors = max(mean_error, 0.0) / np.average(shapes, axis=1, weights=parts)
    losses = (factors[:, None] * shapes - errors) ** 2 @ parts
    best = int(np.argmin(losses))
    knots = np.linspace(0, 1, _NUM_KNOTS) ** 2  # closer where the power bends most
    found = factors[best] * knots ** _EXPONENTS[best]
    return VarianceMap(
        kind="power", stated=tuple((top * knots).tolist()), found=tuple(found.tolist())
    )
