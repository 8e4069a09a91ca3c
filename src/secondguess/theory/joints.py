"""Tables of pairs: from a joint p(y1, y2|x) to marginals, covariances and scores, and back.

A joint is an array of shape `(..., num_classes, num_classes)`: any number of leading axes, then y1,
then y2. For models that never build the table (sequences, mixtures) see `SelfCheatScores`, which
needs only two numbers per response.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import SUM_TOLERANCE, FloatArray, as_floats, fail_at
from secondguess.theory.records import SelfCheatScores


def joint_marginal(joint: ArrayLike) -> FloatArray:
    """p(y1|x): the joint summed over y2.

    >>> joint_marginal([[0.5, 0.125], [0.125, 0.25]])
    array([0.625, 0.375])

    Args:
        joint: `(..., K, K)`, entries non-negative, each table summing to one.

    Returns:
        `(..., K)`.
    """
    # Rounding may leave a sum just above one, which no bound would take.
    return np.minimum(_as_joint(joint).sum(axis=-1), 1.0)


def pair_covariance(joint: ArrayLike) -> FloatArray:
    """Definition 3.1: p(y1, y2|x) - p(y1|x) p(y2|x), what independence would not explain.

    If the joint is calibrated on pairs, this is the covariance matrix of the true p(.|x) over the
    inputs that the model cannot tell apart (Theorem 3.2).

    >>> pair_covariance([[0.5, 0.125], [0.125, 0.25]])  # rows and columns sum to zero
    array([[ 0.109375, -0.109375],
           [-0.109375,  0.109375]])
    """
    table = _as_joint(joint)
    first, second = table.sum(axis=-1), table.sum(axis=-2)
    return table - first[..., :, None] * second[..., None, :]


def joint_scores(joint: ArrayLike) -> SelfCheatScores:
    """The scores of every response of a table: log p(y|x) and log p(y|y,x), of shape `(..., K)`.

    >>> scores = joint_scores([[0.5, 0.125], [0.125, 0.25]])
    >>> scores.epistemic_confidence.round(6)
    array([0.78125, 0.5625 ])
    >>> scores.epistemic_variance.round(6)  # the diagonal of the pair covariance
    array([0.109375, 0.109375])
    """
    table = _as_joint(joint)
    with np.errstate(divide="ignore"):
        log_marginal = np.log(table.sum(axis=-1))
        log_diagonal = np.log(np.diagonal(table, axis1=-2, axis2=-1))
    possible = np.isfinite(log_marginal)
    log_self_conditional = np.full(log_marginal.shape, -np.inf)
    np.subtract(log_diagonal, log_marginal, out=log_self_conditional, where=possible)
    return SelfCheatScores(log_marginal, np.minimum(log_self_conditional, 0.0))


def joint_from_moments(marginal: ArrayLike, covariance: ArrayLike) -> FloatArray:
    """Theorem 3.2, the way back: the one joint with this marginal and this pair covariance.

    >>> joint_from_moments([0.5, 0.5], [[0.25, -0.25], [-0.25, 0.25]])
    array([[0.5, 0. ],
           [0. , 0.5]])

    Args:
        marginal: `(..., K)`, summing to one.
        covariance: `(..., K, K)`, rows and columns summing to zero.
    """
    mean = as_floats("marginal", marginal)
    cov = as_floats("covariance", covariance)
    if mean.ndim == 0 or mean.size == 0 or cov.shape != (*mean.shape, mean.shape[-1]):
        raise ValueError(
            f"marginal has shape {mean.shape} and covariance {cov.shape}; expected (..., K) and "
            f"(..., K, K)."
        )
    off = np.maximum(np.abs(cov.sum(axis=-1)), np.abs(cov.sum(axis=-2)))
    fail_at("covariance row or column sum", off > SUM_TOLERANCE, off, "0: probabilities sum to one")
    joint = cov + mean[..., :, None] * mean[..., None, :]
    # A covariance on the boundary leaves rounding where a zero should stand.
    rounding = 4 * np.finfo(np.float64).eps
    joint = np.where((joint < 0) & (joint >= -rounding), 0.0, joint)
    return _as_joint(joint, name="covariance + marginal x marginal")


@dataclass(frozen=True, slots=True)
class JointReport:
    """Which of the three properties of Proposition E.1 a table breaks, and by how much.

    Arrays have the leading shape of the joint, one entry per table; all are 0 for a perfect one.

    >>> report = check_joint([[[0.5, 0.0], [0.0, 0.5]], [[0.0, 0.5], [0.5, 0.0]]])
    >>> report.holds, report.negative_eigenvalue
    (False, array([0. , 0.5]))

    Attributes:
        negative_mass: the sum of the absolute negative entries.
        sum_error: how far the sum of all entries is from 1.
        asymmetry: the largest difference between p(y1, y2) and p(y2, y1).
        negative_eigenvalue: how far the least eigenvalue of the symmetric part is below zero.
        tolerance: what still counts as rounding.
    """

    negative_mass: FloatArray
    sum_error: FloatArray
    asymmetry: FloatArray
    negative_eigenvalue: FloatArray
    tolerance: float

    @property
    def problems(self) -> list[str]:
        """One line for each property that fails, with the number of tables and the worst one."""
        properties = {
            "(i) has negative entries": self.negative_mass,
            "(i) does not sum to one": self.sum_error,
            "(ii) is not symmetric": self.asymmetry,
            "(iii) is not positive semidefinite": self.negative_eigenvalue,
        }
        return [
            f"{what}: {np.sum(size > self.tolerance)} of {size.size} tables, worst by "
            f"{size.max():.3g}"
            for what, size in properties.items()
            if (size > self.tolerance).any()
        ]

    @property
    def holds(self) -> bool:
        """Whether every table has all three properties."""
        return not self.problems


def check_joint(joint: ArrayLike, *, tolerance: float = 1e-9) -> JointReport:
    """Which properties of a calibrated joint fail (Proposition E.1), and by how much.

    A calibrated joint is (i) a distribution, (ii) symmetric and (iii) positive semidefinite. The
    reverse is not true: a table can have all three and still be badly calibrated.

    >>> check_joint([[0.5, 0.2], [0.1, 0.2]]).problems
    ['(ii) is not symmetric: 1 of 1 tables, worst by 0.1']
    >>> check_joint([[0.1, 0.4], [0.4, 0.1]]).problems
    ['(iii) is not positive semidefinite: 1 of 1 tables, worst by 0.3']
    """
    table = _as_tables(joint)
    symmetric = (table + np.swapaxes(table, -1, -2)) / 2
    return JointReport(
        negative_mass=-np.minimum(table, 0.0).sum(axis=(-1, -2)),
        sum_error=np.abs(table.sum(axis=(-1, -2)) - 1),
        asymmetry=np.abs(table - np.swapaxes(table, -1, -2)).max(axis=(-1, -2)),
        negative_eigenvalue=np.maximum(0.0, -np.linalg.eigvalsh(symmetric)[..., 0]),
        tolerance=tolerance,
    )


def binary_joint(mean: ArrayLike, correlation: ArrayLike) -> FloatArray:
    """Proposition E.2: the table of two binary responses with this mean and correlation.

    P = rho diag(1 - mu, mu) + (1 - rho) q q^T with q = (1 - mu, mu), so that the epistemic variance
    of "1" is rho mu (1 - mu).

    >>> binary_joint(mean=0.5, correlation=0.5)
    array([[0.375, 0.125],
           [0.125, 0.375]])

    Args:
        mean: mu = p(Y=1|x), any shape, in [0, 1].
        correlation: rho, the correlation of the two responses, of a shape that broadcasts with
            `mean`, in [0, 1].
    """
    mu, rho = np.broadcast_arrays(as_floats("mean", mean), as_floats("correlation", correlation))
    for name, values in {"mean": mu, "correlation": rho}.items():
        fail_at(name, (values < 0) | (values > 1), values, "a value in [0, 1]")
    differ = (1 - rho) * mu * (1 - mu)
    joint = np.stack([1 - mu - differ, differ, differ, mu - differ], axis=-1)
    return joint.reshape(*mu.shape, 2, 2)


def binary_moments(joint: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Proposition E.2, the way back: mean and correlation of a symmetric `(..., 2, 2)` joint.

    Where the mean is 0 or 1 every correlation gives the same table; 0 is returned there. A table
    that is not positive semidefinite has a negative correlation, which is returned as it is.

    >>> mean, correlation = binary_moments([[0.375, 0.125], [0.125, 0.375]])
    >>> float(mean), float(correlation)
    (0.5, 0.5)
    """
    table = _as_joint(joint)
    if table.shape[-1] != 2:
        raise ValueError(f"joint has shape {table.shape}; expected (..., 2, 2): two classes.")
    gap = np.abs(table[..., 0, 1] - table[..., 1, 0])
    fail_at(
        "joint asymmetry", gap > SUM_TOLERANCE, gap, "0: Proposition E.2 is about symmetric ones"
    )
    neither, both = table[..., 0, 0], table[..., 1, 1]
    differ = (table[..., 0, 1] + table[..., 1, 0]) / 2
    mean = differ + both
    spread = (neither + differ) * mean
    correlation = np.zeros(mean.shape)
    np.divide(neither * both - differ**2, spread, out=correlation, where=spread > 0)
    return mean, correlation


def _as_tables(joint: ArrayLike, name: str = "joint") -> FloatArray:
    table = as_floats(name, joint)
    if table.ndim < 2 or table.shape[-1] != table.shape[-2] or table.size == 0:
        raise ValueError(
            f"{name} has shape {table.shape}; expected (..., num_classes, num_classes): y1, y2."
        )
    return table


def _as_joint(joint: ArrayLike, name: str = "joint") -> FloatArray:
    table = _as_tables(joint, name)
    fail_at(name, table < 0, table, "a probability, 0 or more (check_joint reports on any table)")
    sums = table.sum(axis=(-1, -2))
    fail_at(f"{name} sum", np.abs(sums - 1) > SUM_TOLERANCE, sums, "1 for each table")
    return table
