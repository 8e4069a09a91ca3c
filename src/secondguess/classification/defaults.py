"""Settings of a `PairClassifier` that follow the data, where the user states none.

Few rows get a small network, frequent looks at the held-out rows and little patience: there the
linear start is hard to improve, and a long training only finds that out later.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """How large a network is and how long it is trained; see `PairClassifier` for the names."""

    width: int
    num_blocks: int
    num_steps: int
    validate_every: int
    patience: int
    batch_size: int
    learning_rate: float
    weight_decay: float


def network_beside_regression(num_rows: int) -> NetworkSettings:
    """For a network that adds to a logistic regression what is not linear.

    >>> network_beside_regression(1000).width, network_beside_regression(10**6).width
    (32, 128)
    """
    small, large = num_rows < 3000, num_rows >= 20_000
    return NetworkSettings(
        width=32 if small else 128 if large else 64,
        num_blocks=1,
        num_steps=300 if small else 2000 if large else 600,
        validate_every=20 if small else 100 if large else 25,
        patience=2 if small else 6,
        batch_size=256,
        learning_rate=1e-3,
        weight_decay=0.1,
    )


def network_alone() -> NetworkSettings:
    """For a network that learns everything by itself: the one of appendix F.1, or the user's own.

    >>> network_alone().num_steps
    2000
    """
    return NetworkSettings(
        width=128,
        num_blocks=3,
        num_steps=2000,
        validate_every=50,
        patience=10,
        batch_size=256,
        learning_rate=1e-3,
        weight_decay=1e-4,
    )
