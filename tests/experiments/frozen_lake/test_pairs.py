"""Training data of Frozen Lake: tokens, soft targets, and losses against the exact optimum."""

import numpy as np
import pytest
import torch
from experiments.smallest import SMALLEST
from transformers import PreTrainedModel

from secondguess.experiments.frozen_lake.exact import ExactPredictor, log_prior
from secondguess.experiments.frozen_lake.pairs import (
    SOFT_TARGETS,
    LakePairs,
    WalkSource,
    expert_targets,
)
from secondguess.experiments.frozen_lake.walks import (
    HIDDEN,
    STOPPED,
    cells_of,
    log_probs,
    parse_texts,
    roll_out,
    view_text,
    walk_text,
)
from secondguess.experiments.frozen_lake.world import GOAL, NUM_EXPERTS
from secondguess.experiments.sequence_models import fresh_transformer
from secondguess.language.collating import NOT_SCORED, collate_pairs

PREDICTOR = ExactPredictor()
POLICIES = PREDICTOR.policies


def draw(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    experts = rng.integers(NUM_EXPERTS, size=size)
    views = np.where(rng.random(size) < 0.5, HIDDEN, experts)
    return experts, views, roll_out(POLICIES, experts, rng), roll_out(POLICIES, experts, rng)


def random_network(pairs: LakePairs) -> PreTrainedModel:
    model = fresh_transformer(
        pairs.layout.formatter, **SMALLEST, num_positions=256, initializer_range=0.3
    )
    return model.network.eval()


@pytest.mark.parametrize("layout", ["positions", "padded"])
def test_batches_equal_the_formatter(layout):
    pairs = LakePairs(layout)
    formatter = pairs.layout.formatter
    _, views, first, second = draw(30)
    batch = pairs.batch(views, first, second)
    rows = [
        formatter.encode(
            {"prompt": view_text(view), "responses": [walk_text(first[i]), walk_text(second[i])]}
        )
        for i, view in enumerate(views)
    ]
    expected = collate_pairs(
        [formatter.lay_out(row.prompt, *row.responses) for row in rows], end=formatter.end
    )
    inside = expected["attention_mask"].bool()
    for name in ("input_ids", "position_ids", "labels"):
        assert torch.equal(batch[name][inside], expected[name][inside])
    assert (batch["labels"][~inside] == NOT_SCORED).all()


def test_soft_targets_stand_on_the_actions_of_their_expert():
    pairs = LakePairs()
    experts, views, first, second = draw(40)
    targets = tuple(expert_targets(POLICIES, experts, walk) for walk in (first, second))
    batch = pairs.batch(views, first, second, targets=targets)  # pyright: ignore[reportArgumentType]
    probs = batch[SOFT_TARGETS].numpy()
    labels = batch["labels"].numpy()
    is_action = np.isin(labels, pairs.action_ids)
    assert (probs[~is_action] == 0).all()
    np.testing.assert_allclose(probs[is_action].sum(axis=1), 1, atol=1e-6)
    # The drawn action's target probabilities multiply to p_k(y1) p_k(y2).
    taken = np.argmax(labels[..., None] == pairs.action_ids, axis=2)
    chosen = np.take_along_axis(probs, taken[..., None], axis=2)[..., 0]
    total = np.log(np.where(is_action, chosen, 1)).sum(axis=1)
    rows = np.arange(40)
    expected = sum(log_probs(POLICIES, walk)[rows, experts] for walk in (first, second))
    np.testing.assert_allclose(total, expected, rtol=1e-5)


@pytest.mark.statistical
def test_soft_and_hard_losses_have_one_expectation():
    """1,000 pairs; a mean difference beyond 5 standard errors has probability 4e-5 (t, 24)."""
    pairs = LakePairs()
    network = random_network(pairs)
    losses = {}
    for soft in (False, True):
        source = pairs.source(POLICIES, WalkSource(batch_size=40, seed=0, soft_targets=soft))
        with torch.no_grad():
            losses[soft] = np.array([pairs.loss(network, source(i)).item() for i in range(25)])
    # Both see the same walks, so walk lengths cancel in the difference.
    difference = losses[True] - losses[False]
    assert abs(difference.mean()) < 5 * difference.std(ddof=1) / np.sqrt(25)
    assert difference.std() > 0


def test_loss_without_soft_targets_is_the_nats_of_the_pair():
    pairs = LakePairs()
    network = random_network(pairs)
    _, views, first, second = draw(12)
    first_log_prob, second_log_prob = pairs.layout.log_probs(
        network, pairs.view_tokens[views], pairs.walk_ids(first), pairs.walk_ids(second)
    )
    loss = pairs.loss(network, pairs.batch(views, first, second))
    assert loss.item() == pytest.approx(-(first_log_prob + second_log_prob).mean(), rel=1e-5)


def test_the_sampled_experts_action_is_an_unbiased_target_for_the_posterior_mixture():
    """Averaging expert targets over experts with posterior weights gives the exact prediction."""
    _, _, first, second = draw(20)
    hidden = np.full(20, HIDDEN)
    for log_weights, walk in (
        (log_prior(hidden), first),
        (PREDICTOR.log_posterior(hidden, first), second),
    ):
        exact = PREDICTOR.action_probs(log_weights, walk)
        mixed = np.zeros_like(exact)
        cells = cells_of(walk)[:, :-1]
        weights = log_weights.copy()
        for step in range(walk.shape[1]):
            normal = np.exp(weights - weights.max(axis=1, keepdims=True))
            normal /= normal.sum(axis=1, keepdims=True)
            here = POLICIES[:, cells[:, step]].transpose(1, 0, 2)
            mixed[:, step] = (normal[..., None] * here).sum(axis=1)
            with np.errstate(divide="ignore"):
                chosen = np.log(here[np.arange(20), :, walk[:, step]])
            weights = np.where((walk[:, step] == STOPPED)[:, None], weights, weights + chosen)
        walking = walk != STOPPED
        np.testing.assert_allclose(mixed[walking], exact[walking], atol=1e-12)


def test_sources_depend_on_seed_and_step_alone_and_buckets_only_reorder():
    pairs = LakePairs()
    plain = pairs.source(POLICIES, WalkSource(batch_size=32, seed=5))
    bucketed = pairs.source(POLICIES, WalkSource(batch_size=8, seed=5, num_buckets=4))
    decode = pairs.layout.formatter.tokenizer.decode

    def texts(batch: dict[str, torch.Tensor]) -> list[str]:
        return [str(decode(row)).rstrip(" _") for row in batch["input_ids"]]

    parts = [texts(bucketed(step)) for step in (2, 0, 3, 1)]
    assert sorted(text for part in parts for text in part) == sorted(texts(plain(0)))
    bucketed(7)
    assert texts(bucketed(2)) == parts[0]


def test_hidden_share_is_respected():
    pairs = LakePairs()
    source = pairs.source(POLICIES, WalkSource(batch_size=50, seed=0, hidden_share=1.0))
    hidden = torch.from_numpy(pairs.view_tokens[HIDDEN])
    assert (source(0)["input_ids"][:, : len(hidden)] == hidden).all()


def test_walks_end_at_the_goal_or_are_cut():
    _, _, first, _ = draw(200)
    walks, is_walk = parse_texts([walk_text(walk) for walk in first])
    assert is_walk.all()
    ended = cells_of(walks)[:, -1] == GOAL
    assert ended[(walks == STOPPED).any(axis=1)].all()
