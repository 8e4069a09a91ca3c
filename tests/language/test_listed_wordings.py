"""Listed wordings: the sums are those of the joint, and a drawn y1 stands for all of them."""

from __future__ import annotations

import numpy as np
import pytest
from language.table_network import SPELLINGS, table_model
from worlds import random_world

from secondguess.language.listed_wordings import score_listed

WORLD = random_world(np.random.default_rng(3), num_inputs=4, num_classes=5, num_groups=2)
SHORT = [0, 1, 3]
"""The responses that mean what is judged."""


def test_sums_are_exact() -> None:
    model, joint = table_model(WORLD, "positions"), WORLD.calibrated_joint()
    prompts = [f"x{index}" for index in range(len(joint))]
    wordings = [[SPELLINGS[each] for each in SHORT]] * len(prompts)
    meaning, wording = score_listed(model, prompts, wordings)
    marginal = joint.sum(axis=2)
    once = marginal[:, SHORT].sum(axis=1)
    twice = joint[:, SHORT][:, :, SHORT].sum(axis=(1, 2))
    np.testing.assert_allclose(np.exp(meaning.log_marginal), once, rtol=1e-6)
    np.testing.assert_allclose(np.exp(meaning.log_self_conditional), twice / once, rtol=1e-6)
    np.testing.assert_allclose(np.exp(wording.log_marginal), marginal[:, SHORT[0]], rtol=1e-6)

    # A y1 that was drawn stands for all: over the law of the draw, the mean is the sum.
    mean = np.zeros(len(prompts))
    for each in SHORT:
        drawn = score_listed(model, prompts, wordings, drawn=[SPELLINGS[each]] * len(prompts))
        np.testing.assert_allclose(drawn.meaning.log_marginal, meaning.log_marginal, rtol=1e-6)
        np.testing.assert_allclose(
            np.exp(drawn.wording.log_self_conditional),
            joint[:, each, each] / marginal[:, each],
            rtol=1e-6,
        )
        mean += marginal[:, each] / once * np.exp(drawn.meaning.log_self_conditional)
    np.testing.assert_allclose(mean, twice / once, rtol=1e-6)


def test_a_drawn_text_must_be_among_the_wordings() -> None:
    model = table_model(WORLD, "positions")
    with pytest.raises(ValueError, match="one of them"):
        score_listed(model, ["x0"], [["a"]], drawn=["b a"])
