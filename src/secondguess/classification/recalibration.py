"""Second-order recalibration: the pair version of temperature scaling.

A network that has overfitted is too sure of its probabilities, and surer still of what it knows.
Two scalars, fitted by pair likelihood on held-out pairs after training, repair most of it: a
temperature, which makes the probabilities flatter, and a correlation, which makes the second
response depend more (or less) on the first. `PairJoint.recalibrated` owns the formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from scipy.optimize import minimize

from secondguess._arrays import FloatArray
from secondguess.classification.batches import scaled_weights
from secondguess.classification.joint import PairJoint
from secondguess.classification.losses import annotations_loss
from secondguess.classification.pairs import PairData

JointT = TypeVar("JointT", bound=PairJoint)

# A search box far beyond anything useful; the ends keep every logarithm finite.
_LOG_TEMPERATURE = (-3.0, 3.0)
_CORRELATION = (1e-9, 0.99)


@dataclass(frozen=True, kw_only=True)
class PairRecalibration:
    """A temperature and a correlation to apply to every joint of a model.

    >>> from secondguess.classification.table_joint import TableJoint
    >>> sure = TableJoint(torch.tensor([[[0.81, 0.09], [0.09, 0.01]]]).log())  # variance 0
    >>> PairRecalibration(temperature=1.0, correlation=0.5)(sure).epistemic_variance
    tensor([[0.0450, 0.0450]])

    Attributes:
        temperature: above 1 makes the probabilities flatter.
        correlation: in (-1, 1); above 0 raises the epistemic variance, below 0 lowers it.
    """

    temperature: float = 1.0
    correlation: float = 0.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature!r}; expected a positive number.")
        if not -1 < self.correlation < 1:
            raise ValueError(f"correlation is {self.correlation!r}; expected a number in (-1, 1).")

    def __call__(self, joint: JointT) -> JointT:
        """The joint after recalibration."""
        if self == PairRecalibration():
            return joint
        like = joint.log_marginal
        temperature, correlation = (
            torch.tensor(value, dtype=like.dtype, device=like.device)
            for value in (self.temperature, self.correlation)
        )
        return joint.recalibrated(temperature, correlation)


def fit_recalibration(
    joint: PairJoint,
    data: PairData,
    *,
    snapshot: bool = False,
    weights: FloatArray | None = None,
) -> PairRecalibration:
    """The recalibration that makes held-out responses most likely.

    Raising and lowering the dependence are two different formulas, each smooth: both are fitted,
    and the more likely one wins. On n rows the two scalars cost about 1/n of log-likelihood, so a
    few hundred rows are enough.

    >>> from secondguess.classification.table_joint import TableJoint
    >>> sure = TableJoint(torch.tensor([[0.5, 0.5], [0.5, 0.5]]).square().log().expand(4, 2, 2))
    >>> data = PairData.from_responses([[0, 0], [0, 0], [1, 1], [0, 1]])  # three of four agree
    >>> round(fit_recalibration(sure, data).correlation, 3)
    0.5

    Args:
        joint: the model's joints for the n held-out inputs.
        data: their responses.
        snapshot: whether to look at all annotations of a row at once (mixtures only), not at pairs.
        weights: `(n,)`, of the rows; equal by default.
    """
    if len(data) != len(joint.log_marginal):
        raise ValueError(
            f"data has {len(data)} rows but the joint has {len(joint.log_marginal)}; expected the "
            f"joints of the same held-out inputs."
        )
    exact = joint.double()
    device = exact.log_marginal.device
    labels = torch.from_numpy(data.labels).to(device)
    multiplicity = torch.from_numpy(data.multiplicity).to(device)
    scaled = scaled_weights(weights)

    def loss_and_slope(scalars: np.ndarray, sign: int) -> tuple[float, np.ndarray]:
        point = torch.tensor(scalars, dtype=torch.float64, device=device, requires_grad=True)
        joint = exact.recalibrated(point[0].exp(), sign * point[1])
        loss = annotations_loss(joint, labels, multiplicity, snapshot=snapshot, weights=scaled)
        (slope,) = torch.autograd.grad(loss, point)
        return loss.item(), slope.cpu().numpy()

    fits = [
        minimize(
            loss_and_slope,
            x0=[0.0, 0.01],
            args=(sign,),
            jac=True,
            method="L-BFGS-B",
            bounds=[_LOG_TEMPERATURE, _CORRELATION],
        )
        for sign in (1, -1)
    ]
    best = int(np.argmin([fit.fun for fit in fits]))
    log_temperature, correlation = fits[best].x
    return PairRecalibration(
        temperature=float(np.exp(log_temperature)), correlation=float((1, -1)[best] * correlation)
    )
