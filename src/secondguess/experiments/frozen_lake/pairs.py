"""Pairs of walks by one expert as tokens: the training data of the Frozen Lake model.

With `soft_targets` the loss compares the model's next action with the action probabilities of the
expert who walks instead of the one action that was drawn. The expectation is the same and most of
the noise is gone, but it is no longer imitation of demonstrations alone: it is a labelled option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from secondguess._arrays import FloatArray, IntArray
from secondguess.experiments.frozen_lake.walks import (
    HIDDEN,
    MAX_STEPS,
    PAD,
    STOPPED,
    VOCABULARY,
    cells_of,
    roll_out,
    view_text,
    walk_tokens,
)
from secondguess.experiments.frozen_lake.world import ACTIONS, NUM_CELLS, NUM_EXPERTS
from secondguess.language.collating import NOT_SCORED, Batch
from secondguess.language.formatting import Layout, PairFormat, PairFormatter
from secondguess.language.pair_arrays import PairLayout
from secondguess.language.tokenizer import word_tokenizer

SEPARATOR = "<SEP>"
RESPONSE_LENGTH = 3 * MAX_STEPS + 2
SOFT_TARGETS = "action_probs"
"""The key of a batch under which soft targets are, `(n, tokens, 4)`."""


@dataclass(frozen=True, kw_only=True)
class WalkSource:
    """How pairs of walks are drawn.

    Attributes:
        batch_size: pairs per step.
        seed: of all draws.
        hidden_share: the share of pairs whose view hides the unsafe cell.
        soft_targets: whether batches hold the expert's action probabilities.
        num_buckets: pairs are drawn for this many steps at once and given out by length, so that
            batches have little padding; the pairs of those steps together are as drawn.
    """

    batch_size: int
    seed: int
    hidden_share: float = 0.5
    soft_targets: bool = False
    num_buckets: int = 1


class LakePairs:
    """Views and walks as tokens.

    >>> pairs = LakePairs()
    >>> print(pairs.layout.formatter.tokenizer.decode(pairs.view_tokens[HIDDEN]))
    <BOS> P P P P P P ? ? ? P S ? ? ? G P ? ? ? P P P P P P <SEP>

    The paper's examples have no `<BOS>`; it is the same in every example.

    Args:
        layout: how pairs are laid out; the paper's is `padded`.
    """

    def __init__(self, layout: Layout = "positions") -> None:
        words = [SEPARATOR, *(word for word in VOCABULARY if word != PAD)]
        formatter = PairFormatter(
            word_tokenizer(words),
            PairFormat(response_length=RESPONSE_LENGTH, layout=layout, separator=SEPARATOR),
        )
        ids = formatter.tokenizer.get_vocab()
        self.word_ids = np.array([ids[word] for word in VOCABULARY])
        self.action_ids = np.array([ids[action] for action in ACTIONS])
        # Row HIDDEN is the last one, so views index it as they are.
        self.view_tokens = np.array(
            [formatter.prompt_tokens(view_text(view)) for view in (*range(NUM_EXPERTS), HIDDEN)]
        )
        self.layout = PairLayout(formatter=formatter, prompt_length=NUM_CELLS + 2)

    def walk_ids(self, actions: IntArray) -> IntArray:
        """The tokens of each walk, `(n, 50)`, filled with end tokens."""
        return self.word_ids[walk_tokens(actions)]

    def batch(
        self,
        views: IntArray,
        first: IntArray,
        second: IntArray,
        *,
        targets: tuple[FloatArray, FloatArray] | None = None,
    ) -> Batch:
        """The batch of pairs of walks; `targets` are action probabilities `(n, 16, 4)` of each."""
        batch = self.layout.batch(
            self.view_tokens[views], self.walk_ids(first), self.walk_ids(second)
        )
        if targets is not None:
            # Actions come in the order of the steps, row by row, in labels and targets alike.
            is_action = np.isin(batch["labels"].numpy(), self.action_ids)
            probs = np.zeros((*is_action.shape, len(ACTIONS)), dtype=np.float32)
            taken = np.concatenate([first, second], axis=1) != STOPPED
            probs[is_action] = np.concatenate(targets, axis=1)[taken]
            batch[SOFT_TARGETS] = torch.from_numpy(probs)
        return batch

    def source(self, policies: FloatArray, config: WalkSource) -> Callable[[int], Batch]:
        """A function from the step to its batch: fresh walks, two by each expert drawn."""

        @lru_cache(maxsize=1)
        def drawn(group: int) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
            rng = np.random.default_rng([config.seed, group])
            size = config.batch_size * config.num_buckets
            experts = rng.integers(NUM_EXPERTS, size=size)
            first, second = (roll_out(policies, experts, rng) for _ in "12")
            views = np.where(rng.random(size) < config.hidden_share, HIDDEN, experts)
            num_steps = (first != STOPPED).sum(axis=1) + (second != STOPPED).sum(axis=1)
            buckets = np.argsort(num_steps, kind="stable").reshape(config.num_buckets, -1)
            return experts, first, second, views, rng.permutation(buckets)

        def batch_at(step: int) -> Batch:
            group, bucket = divmod(step, config.num_buckets)
            experts, first, second, views, buckets = drawn(group)
            rows = buckets[bucket]
            targets = None
            if config.soft_targets:
                targets = (
                    expert_targets(policies, experts[rows], first[rows]),
                    expert_targets(policies, experts[rows], second[rows]),
                )
            return self.batch(views[rows], first[rows], second[rows], targets=targets)

        return batch_at

    def loss(self, network: PreTrainedModel, batch: Batch) -> Tensor:
        """Nats of a pair, averaged over the batch; soft targets are used where a batch has them."""
        logits = self.layout.response_logits(network, batch)
        labels = batch["labels"][:, self.layout.prompt_length :]
        scored = labels != NOT_SCORED
        log_probs = functional.log_softmax(logits[scored].float(), dim=-1)
        chosen = log_probs.gather(1, labels[scored][:, None]).squeeze(1)
        if SOFT_TARGETS in batch:
            probs = batch[SOFT_TARGETS][:, self.layout.prompt_length :][scored]
            expected = (probs * log_probs[:, self.action_ids]).sum(dim=1)
            chosen = torch.where(probs.sum(dim=1) > 0, expected, chosen)
        return -chosen.sum() / len(labels)


def expert_targets(policies: FloatArray, experts: IntArray, actions: IntArray) -> FloatArray:
    """The action probabilities of the expert at each step of its walk, `(n, 16, 4)`."""
    return policies[experts[:, None], cells_of(actions)[:, :-1]]
