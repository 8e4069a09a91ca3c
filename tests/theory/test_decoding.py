"""The decoders keep their rate on calibrated worlds, break on others, and do no work twice."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import worlds
from scipy.stats import binom
from worlds import World

import secondguess as sg

NUM_PROMPTS = 5_000
FALSE_ALARM_RATE = 1e-6
STRATEGIES = {
    "selective": sg.selective_filter,
    "rejection": lambda *args, **kwargs: sg.rejection_sample(*args, max_attempts=20, **kwargs),
    "top1": lambda *args, **kwargs: sg.top1_search(*args, num_candidates=8, **kwargs),
}
strategies = pytest.mark.parametrize("decode", STRATEGIES.values(), ids=STRATEGIES.keys())


class TableModel:
    """A joint for each input, as sampler and scorer; it remembers what it was asked to score."""

    def __init__(self, joint: np.ndarray):
        self.scores = sg.joint_scores(joint)
        self.marginal = sg.joint_marginal(joint)
        self.asked: Counter = Counter()

    def sample(self, prompts, rng):
        cumulative = self.marginal[list(prompts)].cumsum(axis=1)
        return [int(y) for y in (cumulative < rng.random(len(prompts))[:, None]).sum(axis=1)]

    def score(self, prompts, responses):
        self.asked.update(zip(prompts, responses, strict=True))
        return self.scores[list(prompts), list(responses)]


def quiz() -> World:
    """Ten groups that know a fact with more or less certainty: the confidence runs from 0 to 1.

    In group g the model is right about the first response in (g + 1)/10 of the inputs; the last
    response is always possible.
    """
    inputs, truths, groups = [], [], []
    for group in range(10):
        share = (group + 1) / 10
        for weight, truth in [(share, [0.6, 0.0, 0.4]), (1 - share, [0.0, 0.6, 0.4])]:
            inputs.append(weight / 10)
            truths.append(truth)
            groups.append(group)
    return World(np.array(inputs), np.array(truths), np.array(groups))


def hallucinations(world: World, model: TableModel, decode, rate: float, seed: int):
    """How many prompts were answered, and how many answers were impossible."""
    rng = np.random.default_rng(seed)
    prompts = rng.choice(len(world.input_probs), size=NUM_PROMPTS, p=world.input_probs)
    decisions = decode(
        list(prompts), model.sample, model.score, max_hallucination_rate=rate, rng=rng
    )
    wrong = [
        world.true_probs[prompt, decision.response] == 0
        for prompt, decision in zip(prompts, decisions, strict=True)
        if decision.response is not None
    ]
    return len(wrong), int(np.sum(wrong))


@pytest.mark.statistical
@strategies
@pytest.mark.parametrize("rate", [0.05, 0.15, 0.35])
@pytest.mark.parametrize(
    "world",
    [
        quiz(),
        worlds.two_point(),
        worlds.random_world(np.random.default_rng(3), num_groups=9, sparsity=0.5),
    ],
    ids=["quiz", "two-point", "random"],
)
def test_decoders_meet_their_rate_on_calibrated_worlds(world, rate, decode):
    """False alarms: one-sided binomial test at the promised rate, 1e-6 for each case."""
    model = TableModel(world.calibrated_joint())
    answered, wrong = hallucinations(world, model, decode, rate, seed=1)
    assert answered > 0
    assert binom.sf(wrong - 1, answered, rate) >= FALSE_ALARM_RATE


@pytest.mark.statistical
@strategies
def test_a_miscalibrated_model_breaks_the_rate(decode):
    """The model that never cheats answers everything; the test above would catch it."""
    world = quiz()
    answered, wrong = hallucinations(
        world, TableModel(world.overconfident_joint()), decode, rate=0.05, seed=1
    )
    assert answered == NUM_PROMPTS
    assert binom.sf(wrong - 1, answered, 0.05) < FALSE_ALARM_RATE


@strategies
def test_decoders_abstain_where_nothing_qualifies(decode):
    joint = np.broadcast_to(np.eye(4) / 4, (3, 4, 4))  # it knows nothing: C = 1/4 everywhere
    model = TableModel(joint)
    decisions = decode(
        [0, 1, 2],
        model.sample,
        model.score,
        max_hallucination_rate=0.5,
        rng=np.random.default_rng(0),
    )
    assert all(decision.abstained and decision.bound is None for decision in decisions)
    assert max(model.asked.values()) == 1, "a candidate of one prompt was scored twice"


def test_top1_takes_the_most_probable_that_qualifies():
    joint = sg.joint_from_moments([0.5, 0.3, 0.2], np.zeros((3, 3)))
    joint[[0, 2], [0, 2]] += 0.1
    joint[[0, 2], [2, 0]] -= 0.1
    model = TableModel(joint[None])
    [decision] = sg.top1_search(
        [0],
        model.sample,
        model.score,
        max_hallucination_rate=0.25,
        num_candidates=200,
        rng=np.random.default_rng(0),
    )
    gaps = model.scores.confidence_gap("absolute")[0]
    assert gaps[0] > 0.25 > gaps[1]  # the most probable response is not the one
    assert decision.response == 1
    assert decision.bound is not None
    assert decision.gap == decision.bound.value == gaps[1]
    assert decision.num_candidates == 200
    assert decision.bound.rests_on is sg.RestsOn.CALIBRATED_PAIRS
    assert decision.scores is not None
    assert decision.scores.log_marginal == model.scores.log_marginal[0, 1]


def test_rejection_counts_its_attempts_and_stops():
    calls = []

    def sampler(prompts, rng):
        calls.append(list(prompts))
        return ["no"] * len(prompts)

    def scorer(prompts, responses):
        return sg.SelfCheatScores(np.log([0.1] * len(prompts)), np.log([0.9] * len(prompts)))

    [decision] = sg.rejection_sample(
        ["?"],
        sampler,
        scorer,
        max_hallucination_rate=0.1,
        max_attempts=7,
        rng=np.random.default_rng(),
    )
    assert decision.abstained
    assert decision.num_candidates == len(calls) == 7


@strategies
def test_confidence_above_one_is_not_trusted_by_default(decode):
    model = TableModel(np.array([[[0.0, 0.5], [0.5, 0.0]]]))  # C is infinite
    arguments = ([0], model.sample, model.score)
    rng = np.random.default_rng(0)
    [careful] = decode(*arguments, max_hallucination_rate=0.1, rng=rng)
    [naive] = decode(*arguments, max_hallucination_rate=0.1, rng=rng, gap="one_minus")
    assert careful.abstained
    assert naive.gap == -np.inf
    assert naive.bound is not None
    assert naive.bound.outside_theorem
    assert not naive.abstained


@strategies
def test_no_prompts_give_no_decisions(decode):
    model = TableModel(worlds.coins().calibrated_joint())
    assert (
        decode(
            [], model.sample, model.score, max_hallucination_rate=0.1, rng=np.random.default_rng()
        )
        == []
    )


@strategies
def test_bad_rates_samplers_and_scorers_are_refused(decode):
    model = TableModel(worlds.coins().calibrated_joint())
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="max_hallucination_rate is 0"):
        decode([0], model.sample, model.score, max_hallucination_rate=0, rng=rng)
    with pytest.raises(ValueError, match=r"sampler gave 1 responses to \d+ prompts"):
        decode([0, 1], lambda *_: [0], model.score, max_hallucination_rate=0.1, rng=rng)
    with pytest.raises(ValueError, match="scorer gave scores of shape"):
        decode(
            [0],
            model.sample,
            lambda prompts, _: model.scores[[0]],
            max_hallucination_rate=0.1,
            rng=rng,
        )
