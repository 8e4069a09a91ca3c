"""Which digit is asked about, how often, and what that digit is (appendix F.3.1)."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from secondguess._arrays import FloatArray, IntArray, fail_at

NUM_OFFSETS = 9_999
"""Offsets run from 1, the first digit after the decimal point, to 9,999."""

_RATES = (0.001, 0.1)


@cache
def digits_of_pi() -> IntArray:
    """The digits after the decimal point by offset, `(10_000,)`; entry 0, never asked, is the 3.

    >>> digits_of_pi()[:10]
    array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
    """
    import mpmath  # only this function needs it

    guard = 20  # decimals beyond the last one used, so that rounding cannot reach it
    with mpmath.workdps(NUM_OFFSETS + 1 + guard):
        text = str(mpmath.nstr(mpmath.mp.pi, NUM_OFFSETS + 1 + guard // 2))
    digits = np.array([int(char) for char in text.replace(".", "")[: NUM_OFFSETS + 1]])
    digits.flags.writeable = False
    return digits


@cache
def offset_probs(uniform_share: float = 0.0) -> FloatArray:
    """How often each offset is asked about, `(10_000,)`, entry 0 being 0.

    Q is uniform on (0.001, 0.1) and the offset geometric with rate Q, kept if below 10,000.
    Integrating q (1 - q)^(i - 1) over q gives F(0.999) - F(0.9) up to a constant, with
    F(u) = u^i / i - u^(i + 1) / (i + 1).

    >>> offset_probs()[[1, 100, 1000]].round(6)
    array([5.05e-02, 9.95e-04, 7.00e-06])

    Args:
        uniform_share: the share of questions that are about any digit, all alike, in place of the
            paper's.
    """
    offsets = np.arange(1, NUM_OFFSETS + 1, dtype=np.float64)

    def integral_to(u: float) -> FloatArray:
        return u**offsets / offsets - u ** (offsets + 1) / (offsets + 1)

    lowest, highest = _RATES
    weights = integral_to(1 - lowest) - integral_to(1 - highest)
    mixed = (1 - uniform_share) * weights / weights.sum() + uniform_share / NUM_OFFSETS
    return np.concatenate([[0.0], mixed])


def sample_offsets(uniforms: FloatArray, *, uniform_share: float = 0.0) -> IntArray:
    """Offsets as the training data asks about them.

    >>> sample_offsets(np.random.default_rng(0).random(5))
    array([25,  7,  1,  1, 51])

    Args:
        uniforms: a number from 0 up to 1 for each; random ones give independent offsets.
        uniform_share: see `offset_probs`.
    """
    cumulative = offset_probs(uniform_share).cumsum()
    return np.searchsorted(cumulative / cumulative[-1], uniforms, side="right")


def question(offset: int) -> str:
    """The question about one digit, its offset padded to four places.

    >>> question(14)
    'Tell me about digit 0 0 1 4 of pi.'
    """
    fail_at("offset", np.array(not 1 <= offset <= NUM_OFFSETS), np.array(offset), "1 to 9999")
    return f"Tell me about digit {' '.join(f'{offset:04d}')} of pi."


def digits_at(offsets: ArrayLike) -> IntArray:
    """The digits at some offsets.

    >>> digits_at([12, 15, 48, 126])
    array([9, 3, 5, 4])
    """
    array = np.asarray(offsets)
    fail_at("offsets", (array < 1) | (array > NUM_OFFSETS), array, "an offset from 1 to 9999")
    return digits_of_pi()[array]
