"""Batches of pairs as arrays: token for token what the language layer lays out row by row."""

import numpy as np
import pytest
import torch
from experiments.smallest import SMALLEST
from scipy.stats import chisquare
from transformers import PreTrainedModel

from secondguess.experiments.digits_of_pi.grammar import grammar
from secondguess.experiments.digits_of_pi.pairs import PiPairs, even_uniforms
from secondguess.experiments.digits_of_pi.questions import (
    digits_at,
    offset_probs,
    question,
    sample_offsets,
)
from secondguess.experiments.sequence_models import fresh_transformer
from secondguess.language.collating import NOT_SCORED, collate_pairs
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import score_pairs

LAYOUTS = ("positions", "padded")


def draw(pairs: PiPairs, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    offsets = sample_offsets(rng.random(size))
    first, second = (grammar().sample(digits_at(offsets), rng.random(size)) for _ in range(2))
    return offsets, first, second


def random_network(pairs: PiPairs) -> PreTrainedModel:
    size = SMALLEST | {"num_layers": 2}
    model = fresh_transformer(
        pairs.layout.formatter, **size, num_positions=64, initializer_range=0.3
    )
    return model.network.eval()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_array_batches_equal_the_formatter(layout):
    pairs = PiPairs(layout)
    formatter = pairs.layout.formatter
    offsets, first, second = draw(pairs, 60)
    batch = pairs.layout.batch(
        pairs.prompt_tokens[offsets], pairs.sentence_tokens[first], pairs.sentence_tokens[second]
    )
    rows = [
        formatter.encode({"prompt": question(int(offset)), "responses": [y1, y2]})
        for offset, y1, y2 in zip(
            offsets,
            np.array(grammar().sentences)[first].tolist(),
            np.array(grammar().sentences)[second].tolist(),
            strict=True,
        )
    ]
    expected = collate_pairs(
        [formatter.lay_out(row.prompt, *row.responses) for row in rows], end=formatter.end
    )
    inside = expected["attention_mask"].bool()
    for name, tensor in batch.items():
        assert tensor.shape == expected[name].shape
        assert (tensor[inside] == expected[name][inside]).all()
    assert (batch["labels"][~inside] == NOT_SCORED).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_array_scores_equal_the_language_layer(layout):
    pairs = PiPairs(layout)
    network = random_network(pairs)
    offsets, first, second = draw(pairs, 40)
    scores = pairs.layout.log_probs(
        network,
        pairs.prompt_tokens[offsets],
        pairs.sentence_tokens[first],
        pairs.sentence_tokens[second],
        batch_size=16,
    )
    sentences = grammar().sentences
    expected = score_pairs(
        PairLanguageModel(network, pairs.layout.formatter),
        [
            {"prompt": question(int(offset)), "responses": [sentences[y1], sentences[y2]]}
            for offset, y1, y2 in zip(offsets, first, second, strict=True)
        ],
    )
    for ours, theirs in zip(scores, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_loss_is_nats_of_a_pair():
    pairs = PiPairs()
    network = random_network(pairs)
    offsets, first, second = draw(pairs, 8)
    arguments = (
        pairs.prompt_tokens[offsets],
        pairs.sentence_tokens[first],
        pairs.sentence_tokens[second],
    )
    first_log_prob, second_log_prob = pairs.layout.log_probs(network, *arguments)
    loss = pairs.layout.loss(network, pairs.layout.batch(*arguments))
    expected = -(first_log_prob + second_log_prob).mean()
    assert loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_prompts_read_once_give_the_logits_and_gradients_of_reading_each_row(layout):
    pairs = PiPairs(layout)
    network = random_network(pairs).double()
    offsets, first, second = draw(pairs, 12)
    offsets = offsets[[0, 0, 1, 1, 1, 2, 3, 0, 2, 4, 4, 1]]
    batch = pairs.layout.batch(
        pairs.prompt_tokens[offsets], pairs.sentence_tokens[first], pairs.sentence_tokens[second]
    )

    def gradients(logits):
        return torch.autograd.grad(logits.square().sum(), list(network.parameters()))

    read_once = pairs.layout.response_logits(network, batch)
    each_row = network(batch["input_ids"][:, :-1], position_ids=batch["position_ids"][:, :-1])
    each_row = each_row.logits[:, pairs.layout.prompt_length - 1 :]
    torch.testing.assert_close(read_once, each_row)
    for ours, theirs in zip(gradients(read_once), gradients(each_row), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_share_of_the_questions_can_be_about_any_digit():
    share = 0.3
    paper, asked = offset_probs()[1:], offset_probs(share)[1:]
    np.testing.assert_allclose(asked - (1 - share) * paper, share / 9999, rtol=1e-9)
    assert asked.sum() == pytest.approx(1)
    pairs = PiPairs()
    batch = pairs.source(batch_size=4096, seed=0, uniform_share=share, even_draws=True)(0)
    thousands = pairs.layout.formatter.tokenizer.convert_ids_to_tokens(
        batch["input_ids"][:, 5].tolist()
    )
    # 1,000 and more: nine tenths of the uniform ones; the draws are even, so it is nearly exact.
    expected = asked[999:].sum()
    assert np.mean([each != "0" for each in thousands]) == pytest.approx(expected, abs=2e-3)


def test_prompts_equal_the_formatter():
    pairs = PiPairs()
    for offset in (1, 9, 10, 345, 2006, 9999):
        expected = pairs.layout.formatter.prompt_tokens(question(offset))
        assert tuple(pairs.prompt_tokens[offset].tolist()) == expected
    assert len(np.unique(pairs.prompt_tokens, axis=0)) == 9999


@pytest.mark.parametrize("even_draws", [False, True])
def test_batches_depend_on_seed_and_step_alone(even_draws):
    pairs = PiPairs()
    source, again = (pairs.source(batch_size=8, seed=3, even_draws=even_draws) for _ in range(2))
    assert torch.equal(source(5)["input_ids"], again(5)["input_ids"])
    source(0)
    assert torch.equal(source(5)["labels"], again(5)["labels"])
    assert source(5)["input_ids"].tolist() != source(6)["input_ids"].tolist()


def test_even_draws_of_all_steps_fill_the_cube_evenly():
    steps, batch_size = 32, 64
    total = steps * batch_size
    points = np.concatenate(
        [even_uniforms(step, batch_size, seed=5) for step in range(steps)], axis=1
    )
    for one_axis in np.floor(points * total).astype(int):
        np.testing.assert_array_equal(np.sort(one_axis), np.arange(total))
    for two_axes in (points[[0, 1]], points[[0, 2]], points[[1, 2]]):
        counts, *_ = np.histogram2d(*two_axes, bins=8, range=[[0, 1], [0, 1]])
        np.testing.assert_array_equal(counts, total / 64)


@pytest.mark.statistical
def test_an_evenly_drawn_pair_has_independent_uniform_numbers():
    """Over seeds, the one pair looked at is in each of 27 cells equally often: p below 1e-4."""
    points = np.stack([even_uniforms(3, 8, seed=seed)[:, 5] for seed in range(5400)])
    cells = np.floor(points * 3).astype(int) @ [9, 3, 1]
    assert chisquare(np.bincount(cells, minlength=27)).pvalue > 1e-4


@pytest.mark.parametrize("even_draws", [False, True])
def test_batches_hold_true_statements_about_the_digit_asked(even_draws):
    pairs = PiPairs()
    tokenizer = pairs.layout.formatter.tokenizer
    batch = pairs.source(batch_size=40, seed=0, even_draws=even_draws)(0)
    for tokens in batch["input_ids"]:
        prompt, first, second = str(tokenizer.decode(tokens)).split(" <SEP> ")
        offset = int("".join(prompt.split()[5:9]))
        for response in (first, second):
            sentence = response.split(" _")[0]
            assert grammar().is_true(sentence, digits_at(offset))
