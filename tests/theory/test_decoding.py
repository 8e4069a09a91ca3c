"""The decoders keep their rate on calibrated worlds, break on others, and count each draw once."""

from __future__ import annotations

import numpy as np
import pytest
import worlds
from scipy.stats import binom
from worlds import World

import secondguess as sg
from secondguess.theory.decoding import withheld

NUM_PROMPTS = 5_000
FALSE_ALARM_RATE = 1e-6
NUM_CANDIDATES = {"selective": 1, "rejection": 20, "top1": 8}
OF_ONE_PROMPT = {"rejection": sg.decode_rejection, "top1": sg.decode_top1}
strategies = pytest.mark.parametrize("strategy", NUM_CANDIDATES)


def decode(joint: np.ndarray, prompts, strategy: str, *, seed: int = 0, **rule):
    """One decision per prompt, from samples of the model with a joint for each input."""
    scores, marginal = sg.joint_scores(joint), sg.joint_marginal(joint)
    num_candidates = NUM_CANDIDATES[strategy]
    rng = np.random.default_rng(seed)
    prompts = np.array(prompts, dtype=np.int64)
    cumulative = marginal[prompts].cumsum(axis=1)[:, None, :]
    drawn = (cumulative < rng.random((len(prompts), num_candidates, 1))).sum(axis=2)
    scored = scores[prompts[:, None], drawn]
    if strategy == "selective":
        return sg.decode_selective(drawn[:, 0].tolist(), scored[:, 0], **rule)
    choose = OF_ONE_PROMPT[strategy]
    return [choose(drawn[i].tolist(), scored[i], **rule) for i in range(len(prompts))]


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


def hallucinations(world: World, joint: np.ndarray, strategy: str, rate: float, seed: int):
    """How many prompts were answered, and how many answers were impossible."""
    rng = np.random.default_rng(seed)
    prompts = rng.choice(len(world.input_probs), size=NUM_PROMPTS, p=world.input_probs)
    decisions = decode(joint, prompts, strategy, seed=seed + 1, max_hallucination_rate=rate)
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
def test_decoders_meet_their_rate_on_calibrated_worlds(world, rate, strategy):
    """False alarms: one-sided binomial test at the promised rate, 1e-6 for each case."""
    answered, wrong = hallucinations(world, world.calibrated_joint(), strategy, rate, seed=1)
    assert answered > 0
    assert binom.sf(wrong - 1, answered, rate) >= FALSE_ALARM_RATE


@pytest.mark.statistical
@strategies
def test_a_miscalibrated_model_breaks_the_rate(strategy):
    """The model that never cheats answers everything; the test above would catch it."""
    world = quiz()
    answered, wrong = hallucinations(
        world, world.overconfident_joint(), strategy, rate=0.05, seed=1
    )
    assert answered == NUM_PROMPTS
    assert binom.sf(wrong - 1, answered, 0.05) < FALSE_ALARM_RATE


@strategies
def test_decoders_abstain_where_nothing_qualifies(strategy):
    joint = np.broadcast_to(np.eye(4) / 4, (3, 4, 4))  # it knows nothing: C = 1/4 everywhere
    for decision in decode(joint, [0, 1, 2], strategy, max_hallucination_rate=0.5):
        assert decision.abstained
        assert decision.bound is decision.gap is decision.scores is None
        assert decision.num_candidates == NUM_CANDIDATES[strategy]


def test_top1_takes_the_most_probable_that_qualifies():
    scores = sg.SelfCheatScores(np.log([0.2, 0.5, 0.3, 0.3]), np.log([0.2, 0.9, 0.35, 0.3]))
    decision = sg.decode_top1(["a", "b", "c", "d"], scores, max_hallucination_rate=0.25)
    gaps = scores.confidence_gap("absolute")
    assert gaps[1] > 0.25 > gaps[2]  # the most probable response is not the one
    assert decision.response == "c", "of equally probable ones, the first drawn"
    assert decision.bound is not None
    assert decision.gap == decision.bound.value == gaps[2]
    assert decision.num_candidates == 4
    assert decision.bound.rests_on is sg.RestsOn.CALIBRATED_PAIRS
    assert decision.scores is not None
    assert decision.scores.log_marginal == scores.log_marginal[2]


def test_rejection_takes_the_first_that_qualifies_and_counts_up_to_it():
    scores = sg.SelfCheatScores(np.log([0.1, 0.2, 0.5]), np.log([0.9, 0.2, 0.5]))
    decision = sg.decode_rejection(["a", "b", "c"], scores, max_hallucination_rate=0.1)
    assert decision.response == "b"
    assert decision.num_candidates == 2


def test_the_first_draw_stands_for_equal_ones():
    """A response that comes up again with other rounding is neither preferred nor accepted."""
    scores = sg.SelfCheatScores(np.array([-1.0, -1.0 + 1e-7]), np.array([-1.0, -1.0]))
    found = sg.decode_top1(["a", "a"], scores, max_hallucination_rate=0.1)
    assert found.scores is not None
    assert found.scores.log_marginal == -1.0
    at_the_edge = sg.SelfCheatScores(np.log([0.45, 0.45]), np.log([0.5 + 1e-9, 0.5]))
    assert at_the_edge.confidence_gap()[0] > at_the_edge.confidence_gap()[1]
    rate = float(at_the_edge.confidence_gap()[1])
    assert sg.decode_rejection(["a", "a"], at_the_edge, max_hallucination_rate=rate).abstained


@strategies
def test_confidence_above_one_is_not_trusted_by_default(strategy):
    joint = np.array([[[0.0, 0.5], [0.5, 0.0]]])  # C is infinite
    [careful] = decode(joint, [0], strategy, max_hallucination_rate=0.1)
    [naive] = decode(joint, [0], strategy, max_hallucination_rate=0.1, gap="one_minus")
    assert careful.abstained
    assert naive.gap == -np.inf
    assert naive.bound is not None
    assert naive.bound.outside_theorem
    assert not naive.abstained


def test_no_candidates_give_no_answer():
    nothing = sg.SelfCheatScores(np.empty(0), np.empty(0))
    assert sg.decode_selective([], nothing, max_hallucination_rate=0.1) == []
    for choose in OF_ONE_PROMPT.values():
        decision = choose([], nothing, max_hallucination_rate=0.1)
        assert decision.abstained
        assert decision.num_candidates == 0


@pytest.mark.parametrize("choose", [sg.decode_selective, *OF_ONE_PROMPT.values()])
def test_bad_rates_and_scores_of_another_shape_are_refused(choose):
    scores = sg.SelfCheatScores(np.log([0.5, 0.5]), np.log([0.5, 0.9]))
    with pytest.raises(ValueError, match="max_hallucination_rate is 0"):
        choose(["a", "b"], scores, max_hallucination_rate=0)
    with pytest.raises(ValueError, match=r"scores has shape \(2,\) for 1 responses"):
        choose(["a"], scores, max_hallucination_rate=0.1)


@pytest.mark.parametrize("choose", OF_ONE_PROMPT.values(), ids=OF_ONE_PROMPT)
def test_a_guaranteed_threshold_needs_the_answers_that_were_marked(choose):
    """Told the smaller rate, decoders turn to candidates that are sure, and here always wrong."""
    confidence = {"known": 0.95, "guess": 0.4, "sure of a myth": 0.95}
    marginal = {"known": 0.5, "guess": 0.3, "sure of a myth": 0.2}
    prompts = [("known", "sure of a myth"), ("guess", "sure of a myth")] * 200

    def answers(rate: float) -> list[sg.Decision[str]]:
        decided = []
        for candidates in prompts:
            first = np.log([marginal[each] for each in candidates])
            second = first - np.log([confidence[each] for each in candidates])
            scores = sg.SelfCheatScores(first, second)
            decided.append(choose(candidates, scores, max_hallucination_rate=rate))
        return decided

    def error_rate(decided: list[sg.Decision[str]]) -> float:
        given = [each.response for each in decided if not each.abstained]
        return sum(each != "known" for each in given) / len(given)

    marked = answers(0.99)
    gaps = np.array([each.gap for each in marked])
    wrong = [each.response != "known" for each in marked]
    threshold = sg.guaranteed_threshold(-gaps, wrong, max_error_rate=0.05)
    max_gap = -threshold.value
    assert error_rate([withheld(each, max_gap) for each in marked]) == 0
    assert error_rate(answers(max_gap)) == 0.5
