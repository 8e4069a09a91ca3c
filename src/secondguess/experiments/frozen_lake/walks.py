"""Walks across the lake: roll-outs, their probabilities, and their tokens (appendix F.4.2).

A batch of walks is an integer array of actions, `(n, max_steps)`, with STOPPED after the goal is
entered. A walk that has not got there after `max_steps` steps is cut and is a response like any
other. As tokens, a step is three words (column, row, action) and arrival is the word FINISH.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secondguess._arrays import FloatArray, IntArray, fail_at
from secondguess.experiments.frozen_lake.world import (
    ACTIONS,
    GOAL,
    LAKE,
    NEXT_CELL,
    NUM_CELLS,
    NUM_EXPERTS,
    OUTSIDE,
    SIDE,
    START,
)

MAX_STEPS = 16
STOPPED = -1
HIDDEN = -1
"""The view in which every cell of the lake looks alike; other views are numbered as experts are."""

PAD, FINISH = "_", "FINISH"
VOCABULARY = (
    PAD,
    FINISH,
    *ACTIONS,
    *(f"c{column}" for column in range(SIDE)),
    *(f"r{row}" for row in range(SIDE)),
    *"PSGIC?",
)
"""Every word of views and walks; the separator between them belongs to the pair format."""

WORD_ID = {word: i for i, word in enumerate(VOCABULARY)}
_FIRST_ACTION, _FIRST_COLUMN, _FIRST_ROW = WORD_ID["up"], WORD_ID["c0"], WORD_ID["r0"]


def roll_out(
    policies: FloatArray,
    experts: IntArray,
    rng: np.random.Generator,
    *,
    max_steps: int = MAX_STEPS,
) -> IntArray:
    """One walk by each of the named experts, `(n, max_steps)`.

    >>> from secondguess.experiments.frozen_lake.world import expert_policies
    >>> walks = roll_out(expert_policies(), np.array([0, 4]), np.random.default_rng(0))
    >>> print(walk_text(walks[1]))
    c0 r2 up c0 r1 up c0 r0 right c1 r0 right c2 r0 right c3 r0 down
    c3 r1 up c3 r0 down c3 r1 right c4 r1 down FINISH
    """
    cumulative = policies.cumsum(axis=2)
    cell = np.full(len(experts), START)
    actions = np.full((len(experts), max_steps), STOPPED)
    for step in range(max_steps):
        walking = np.flatnonzero(cell != GOAL)
        here = cumulative[experts[walking], cell[walking]]
        # Scaling the draw by the last entry keeps rounding from choosing an impossible action.
        draw = rng.random(len(walking)) * here[:, -1]
        chosen = (draw[:, None] >= here).sum(axis=1)
        actions[walking, step] = chosen
        cell[walking] = NEXT_CELL[cell[walking], chosen]
    return actions


def cells_of(actions: IntArray) -> IntArray:
    """The cell before each action and after the last one, `(n, max_steps + 1)`."""
    cells = np.full((len(actions), actions.shape[1] + 1), START)
    for step, action in enumerate(actions.T):
        moved = NEXT_CELL[cells[:, step], action]
        cells[:, step + 1] = np.where(action == STOPPED, cells[:, step], moved)
    return cells


def log_probs(policies: FloatArray, actions: IntArray) -> FloatArray:
    """The log-probability of each walk under each expert, `(n, 9)`, -inf where it would not go."""
    with np.errstate(divide="ignore"):
        log_policies = np.log(policies)
    cells = cells_of(actions)[:, :-1]
    total = np.zeros((len(actions), NUM_EXPERTS))
    for step in range(actions.shape[1]):
        moving = np.flatnonzero(actions[:, step] != STOPPED)
        total[moving] += log_policies[:, cells[moving, step], actions[moving, step]].T
    return total


def touches(actions: IntArray, cells: IntArray) -> np.ndarray:
    """Whether each walk enters any of the cells; `touches(actions, LAKE)` is not always safe."""
    return np.logical_or.reduce(np.isin(cells_of(actions), cells), axis=1)


def walk_tokens(actions: IntArray) -> IntArray:
    """The words of each walk as positions in VOCABULARY, `(n, 3 max_steps + 2)`, padded.

    Sixteen steps take 50 tokens: three per step, FINISH, and one pad as in the printed examples.
    """
    count, max_steps = actions.shape
    cells = cells_of(actions)
    tokens = np.full((count, 3 * max_steps + 2), WORD_ID[PAD])
    row, column = np.divmod(cells[:, :-1], SIDE)
    walking = actions != STOPPED
    for place, word in enumerate(
        (_FIRST_COLUMN + column, _FIRST_ROW + row, _FIRST_ACTION + actions)
    ):
        tokens[:, place : 3 * max_steps : 3] = np.where(walking, word, WORD_ID[PAD])
    arrived = np.flatnonzero(cells[:, -1] == GOAL)
    tokens[arrived, 3 * walking[arrived].sum(axis=1)] = WORD_ID[FINISH]
    return tokens


def parse_tokens(tokens: IntArray) -> tuple[IntArray, np.ndarray]:
    """The actions of each row of tokens, and whether the row is a walk at all.

    A row is one if it stays on the grid, names the cells it visits, and ends at the goal or by
    being cut; rows that are not come back as they could be read.
    """
    max_steps = (tokens.shape[1] - 2) // 3
    words = tokens[:, 2 : 3 * max_steps : 3]
    is_action = (words >= _FIRST_ACTION) & (words < _FIRST_ACTION + len(ACTIONS))
    actions = np.where(is_action, words - _FIRST_ACTION, STOPPED)
    cells = cells_of(actions)
    stopped_early = ((actions == STOPPED) & (cells[:, :-1] != GOAL)).any(axis=1)
    is_walk = (walk_tokens(actions) == tokens).all(axis=1) & ~stopped_early
    is_walk &= (cells != OUTSIDE).all(axis=1)
    return actions, is_walk


def walk_text(actions: IntArray) -> str:
    """The words of one walk, without padding."""
    words = [VOCABULARY[token] for token in walk_tokens(actions[None])[0]]
    return " ".join(word for word in words if word != PAD)


def parse_texts(texts: Sequence[str], *, max_steps: int = MAX_STEPS) -> tuple[IntArray, np.ndarray]:
    """As `parse_tokens`, from the words of each walk.

    >>> actions, is_walk = parse_texts(["c0 r2 right c1 r2 right c2 r2 right c3 r2 right FINISH",
    ...                                 "c0 r2 right c4 r4"])
    >>> is_walk
    array([ True, False])
    """
    tokens = np.full((len(texts), 3 * max_steps + 2), WORD_ID[PAD])
    readable = np.ones(len(texts), dtype=bool)
    for row, text in enumerate(texts):
        words = [WORD_ID.get(word, -1) for word in text.split()]
        readable[row] = len(words) <= tokens.shape[1]
        tokens[row, : len(words)] = words[: tokens.shape[1]]
    actions, is_walk = parse_tokens(tokens)
    return actions, is_walk & readable


def view_text(view: int) -> str:
    """What the model sees of the world, one word per cell, row by row.

    >>> view_text(5)
    'P P P P P P I I I P S I I C G P I I I P P P P P P'
    >>> view_text(HIDDEN)
    'P P P P P P ? ? ? P S ? ? ? G P ? ? ? P P P P P P'
    """
    fail_at("view", np.array(not HIDDEN <= view < NUM_EXPERTS), np.array(view), "0 to 8, or HIDDEN")
    words = np.full(NUM_CELLS, "P")
    words[START], words[GOAL] = "S", "G"
    words[LAKE] = "?" if view == HIDDEN else "I"
    if view != HIDDEN:
        words[LAKE[view]] = "C"
    return " ".join(words)


VIEW_OF = {view_text(view): view for view in range(HIDDEN, NUM_EXPERTS)}
"""The view that each text shows."""
