"""Who gave the responses: whether two of them to one input are exchangeable, and what to do if not.

p(y|x) is the share of a population of raters who answer y. The product of two responses estimates
it without bias if both raters of a row are drawn independently from that population. One column
per person is another matter: people lean differently, the two never meet their own opinion, and
the product comes out too small. Without identities `check_equal_leanings` tests for that; with
them `self_pair_share` says how much weight the pairs "a rater with themselves" need.

Arrays have one row per input and one column per response. Groups, one entry per row, are rows that
are not independent of each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

from secondguess._arrays import IntArray

LEANING_LEVEL = 0.001
"""How often a test here refuses responses that are as they should be."""

_DENSE_LIMIT = 300
_PIECE = 1 << 16


class UnequalRatersError(ValueError):
    """The columns of responses belong to raters who lean differently."""


def check_equal_leanings(
    responses: ArrayLike, *, groups: ArrayLike | None = None, level: float = LEANING_LEVEL
) -> None:
    """Refuse columns of responses that are not exchangeable.

    >>> rng = np.random.default_rng(0)
    >>> strict, lenient = rng.random(200) < 0.4, rng.random(200) < 0.7
    >>> check_equal_leanings(rng.permuted(np.stack([strict, lenient], axis=1), axis=1))
    >>> check_equal_leanings(np.stack([strict, lenient], axis=1))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    secondguess...UnequalRatersError: column 1 of the responses says 1 where column 0 does not ...

    If raters are assigned to columns at random, then among the rows where exactly one of two
    columns says y, either does with probability 1/2: an exact sign test for every pair of columns
    and every y, each with an equal part of the level. It is valid for every number of rows. The
    first example shows its limit: shuffling the columns hides the raters and mends nothing.

    Args:
        responses: zeros and ones, or class numbers, shape `(n, k)`.
        groups: of shape `(n,)`; each then has one vote, the sign of its summed difference.
        level: how often exchangeable columns may be refused.
    """
    array = np.asarray(responses)
    classes = np.unique(array) if array.size else np.zeros(0)
    # Of two classes the first is tested by testing the second.
    classes = classes[1:] if len(classes) == 2 else classes
    for value in classes:
        ones = ones_per_unit(array == value, groups)
        check_leaning_counts(discordant_counts(ones), level=level / len(classes))


def ones_per_unit(is_one: NDArray, groups: ArrayLike | None) -> NDArray:
    """How often each column says 1 within each unit (a row, or a group of them): `(units, k)`."""
    if groups is None:
        return is_one
    _, inverse = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.zeros((int(inverse.max(initial=-1)) + 1, is_one.shape[1]), dtype=np.int64)
    np.add.at(sums, inverse, is_one)
    return sums


def discordant_counts(ones: NDArray) -> IntArray:
    """Entry (i, j) is the number of units where column i says 1 more often than column j.

    >>> discordant_counts(np.array([[1, 0], [1, 0], [0, 1], [1, 1]]))
    array([[0, 2],
           [1, 0]])
    """
    num_columns = ones.shape[1]
    counts = np.zeros((num_columns, num_columns), dtype=np.int64)
    if ones.size and ones.min() >= 0 and ones.max() <= 1:
        # Of zeros and ones: where i says 1, less where both do, by one product of matrices. Whole
        # numbers up to the size of a piece are exact in single precision.
        for first in range(0, len(ones), _PIECE):
            piece = ones[first : first + _PIECE].astype(np.float32)
            counts -= (piece.T @ piece).astype(np.int64)
        return counts - counts.diagonal()[:, None]
    for i in range(num_columns):
        for j in range(num_columns):
            if i != j:
                counts[i, j] = np.count_nonzero(ones[:, i] > ones[:, j])
    return counts


def check_leaning_counts(counts: IntArray, *, level: float = LEANING_LEVEL) -> None:
    """The test of `check_equal_leanings`, from what `discordant_counts` gives; these add up."""
    num_pairs = len(counts) * (len(counts) - 1) // 2
    for i in range(len(counts)):
        for j in range(i):
            low, high = sorted((int(counts[i, j]), int(counts[j, i])))
            p_value = min(1.0, 2 * float(bdtr(low, low + high, 0.5)))
            if p_value <= level / num_pairs:
                more, less = (i, j) if counts[i, j] > counts[j, i] else (j, i)
                raise UnequalRatersError(
                    f"column {more} of the responses says 1 where column {less} does not in {high} "
                    f"units, the reverse happens in {low}; raters drawn at random for every row "
                    f"give that with probability {p_value:.1g}. If each column is a person (or the "
                    f"raters are few), say who answered: annotators=, or --annotator-cols; p(y|x) "
                    f"is then the share among those raters. Shuffling the columns hides the "
                    f"problem and keeps it: the product of two fixed raters' answers is too small."
                )


def self_pair_share(annotators: ArrayLike) -> float:
    """The weight of the pairs "a rater with themselves" that makes the squared error no too small.

    >>> self_pair_share(np.tile(["ann", "bob"], (50, 1)))  # the same two for every row
    0.5
    >>> pool = np.array([[0, 1], [1, 2], [2, 0]])  # every pair of three equally often
    >>> round(self_pair_share(pool), 6)
    0.333333

    Let the population be the raters of these rows, each weighted by the number of responses given;
    p is the share of it that says 1. For a random row and two of its columns let R1, R2 be the
    raters, and q(r) the probability that r says 1. Then

        E[(y1 - p̂)(y2 - p̂)] = (p - p̂)² + Cov(q(R1), q(R2)),    Cov >= -λ Var q(R),

    with -λ the least eigenvalue of the matrix of pair frequencies P(R1 = r, R2 = s), divided by
    the roots of the shares of r and s. Half of the squared difference of the two responses has the
    mean p(1 - p) - Cov, and Var q(R) <= p(1 - p), so that with c = λ/(1 + λ)

        E[(y1 - p̂)(y2 - p̂) + c (y1 - y2)²/2] >= (p - p̂)²,

    with equality for raters who always give the same answer to the same input and a design at its
    worst. M raters, all pairs equally often: λ = 1/(M - 1) and c = 1/M, the share of the pairs of a
    rater with themselves among draws with replacement. Rests on one assumption: who is asked does
    not depend on the input.

    Args:
        annotators: identities, shape `(n, k)`, in the place of each response; any values that
            can be compared.
    """
    return share_of_design(*pair_design(annotators))


def pair_design(annotators: ArrayLike) -> tuple[NDArray, IntArray]:
    """The raters, and how many rows (times pairs of columns) each ordered pair of them shares."""
    array = np.asarray(annotators)
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(f"annotators has shape {array.shape}; expected (n, k), as the responses.")
    names, index = np.unique(array, return_inverse=True)
    index = index.reshape(array.shape)
    ordered = np.sort(index, axis=1)
    if (twice := (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).any():
        row = int(np.argmax(twice))
        raise ValueError(
            f"annotators[{row}] is {array[row].tolist()}: a rater twice; expected different ones, "
            f"whose responses can be independent."
        )
    pairs = [(i, j) for i in range(array.shape[1]) for j in range(array.shape[1]) if i != j]
    first = np.concatenate([index[:, i] for i, _ in pairs])
    second = np.concatenate([index[:, j] for _, j in pairs])
    ends, counts = np.unique(np.stack([first, second]), axis=1, return_counts=True)
    return names, np.vstack([ends, counts]).astype(np.int64)


def share_of_design(names: NDArray, design: IntArray) -> float:
    """The share of `self_pair_share`, from what `pair_design` gives."""
    size = len(names)
    first, second, counts = design
    weights = np.bincount(first, counts, minlength=size)
    scaled = counts / np.sqrt(weights[first] * weights[second])
    if size <= _DENSE_LIMIT:
        matrix = np.zeros((size, size))
        matrix[first, second] = scaled
        least = float(np.linalg.eigvalsh(matrix)[0])
    else:
        # Here, so that `import secondguess` does not load them.
        from scipy.sparse import coo_array
        from scipy.sparse.linalg import eigsh

        sparse = coo_array((scaled, (first, second)), shape=(size, size)).tocsr()
        values = eigsh(sparse, k=1, which="SA", v0=np.arange(1.0, size + 1))[0]
        least = float(values[0])
    gap = min(max(-least, 0.0), 1.0)
    return gap / (1 + gap)
