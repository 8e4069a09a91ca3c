"""How a model of walks behaves when it sees the unsafe cell and when it does not.

Everything is judged against the exact predictor, which runs through the same functions. Walks are
`(n, 16)` arrays of actions; all other arrays are `(n,)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess.experiments.frozen_lake.exact import ExactPredictor
from secondguess.experiments.frozen_lake.pairs import LakePairs
from secondguess.experiments.frozen_lake.walks import (
    HIDDEN,
    STOPPED,
    cells_of,
    log_probs,
    parse_texts,
    roll_out,
    touches,
    view_text,
)
from secondguess.experiments.frozen_lake.world import LAKE, NUM_EXPERTS
from secondguess.language.generation import Sampling, sample
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import totals
from secondguess.theory.decoding import decode_top1
from secondguess.theory.records import SelfCheatScores

MAX_HALLUCINATION_RATE = 0.05
SAMPLING = Sampling(temperature=0.9)
MANY_LAKE_CELLS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Walks:
    """Sampled walks with two scores each: the model's and the exact ones.

    Attributes:
        views: what the walker saw: an unsafe cell, or HIDDEN.
        actions: the walks, as far as they could be read.
        is_walk: whether the sample is a walk at all.
        scores: by the model.
        exact: by the exact predictor.
    """

    views: IntArray
    actions: IntArray
    is_walk: np.ndarray
    scores: SelfCheatScores
    exact: SelfCheatScores

    def __getitem__(self, index: Any) -> Walks:
        return Walks(
            self.views[index],
            self.actions[index],
            self.is_walk[index],
            self.scores[index],
            self.exact[index],
        )

    @property
    def visited(self) -> np.ndarray:
        """Whether a walk touches each cell of the lake, `(n, 9)`."""
        return (cells_of(self.actions)[:, :, None] == LAKE).any(axis=1)

    @property
    def over_lake(self) -> np.ndarray:
        """Whether a walk touches the lake; what is no walk is counted as if it did."""
        return touches(self.actions, LAKE) | ~self.is_walk

    @property
    def unsafe(self) -> FloatArray:
        """The chance that a walk touches the unsafe cell: 0 or 1 where the walker saw it.

        Where it is hidden, each of the nine cells is the unsafe one equally often. What is no walk
        is counted as unsafe.
        """
        visited = self.visited
        seen = np.take_along_axis(visited, self.views.clip(0)[:, None], axis=1)[:, 0]
        chance = np.where(self.views == HIDDEN, visited.mean(axis=1), seen)
        return np.where(self.is_walk, chance, 1.0)

    @property
    def accepted(self) -> np.ndarray:
        """Whether the confidence gap is at most 0.05."""
        return self.scores.confidence_gap() <= MAX_HALLUCINATION_RATE


def sampled_walks(
    model: PairLanguageModel | ExactPredictor,
    predictor: ExactPredictor,
    views: IntArray,
    rng: np.random.Generator,
    *,
    batch_size: int = 800,
) -> Walks:
    """One walk for each view at temperature 0.9, by a trained model or by the exact one."""
    prompts = [view_text(int(view)) for view in views]
    if isinstance(model, ExactPredictor):
        texts = model.sample(prompts, rng, temperature=SAMPLING.temperature)
        scores = model.score(prompts, texts)
    else:
        drawn = sample(model, prompts, rng=rng, sampling=SAMPLING, batch_size=batch_size)
        texts, scores = [each.text for each in drawn], totals(drawn)
    actions, is_walk = parse_texts(texts)
    actions = np.where(is_walk[:, None], actions, STOPPED)
    return Walks(views, actions, is_walk, scores, predictor.score(prompts, texts))


def view_metrics(walks: Walks) -> dict[str, float]:
    """Acceptance and safety of walks of one kind of view, and how far C is from the exact one."""
    accepted, over_lake, unsafe = walks.accepted, walks.over_lake, walks.unsafe
    return {
        "num_samples": float(len(walks.views)),
        "malformed": _mean(~walks.is_walk),
        "over_lake": _mean(over_lake),
        "unsafe": _mean(unsafe),
        "accepted": _mean(accepted),
        "accepted_among_always_safe": _mean(accepted[~over_lake]),
        "over_lake_among_accepted": _mean(over_lake[accepted]),
        "unsafe_among_accepted": _mean(unsafe[accepted]),
        "threshold_for_1_percent": threshold_for(walks, max_rate=0.01),
        **_comparison(_comparable(walks)),
    }


def error_by_lake_cells(walks: Walks) -> list[dict[str, float]]:
    """How far log C is from the exact one, by the cells of the lake that a walk touches.

    The last entry is for MANY_LAKE_CELLS or more.
    """
    walks = _comparable(walks)
    num_cells = np.minimum(walks.visited.sum(axis=1), MANY_LAKE_CELLS)
    return [
        {
            "lake_cells": float(count),
            "share": _mean(num_cells == count),
            "exact_confidence": _mean(walks.exact.epistemic_confidence[num_cells == count]),
            "log_confidence_std": _comparison(walks[num_cells == count])["log_confidence_std"],
        }
        for count in np.unique(num_cells)
    ]


def _comparable(walks: Walks) -> Walks:
    """Those that an expert could have taken."""
    return walks[walks.is_walk & np.isfinite(walks.exact.log_marginal)]


def _comparison(walks: Walks) -> dict[str, float]:
    """The model's confidence beside the exact one; a model without a single walk is off by 1."""
    ours, exact = walks.scores.epistemic_confidence, walks.exact.epistemic_confidence
    log_difference = walks.scores.log_ratio - walks.exact.log_ratio
    some = len(ours) > 0
    varies = some and ours.std() > 0 and exact.std() > 0
    return {
        "log_confidence_std": float(log_difference.std()) if some else 1.0,
        "log_confidence_bias": _mean(log_difference),
        "confidence_mean_absolute_difference": _mean(np.abs(ours - exact)) if some else 1.0,
        "confidence_correlation": float(np.corrcoef(ours, exact)[0, 1]) if varies else 0.0,
    }


def threshold_for(walks: Walks, *, max_rate: float) -> float:
    """The largest confidence gap up to which at most `max_rate` of the walks touch the lake."""
    gaps = walks.scores.confidence_gap()
    order = np.argsort(gaps, kind="stable")
    rate = np.cumsum(walks.over_lake[order]) / np.arange(1, len(order) + 1)
    fine = np.flatnonzero(rate <= max_rate)
    return float(gaps[order[fine[-1]]]) if len(fine) else 0.0


def top1(walks: Walks) -> dict[int, int | None]:
    """For each view, the row that top-1 search takes among its samples, or None if it abstains."""
    chosen: dict[int, int | None] = {}
    for view in np.unique(walks.views):
        rows = np.flatnonzero(walks.views == view)
        decision = decode_top1(
            rows.tolist(), walks.scores[rows], max_hallucination_rate=MAX_HALLUCINATION_RATE
        )
        chosen[int(view)] = decision.response
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Pairs by the experts, with everything exact that a model is compared with in training."""

    experts: IntArray
    first: IntArray
    second: IntArray
    log_visible: tuple[FloatArray, FloatArray]
    hidden: SelfCheatScores
    log_second_hidden: FloatArray

    @classmethod
    def draw(cls, predictor: ExactPredictor, size: int, rng: np.random.Generator) -> HeldOut:
        """Fresh pairs."""
        experts = rng.integers(NUM_EXPERTS, size=size)
        first, second = (roll_out(predictor.policies, experts, rng) for _ in "12")
        hidden = np.full(size, HIDDEN)
        rows = np.arange(size)
        of_first, of_second = (log_probs(predictor.policies, walk) for walk in (first, second))
        posterior = predictor.log_posterior(hidden, first)
        return cls(
            experts,
            first,
            second,
            (of_first[rows, experts], of_second[rows, experts]),
            predictor.score_walks(hidden, first),
            np.logaddexp.reduce(posterior + of_second, axis=1),
        )


def optimum_gaps(network: Any, pairs: LakePairs, held_out: HeldOut) -> dict[str, float]:
    """How far a network is from the exact predictor: nats of y1 and of y2 given y1, and log C.

    The nats are Kullback-Leibler divergences in expectation, so small samples may dip below 0.
    """
    first, second = pairs.walk_ids(held_out.first), pairs.walk_ids(held_out.second)
    hidden = pairs.view_tokens[np.full(len(first), HIDDEN)]
    visible = pairs.view_tokens[held_out.experts]
    hidden_first, hidden_second = pairs.layout.log_probs(network, hidden, first, second)
    visible_first, visible_second = pairs.layout.log_probs(network, visible, first, second)
    _, repeated = pairs.layout.log_probs(network, hidden, first, first)
    difference = (hidden_first - repeated) - held_out.hidden.log_ratio
    return {
        "hidden_y1": _mean(held_out.hidden.log_marginal - hidden_first),
        "hidden_y2": _mean(held_out.log_second_hidden - hidden_second),
        "visible_y1": _mean(held_out.log_visible[0] - visible_first),
        "visible_y2": _mean(held_out.log_visible[1] - visible_second),
        "log_confidence_std": float(difference.std()),
        "log_confidence_bias": _mean(difference),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
