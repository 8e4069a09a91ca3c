"""Frozen Lake: the experts against a linear system, the exact predictor against the theorems."""

from itertools import product

import numpy as np
import pytest

from secondguess.experiments.frozen_lake.exact import ExactPredictor, log_prior
from secondguess.experiments.frozen_lake.walks import (
    HIDDEN,
    STOPPED,
    VOCABULARY,
    cells_of,
    log_probs,
    parse_texts,
    parse_tokens,
    roll_out,
    touches,
    view_text,
    walk_text,
    walk_tokens,
)
from secondguess.experiments.frozen_lake.world import (
    GOAL,
    LAKE,
    NEXT_CELL,
    NUM_CELLS,
    NUM_EXPERTS,
    OUTSIDE,
    START,
    ExpertConfig,
    expert_policies,
    rewards,
)

DISCOUNTS = (1.0, 0.9)


def hidden_samples(discount: float, size: int) -> tuple[ExactPredictor, np.ndarray, np.ndarray]:
    predictor = ExactPredictor(ExpertConfig(discount=discount))
    rng = np.random.default_rng(0)
    walks = roll_out(predictor.policies, rng.integers(NUM_EXPERTS, size=size), rng)
    return predictor, walks, np.full(size, HIDDEN)


def test_undiscounted_experts_solve_a_linear_system():
    # With discount 1, Z = exp(V / T) satisfies Z(s) = sum_a exp(r(s') / T) Z(s'): no iteration.
    temperature = 2.5
    for expert, policy in enumerate(expert_policies()):
        weight = np.exp(rewards(expert) / temperature)
        transfer = np.zeros((NUM_CELLS + 1, NUM_CELLS + 1))
        for cell in range(NUM_CELLS):
            for to_cell in NEXT_CELL[cell]:
                transfer[cell, to_cell] += weight[to_cell]
        at_goal = np.zeros(NUM_CELLS + 1)
        at_goal[GOAL] = 1
        transfer[GOAL] = 0
        z = np.linalg.solve(np.eye(NUM_CELLS + 1) - transfer, at_goal)
        others = np.delete(np.arange(NUM_CELLS), GOAL)
        reached = NEXT_CELL[others]
        np.testing.assert_allclose(
            policy[others], weight[reached] * z[reached] / z[others, None], atol=1e-10
        )


@pytest.mark.parametrize("discount", DISCOUNTS)
def test_experts_satisfy_the_soft_bellman_equation(discount):
    # log pi(a|s) = (Q(s, a) - V(s)) / T, so T log pi - r - discount V(s') is -V(s) for every a.
    temperature = 2.5
    for expert, policy in enumerate(expert_policies(ExpertConfig(discount=discount))):
        reward = rewards(expert)
        value = np.zeros(NUM_CELLS + 1)
        cells = np.delete(np.arange(NUM_CELLS), GOAL)
        for _ in range(2_000):
            value[cells] = (
                policy[cells] * (reward + discount * value)[NEXT_CELL[cells]].clip(-1e6)
                - temperature * policy[cells] * np.log(policy[cells].clip(1e-300))
            ).sum(axis=1)
        allowed = policy[cells] > 0
        advantage = (reward + discount * value)[NEXT_CELL[cells]] - value[cells, None]
        expected = np.exp(advantage / temperature)
        np.testing.assert_allclose(policy[cells][allowed], expected[allowed], atol=1e-10)


@pytest.mark.parametrize("discount", DISCOUNTS)
def test_experts_never_enter_their_unsafe_cell_nor_leave_the_grid(discount):
    policies = expert_policies(ExpertConfig(discount=discount))
    for expert, policy in enumerate(policies):
        forbidden = np.isin(NEXT_CELL[:NUM_CELLS], [LAKE[expert], OUTSIDE])
        assert (policy[forbidden] == 0).all()
        np.testing.assert_allclose(np.delete(policy, GOAL, axis=0).sum(axis=1), 1, atol=1e-12)


def test_experts_mirror_each_other():
    policies = expert_policies()
    upside_down = np.arange(NUM_CELLS).reshape(5, 5)[::-1].ravel()
    mirrored = policies[:, upside_down][:, :, [1, 0, 2, 3]]
    np.testing.assert_allclose(policies[[6, 7, 8, 3, 4, 5, 0, 1, 2]], mirrored, atol=1e-11)


def test_config_refuses_what_has_no_solution():
    with pytest.raises(ValueError, match=r"discount is 1\.5"):
        ExpertConfig(discount=1.5)
    with pytest.raises(RuntimeError, match="has not settled"):
        expert_policies(ExpertConfig(temperature=100.0))


def test_walks_survive_their_tokens():
    _, walks, _ = hidden_samples(1.0, 2_000)
    tokens = walk_tokens(walks)
    assert tokens.shape == (2_000, 50)
    parsed, is_walk = parse_tokens(tokens)
    assert is_walk.all()
    np.testing.assert_array_equal(parsed, walks)
    parsed, is_walk = parse_texts([walk_text(walk) for walk in walks[:50]])
    assert is_walk.all()
    np.testing.assert_array_equal(parsed, walks[:50])


def test_printed_walk_has_the_printed_tokens():
    text = (
        "c0 r2 down c0 r3 up c0 r2 down c0 r3 up c0 r2 down c0 r3 down c0 r4 right c1 r4 up "
        "c1 r3 right c2 r3 right c3 r3 right c4 r3 up FINISH"
    )
    walks, is_walk = parse_texts([text])
    assert is_walk.all()
    words = [VOCABULARY[token] for token in walk_tokens(walks)[0]]
    assert words == text.split() + ["_"] * 13


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c0 r2 left",
        "c0 r2 right FINISH",
        "c0 r2 right c1 r2 right",
        "c0 r2 right c1 r3 right c2 r2 right c3 r2 right FINISH",
        "c0 r2 right c1 r2 right c2 r2 right c3 r2 right",
        "c0 r2 right c1 r2 right c2 r2 right c3 r2 right FINISH FINISH",
        "c0 r2 right c1 r2 fly c2 r2 right c3 r2 right FINISH",
        "c0 r2 down c0 r3 left " + "c0 r2 up c0 r1 down " * 7,
    ],
)
def test_texts_that_are_no_walks_are_refused(text):
    assert not parse_texts([text])[1].any()
    assert ExactPredictor().score([view_text(HIDDEN)], [text]).epistemic_confidence == 0


def test_long_walks_are_cut_without_finish():
    there_and_back = np.array([[0, 1] * 8])
    assert "FINISH" not in walk_text(there_and_back[0])
    assert len(walk_text(there_and_back[0]).split()) == 48
    policy = expert_policies()[3]
    expected = np.log(policy[START, 0] * policy[START - 5, 1]) * 8
    assert log_probs(expert_policies(), there_and_back)[0, 3] == pytest.approx(expected, rel=1e-12)


@pytest.mark.statistical
def test_roll_outs_follow_their_expert():
    """First steps of 3 experts, 4 actions: a z-score beyond 5 by chance has rate below 1e-5."""
    policies, size = expert_policies(), 50_000
    for expert in (0, 3, 4):
        walks = roll_out(policies, np.full(size, expert), np.random.default_rng(expert))
        for action, prob in enumerate(policies[expert, START]):
            spread = np.sqrt(prob * (1 - prob) / size)
            assert abs((walks[:, 0] == action).mean() - prob) <= 5 * spread


def every_walk(max_steps: int) -> np.ndarray:
    """All distinct walks that stay on the grid, cut after max_steps."""
    sequences = np.array(list(product(range(4), repeat=max_steps)))
    cells = cells_of(sequences)
    arrived = np.cumsum(cells[:, :-1] == GOAL, axis=1) > 0
    walks = np.unique(np.where(arrived, STOPPED, sequences), axis=0)
    return walks[(cells_of(walks) != OUTSIDE).all(axis=1)]


@pytest.mark.parametrize("discount", DISCOUNTS)
def test_the_exact_predictor_is_calibrated_on_all_pairs_of_short_walks(discount):
    """With 6 steps every walk can be listed, so nothing here is sampled."""
    predictor = ExactPredictor(ExpertConfig(discount=discount), max_steps=6)
    walks = every_walk(6)
    hidden = np.full(len(walks), HIDDEN)
    scores = predictor.score_walks(hidden, walks)
    true_probs = np.exp(log_probs(predictor.policies, walks))  # of each walk under each expert
    np.testing.assert_allclose(true_probs.sum(axis=0), 1, atol=1e-10)

    # Definition 4.1 is the variance of the true probability over what the view hides.
    np.testing.assert_allclose(np.exp(scores.log_marginal), true_probs.mean(axis=1), atol=1e-10)
    np.testing.assert_allclose(scores.epistemic_variance, true_probs.var(axis=1), atol=1e-10)

    # Proposition 4.4 and Theorem 4.5: 0 <= C <= 1, and at most 1 - C of the experts never go there.
    confidence = scores.epistemic_confidence
    assert ((confidence >= 0) & (confidence <= 1 + 1e-10)).all()
    possible = true_probs.max(axis=1) > 0
    never = (true_probs[possible] == 0).mean(axis=1)
    assert (never <= 1 - confidence[possible] + 1e-10).all()

    # Over the predictor's own samples the bound on hallucinations holds on average too.
    marginal = np.exp(scores.log_marginal[possible])
    assert marginal.sum() == pytest.approx(1, abs=1e-10)
    assert marginal @ never <= marginal @ (1 - confidence[possible])

    # The joint of pairs is symmetric, sums to one, and its diagonal is what `score_walks` says.
    joint = true_probs @ true_probs.T / NUM_EXPERTS
    assert joint.sum() == pytest.approx(1, abs=1e-10)
    diagonal = np.exp(scores.log_marginal + scores.log_self_conditional)
    np.testing.assert_allclose(diagonal, np.diag(joint), atol=1e-10)


@pytest.mark.parametrize("discount", DISCOUNTS)
def test_action_probabilities_multiply_to_the_scores(discount):
    predictor, walks, hidden = hidden_samples(discount, 500)
    views = np.where(np.arange(500) % 2, hidden, 4)
    walks = np.where(
        (views == HIDDEN)[:, None],
        walks,
        roll_out(predictor.policies, np.full(500, 4), np.random.default_rng(1)),
    )
    scores = predictor.score_walks(views, walks)
    for log_weights, expected in (
        (log_prior(views), scores.log_marginal),
        (predictor.log_posterior(views, walks), scores.log_self_conditional),
    ):
        probs = predictor.action_probs(log_weights, walks)
        taken = np.take_along_axis(probs, walks.clip(0)[..., None], axis=2)[..., 0]
        total = np.log(np.where(walks == STOPPED, 1, taken)).sum(axis=1)
        np.testing.assert_allclose(total, expected, atol=1e-10)


@pytest.mark.parametrize("discount", DISCOUNTS)
def test_visible_views_leave_nothing_to_learn(discount):
    predictor = ExactPredictor(ExpertConfig(discount=discount))
    experts = np.repeat(np.arange(NUM_EXPERTS), 100)
    walks = roll_out(predictor.policies, experts, np.random.default_rng(0))
    np.testing.assert_allclose(
        predictor.score_walks(experts, walks).epistemic_confidence, 1, atol=1e-10
    )


def test_undiscounted_experts_give_the_published_picture():
    predictor, walks, hidden = hidden_samples(1.0, 50_000)
    scores = predictor.score_walks(hidden, walks)
    accepted = scores.confidence_gap() <= 0.05
    over_lake = touches(walks, LAKE)
    assert accepted[~over_lake].mean() >= 0.98
    assert not accepted[over_lake].any()
    # A lake cell is forbidden to one expert of nine.
    assert scores.epistemic_confidence[over_lake].max() <= 8 / 9 + 1e-10


def test_the_printed_discount_rejects_everything():
    predictor, walks, hidden = hidden_samples(0.9, 50_000)
    assert (predictor.score_walks(hidden, walks).confidence_gap() > 0.05).all()


@pytest.mark.statistical
def test_losses_are_those_of_the_reading_notes():
    """Printed from 4,000 roll-outs with standard error 0.07; beyond 4 of those by chance: 2e-4."""
    predictor, first, hidden = hidden_samples(1.0, 50_000)
    rng = np.random.default_rng(0)
    experts = rng.integers(NUM_EXPERTS, size=50_000)  # those of `hidden_samples`
    second = roll_out(predictor.policies, experts, np.random.default_rng(2))
    rows = np.arange(50_000)
    visible = -log_probs(predictor.policies, first)[rows, experts].mean()
    y1 = -predictor.score_walks(hidden, first).log_marginal.mean()
    joint = np.exp(
        log_probs(predictor.policies, second) + predictor.log_posterior(hidden, first)
    ).sum(axis=1)
    np.testing.assert_allclose([visible, y1, -np.log(joint).mean()], [8.32, 8.63, 8.54], atol=0.28)


@pytest.mark.statistical
def test_samples_of_the_exact_predictor_follow_its_mixture():
    """First two actions against the mixture: 11 z-scores beyond 5 by chance, below 1e-5."""
    predictor, size = ExactPredictor(), 50_000
    hidden = np.full(size, HIDDEN)
    walks = predictor.sample_walks(hidden, np.random.default_rng(3))
    policies = predictor.policies
    for first, second in product(range(4), range(4)):
        cell = NEXT_CELL[START, first]
        if cell == OUTSIDE:
            continue
        prob = (policies[:, START, first] * policies[:, cell, second]).mean()
        seen = ((walks[:, 0] == first) & (walks[:, 1] == second)).mean()
        assert abs(seen - prob) <= 5 * np.sqrt(prob * (1 - prob) / size)


def test_sampler_and_scorer_speak_text():
    predictor = ExactPredictor()
    prompts = [view_text(HIDDEN), view_text(4)] * 20
    responses = predictor.sample(prompts, np.random.default_rng(0), temperature=0.9)
    scores = predictor.score(prompts, responses)
    assert np.isfinite(scores.log_marginal).all()
    walks, is_walk = parse_texts(responses)
    assert is_walk.all()
    assert not touches(walks[1::2], LAKE[[4]]).any()
    with pytest.raises(ValueError, match=r"prompts\[0\] is 'P P'; expected one of the ten views"):
        predictor.score(["P P"], responses[:1])
