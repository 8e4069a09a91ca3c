"""The rows of a calibration set: their checks, and S, the product that Algorithm 1 averages.

Arrays have one row per input: `probs` and `variance` of shape `(n,)`, `responses` of shape `(n, k)`
with zeros and ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import FloatArray, check_kind, same_shape

MIN_MIN_VARIANCE = 1e-12


class BadRowError(ValueError):
    """A row that cannot be used, with its place, so that a caller can name file and column.

    Attributes:
        argument: the argument that holds the value.
        row: its row, counted from the start of the stream.
        column: its column, or None where there is only one.
        problem: what came and what was expected.
    """

    def __init__(self, argument: str, row: int, column: int | None, problem: str) -> None:
        self.argument, self.row, self.column, self.problem = argument, row, column, problem
        at = f"{row}" if column is None else f"{row}, {column}"
        super().__init__(f"{argument}[{at}] {problem}")


def scaled_products(
    probs: FloatArray,
    variance: FloatArray,
    responses: NDArray,
    min_variance: float,
    self_pairs: float = 0.0,
) -> FloatArray:
    """S of Algorithm 1, averaged over all pairs of responses: unbiased for D of the same row.

    S = (y1 - p)(y2 - p) / max(variance, min_variance). With c ones among k responses the average
    over pairs is [c(c-1) (1-p)² - 2c(k-c) p(1-p) + (k-c)(k-c-1) p²] / (k(k-1)). Where raters are
    known, `self_pairs` times half of the squared difference (y1 - y2)² is added to each product, as
    `self_pair_share` explains; that stays in the same range.

    >>> probs, variance = np.array([0.25, 0.25]), np.array([-0.5, 0.125])
    >>> scaled_products(probs, variance, np.array([[1, 1], [0, 1]]), min_variance=0.0625)
    array([ 9. , -1.5])
    """
    num_responses = responses.shape[1]
    scale = np.maximum(variance, min_variance)
    if num_responses == 2 and not self_pairs:
        products = responses[:, 0] - probs
        products *= responses[:, 1] - probs
    else:
        ones = np.arange(num_responses + 1)
        zeros = num_responses - ones
        agree_one, differ, agree_zero = np.stack(
            [ones * (ones - 1), -2 * ones * zeros, zeros * (zeros - 1)]
        ) / (num_responses * (num_responses - 1))
        mixed = -0.5 * self_pairs * differ
        count = np.count_nonzero(responses, axis=1)
        complement = 1 - probs
        products = (
            agree_one[count] * complement**2
            + differ[count] * probs * complement
            + agree_zero[count] * probs**2
            + mixed[count]
        )
        # Rounding of the sum may step over the ends of its range by one unit in the last place.
        np.clip(products, -0.25 / (num_responses - 1), 1.0, out=products)
    products /= scale
    return products


def check_min_variance(min_variance: float) -> float:
    """A cutoff in [1e-12, 1]: no variance is above 1/4, and no set is large enough for less."""
    if not MIN_MIN_VARIANCE <= min_variance <= 1:
        raise ValueError(
            f"min_variance is {min_variance!r}; expected a variance in [{MIN_MIN_VARIANCE:g}, 1] "
            f"(0.0001 to 0.01 suits most calibration sets; leave it out to have it chosen)."
        )
    return float(min_variance)


def check_rows(
    probs: ArrayLike, variance: ArrayLike, responses: ArrayLike, start: int = 0
) -> tuple[FloatArray, FloatArray, NDArray]:
    """Rows of a calibration set as arrays; `start` is the number of the first one in complaints."""
    check_kind("probs", probs)
    check_kind("variance", variance)
    check_kind("responses", responses)
    p, v = np.asarray(probs, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    y = np.asarray(responses)
    if p.ndim != 1:
        raise ValueError(
            f"probs has shape {p.shape}; expected (n,), the probability of response 1."
        )
    same_shape(probs=p, variance=v)
    if y.ndim != 2 or len(y) != len(p) or y.shape[1] < 2:
        raise ValueError(
            f"responses has shape {y.shape}; expected ({len(p)}, k), k >= 2 responses to each row."
        )
    if not len(p):
        return p, v, y
    # Two reductions find nothing wrong in most chunks; NaN fails the comparisons.
    if not (p.min() >= 0 and p.max() <= 1):
        row = int(np.argmax(~((p >= 0) & (p <= 1))))
        problem = f"is {p[row].item()!r}; expected a probability in [0, 1]."
        raise BadRowError("probs", start + row, None, problem)
    if not (np.isfinite(v.min()) and np.isfinite(v.max())):
        row = int(np.argmax(~np.isfinite(v)))
        problem = f"is {v[row].item()!r}; expected a finite number."
        raise BadRowError("variance", start + row, None, problem)
    whole = y.dtype.kind in "biu"
    if not (y.min() >= 0 and y.max() <= 1) if whole else not ((y == 0) | (y == 1)).all():
        row, column = (int(i) for i in np.argwhere((y != 0) & (y != 1))[0])
        problem = f"is {y[row, column].item()!r}; expected 0 or 1."
        raise BadRowError("responses", start + row, column, problem)
    return p, v, y.view(np.uint8) if y.dtype == np.bool_ else y
