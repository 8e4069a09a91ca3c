"""Where a row goes, by its position alone: a fixed pseudo-random function.

Files come sorted, joined from several sources, or grouped. What is chosen along such a file, the
stakes of a bet or the rows that pick a cut-off, must not depend on that order. So rows are
scattered over parts by hashing their position, and the parts are taken in a random order: whatever
the order of the file, a part is a random sample of it. The hash sees the position only, so that it
does not matter either who reads the row and when, nor how many rows there will be.

The seed is part of the chance that a guarantee speaks of. Fix it before looking, and never choose
it by the result.

Positions are whole numbers from 0. A stretch of them is given by its start and its length.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess._arrays import IntArray

UnsignedArray = NDArray[np.uint64]

_PART_BITS = 9

LANES = 4
"""Positions that share a hash: each takes 16 of its 64 bits."""

NUM_PARTS = 1 << _PART_BITS
"""How many parts rows are scattered over."""

_PLACE, _ORDER, _ASIDE, _SAMPLE = range(4)


def parts_of(start: int, num_rows: int, seed: int = 0) -> IntArray:
    """The part that each row of a stretch belongs to: any of `NUM_PARTS` with equal probability.

    >>> parts = parts_of(start=0, num_rows=100_000)
    >>> (parts_of(500, 100) == parts[500:600]).all()
    np.True_
    >>> round(float(np.mean(parts < NUM_PARTS // 4)), 2)
    0.25
    """
    words = np.arange(start // LANES, -(-(start + num_rows) // LANES), dtype=np.uint64)
    offset = start % LANES
    bits = hashed(words, _PLACE, seed).view(np.uint16)[offset : offset + num_rows]
    return (bits >> (16 - _PART_BITS)).astype(np.int64)


def order_of_parts(content: bytes, seed: int = 0) -> IntArray:
    """The place of each part in the order in which they are taken.

    It is drawn anew for every calibration set, from what the set holds. Were it the same for all, a
    sorted set would always be read in the same order of ranks, and one unlucky order would fail for
    all such sets instead of for its share of them.

    >>> sorted(order_of_parts(b"some rows")) == list(range(NUM_PARTS))
    True
    """
    digest = int.from_bytes(blake2b(content, digest_size=8).digest(), "little")
    keys = hashed(np.arange(NUM_PARTS, dtype=np.uint64), _ORDER, seed ^ digest)
    return np.argsort(np.argsort(keys))


def set_aside(start: int, num_rows: int, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """Which rows of a stretch are set aside to choose a cut-off: a random `share` of them.

    >>> round(float(set_aside(0, 100_000, share=0.2).mean()), 2)
    0.2
    """
    return keys_below(keys_of(start, num_rows, seed), share)


def sampled(start: int, num_rows: int, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """A random `share` of the rows of a stretch, drawn apart from those that are set aside.

    >>> both = sampled(0, 100_000, share=0.3) & set_aside(0, 100_000, share=0.2)
    >>> round(float(both.mean()), 2)
    0.06
    """
    positions = np.arange(start, start + num_rows, dtype=np.uint64)
    return keys_below(hashed(positions, _SAMPLE, seed), share)


def keys_of(start: int, num_rows: int, seed: int = 0) -> UnsignedArray:
    """A pseudo-random number for each row of a stretch, which decides whether it is set aside."""
    return hashed(np.arange(start, start + num_rows, dtype=np.uint64), _ASIDE, seed)


def keys_below(keys: UnsignedArray, share: float) -> NDArray[np.bool_]:
    """Which keys lie in the lowest `share` of all possible ones."""
    return keys < np.uint64(min(int(share * 2**64), 2**64 - 1))


def group_keys(groups: ArrayLike) -> UnsignedArray:
    """A pseudo-random number for each entry: a function of the text of its group's name.

    >>> first, second, third = group_keys(["a", 7, "a"])
    >>> first == third, first == second
    (np.True_, np.False_)
    """
    names, inverse = np.unique(np.asarray(groups), return_inverse=True)
    digests = b"".join(blake2b(str(n).encode(), digest_size=8).digest() for n in names.tolist())
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)[inverse]


def hashed(numbers: UnsignedArray, salt: int, seed: int) -> UnsignedArray:
    """A pseudo-random number for each number, other ones for every salt and seed."""
    digest = blake2b(f"{salt} {seed}".encode(), digest_size=8).digest()
    return mixed(numbers + np.uint64(int.from_bytes(digest, "little")))


def mixed(numbers: UnsignedArray) -> UnsignedArray:
    """SplitMix64 of each number: a bijection of 64 bits whose output passes for random."""
    bits = numbers * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
