"""The 5 x 5 world and its nine experts, solved exactly (appendix F.4.1).

Cells are numbered row by row, row 0 at the top; cell 25 stands for outside the grid. An expert is
named by the position, 0 to 8, of the unsafe cell it knows among the nine cells of the lake.
Axes: policies are `(9 experts, 25 cells, 4 actions)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secondguess._arrays import FloatArray

SIDE = 5
NUM_CELLS = SIDE * SIDE
OUTSIDE = NUM_CELLS
START, GOAL, CENTRE = 10, 14, 12
LAKE = np.array([6, 7, 8, 11, 12, 13, 16, 17, 18])
NUM_EXPERTS = len(LAKE)
ACTIONS = ("up", "down", "left", "right")
PRINTED_DISCOUNT = 0.9
"""What the paper prints, against its own pictures; see `ExpertConfig`."""

_MAX_ITERATIONS = 10_000


def _next_cells() -> np.ndarray:
    """Where each action leads, `(26, 4)`; leaving the grid leads outside, for good."""
    row, column = np.divmod(np.arange(NUM_CELLS), SIDE)
    moves = []
    for step_down, step_right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        to_row, to_column = row + step_down, column + step_right
        inside = (to_row >= 0) & (to_row < SIDE) & (to_column >= 0) & (to_column < SIDE)
        moves.append(np.append(np.where(inside, to_row * SIDE + to_column, OUTSIDE), OUTSIDE))
    return np.stack(moves, axis=1)


NEXT_CELL = _next_cells()
"""Where each action leads, `(26, 4)`."""


@dataclass(frozen=True, kw_only=True)
class ExpertConfig:
    """How the experts weigh the future and chance.

    Attributes:
        discount: the paper prints 0.9, but its pictures need 1.0: with 0.9 even paths that avoid
            the lake tell a lot about the unsafe cell, and nothing passes its threshold of 0.05.
        temperature: weight of the entropy; reward differences count in units of it.
    """

    discount: float = 1.0
    temperature: float = 2.5

    def __post_init__(self) -> None:
        if not 0 < self.discount <= 1:
            raise ValueError(f"discount is {self.discount!r}; expected a number in (0, 1].")
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature!r}; expected a positive number.")


def rewards(expert: int) -> FloatArray:
    """The reward of entering each cell, `(26,)`: -inf for the unsafe cell and the outside.

    >>> rewards(0)[[START, GOAL, CENTRE, LAKE[0], LAKE[1], OUTSIDE]]
    array([ -3.,  40., -10., -inf,  -5., -inf])
    """
    reward = np.full(NUM_CELLS + 1, -3.0)
    reward[LAKE] = -5.0
    reward[CENTRE] = -10.0
    reward[GOAL] = 40.0
    reward[[LAKE[expert], OUTSIDE]] = -np.inf
    return reward


def expert_policies(config: ExpertConfig | None = None) -> FloatArray:
    """The optimal entropy-regularised policy of each expert, `(9, 25, 4)`.

    Iterates V(s) = T log sum_a exp(Q(s, a) / T) with Q(s, a) = r(s') + discount V(s') until V moves
    by less than 1e-12; the policy is exp((Q - V) / T). Entering the goal ends the walk, so V is 0
    there and its row of the policy is 0.

    >>> policies = expert_policies()
    >>> dict(zip(ACTIONS, policies[4, START].round(3).tolist()))  # the centre is unsafe
    {'up': 0.41, 'down': 0.41, 'left': 0.0, 'right': 0.181}
    """
    config = config or ExpertConfig()
    return np.stack([_solve(rewards(expert), config) for expert in range(NUM_EXPERTS)])


def _solve(reward: FloatArray, config: ExpertConfig) -> FloatArray:
    """One expert's policy, `(25, 4)`, by soft value iteration."""
    value = np.zeros(NUM_CELLS + 1)
    for _ in range(_MAX_ITERATIONS):
        action_value = (reward + config.discount * value)[NEXT_CELL[:NUM_CELLS]]
        scaled = action_value / config.temperature
        new_value = np.append(config.temperature * np.logaddexp.reduce(scaled, axis=1), 0.0)
        new_value[GOAL] = 0.0
        moved = np.abs(new_value - value).max()
        value = new_value
        if moved < 1e-12:
            policy = np.exp(scaled - value[:NUM_CELLS, None] / config.temperature)
            policy[GOAL] = 0.0
            return policy / np.maximum(policy.sum(axis=1, keepdims=True), 1e-300)
    raise RuntimeError(
        f"soft value iteration has not settled after {_MAX_ITERATIONS} sweeps with {config}; "
        f"the walk is too rewarding to end: lower the temperature or the discount."
    )
