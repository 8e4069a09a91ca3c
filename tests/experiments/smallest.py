"""The smallest networks that the sequence experiments are tried on."""

from __future__ import annotations

from typing import Any

SMALLEST: dict[str, Any] = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "seed": 0}
"""Size and seed, in the words of both the configs and `fresh_transformer`."""

SMALLEST_RUN: dict[str, Any] = SMALLEST | {
    "layout": "positions",
    "num_steps": 4,
    "learning_rate": 1e-3,
    "warmup_steps": 1,
}
"""A whole training, in the words of the configs."""
