"""The exactly calibrated pair predictor of Frozen Lake: what a perfect model would answer.

The experts are known, so a calibrated predictor is a mixture of them: of one expert if the unsafe
cell is visible, of all nine with equal weights if it is hidden, reweighted by Bayes' rule with
whatever has been seen of the first walk and of the second one so far. It has the two callables of
a trained model, `sample` and `score`, over the same texts, so that decoders, metrics and figures
run on the truth too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess.experiments.frozen_lake.walks import (
    HIDDEN,
    MAX_STEPS,
    STOPPED,
    VIEW_OF,
    cells_of,
    log_probs,
    parse_texts,
    walk_text,
)
from secondguess.experiments.frozen_lake.world import (
    GOAL,
    NEXT_CELL,
    NUM_EXPERTS,
    START,
    ExpertConfig,
    expert_policies,
)
from secondguess.theory.records import SelfCheatScores


class ExactPredictor:
    """The calibrated predictor of pairs of walks, in closed form.

    >>> from secondguess.experiments.frozen_lake.walks import view_text
    >>> predictor = ExactPredictor()
    >>> around = "c0 r2 up c0 r1 up c0 r0 " + " ".join(f"right c{c} r0" for c in range(1, 5))
    >>> around += " down c4 r1 down FINISH"
    >>> across = "c0 r2 right c1 r2 right c2 r2 right c3 r2 right FINISH"
    >>> scores = predictor.score([view_text(HIDDEN)] * 2, [around, across])
    >>> scores.epistemic_confidence.round(3)
    array([0.992, 0.665])

    Args:
        config: the experts to mix.
        max_steps: the longest walk.
    """

    def __init__(self, config: ExpertConfig | None = None, *, max_steps: int = MAX_STEPS) -> None:
        self.policies = expert_policies(config)
        self.max_steps = max_steps

    def sample(
        self, prompts: Sequence[str], rng: np.random.Generator, *, temperature: float = 1.0
    ) -> list[str]:
        """One walk per prompt, actions drawn from p(action | earlier ones)^(1 / temperature)."""
        actions = self.sample_walks(_views(prompts), rng, temperature=temperature)
        return [walk_text(walk) for walk in actions]

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> SelfCheatScores:
        """Exact log p(y|x) and log p(y|y,x); -inf for texts that are no walks."""
        actions, is_walk = parse_texts(responses, max_steps=self.max_steps)
        scores = self.score_walks(_views(prompts), np.where(is_walk[:, None], actions, STOPPED))
        return SelfCheatScores(
            np.where(is_walk, scores.log_marginal, -np.inf),
            np.where(is_walk, scores.log_self_conditional, -np.inf),
        )

    def score_walks(self, views: IntArray, actions: IntArray) -> SelfCheatScores:
        """As `score`, from arrays: log mean_k p_k(y), and log mean_k p_k(y)^2 minus that."""
        weights, walk_log_probs = log_prior(views), log_probs(self.policies, actions)
        log_marginal = np.logaddexp.reduce(weights + walk_log_probs, axis=1)
        log_pair = np.logaddexp.reduce(weights + 2 * walk_log_probs, axis=1)
        impossible = np.isneginf(log_marginal)
        return SelfCheatScores(
            log_marginal,
            np.where(impossible, -np.inf, log_pair - np.where(impossible, 0, log_marginal)),
        )

    def log_posterior(self, views: IntArray, actions: IntArray) -> FloatArray:
        """Log-weights of the experts after one whole walk, `(n, 9)`; y2 is predicted with them."""
        weights = log_prior(views) + log_probs(self.policies, actions)
        return weights - np.logaddexp.reduce(weights, axis=1, keepdims=True)

    def action_probs(self, log_weights: FloatArray, actions: IntArray) -> FloatArray:
        """p(action | earlier actions of this walk), `(n, max_steps, 4)`, 0 after the goal.

        Args:
            log_weights: of the experts before the first step, `(n, 9)`: `log_prior(views)` for y1,
                `log_posterior(views, y1)` for y2.
            actions: the walks.
        """
        cells = cells_of(actions)
        weights = log_weights
        probs = np.zeros((*actions.shape, NEXT_CELL.shape[1]))
        for step, action in enumerate(actions.T):
            moving = np.flatnonzero(action != STOPPED)
            here = self.policies[:, cells[moving, step]]
            probs[moving, step] = _mix(weights[moving], here)
            weights = _reweigh(weights, moving, here, action[moving])
        return probs

    def sample_walks(
        self,
        views: IntArray,
        rng: np.random.Generator,
        *,
        temperature: float = 1.0,
        log_weights: FloatArray | None = None,
    ) -> IntArray:
        """As `sample`, as arrays; `log_weights` as in `action_probs`, the prior by default."""
        weights = log_prior(views) if log_weights is None else log_weights
        cell = np.full(len(views), START)
        actions = np.full((len(views), self.max_steps), STOPPED)
        for step in range(self.max_steps):
            moving = np.flatnonzero(cell != GOAL)
            here = self.policies[:, cell[moving]]
            cumulative = (_mix(weights[moving], here) ** (1 / temperature)).cumsum(axis=1)
            draw = rng.random(len(moving)) * cumulative[:, -1]
            chosen = (draw[:, None] >= cumulative).sum(axis=1)
            weights = _reweigh(weights, moving, here, chosen)
            actions[moving, step] = chosen
            cell[moving] = NEXT_CELL[cell[moving], chosen]
        return actions


def log_prior(views: IntArray) -> FloatArray:
    """Log-weights of the experts before any step, `(n, 9)`.

    >>> np.exp(log_prior(np.array([2, HIDDEN]))).round(2)
    array([[0.  , 0.  , 1.  , 0.  , 0.  , 0.  , 0.  , 0.  , 0.  ],
           [0.11, 0.11, 0.11, 0.11, 0.11, 0.11, 0.11, 0.11, 0.11]])
    """
    matches = views[:, None] == np.arange(NUM_EXPERTS)
    visible = np.where(matches, 0.0, -np.inf)
    return np.where((views == HIDDEN)[:, None], -np.log(NUM_EXPERTS), visible)


def _views(prompts: Sequence[str]) -> IntArray:
    for row, prompt in enumerate(prompts):
        if prompt not in VIEW_OF:
            raise ValueError(
                f"prompts[{row}] is {prompt!r}; expected one of the ten views, made by `view_text`."
            )
    return np.array([VIEW_OF[prompt] for prompt in prompts], dtype=np.int64)


def _mix(log_weights: FloatArray, here: FloatArray) -> FloatArray:
    """The mixed policy, `(n, 4)`, of experts whose policies where they stand are `(9, n, 4)`."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("nk,kna->na", weights, here)


def _reweigh(
    log_weights: FloatArray, moving: IntArray, here: FloatArray, chosen: IntArray
) -> FloatArray:
    """The weights after the walks in `moving` have taken their chosen actions."""
    updated = log_weights.copy()
    with np.errstate(divide="ignore"):
        updated[moving] += np.log(here[:, np.arange(len(moving)), chosen]).T
    return updated
