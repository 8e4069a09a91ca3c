"""Pair data: three ways in, draws without replacement, splits, batches, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secondguess.classification.batches import annotation_batches, pair_batches
from secondguess.classification.pairs import PairData
from secondguess.classification.splitting import split_rows

RNG = np.random.default_rng(0)


def test_three_ways_in_give_the_same_counts() -> None:
    responses = [["b", "a", "b"], ["c", "c", "c"], ["a", "b", "c"]]
    counts = [[1, 2, 0], [0, 0, 3], [1, 1, 1]]
    for data in (
        PairData.from_responses(responses),
        PairData.from_ragged(responses),
        PairData.from_counts(counts, classes=["a", "b", "c"]),
    ):
        assert data.classes.tolist() == ["a", "b", "c"]
        np.testing.assert_array_equal(data.counts(), counts)
        np.testing.assert_array_equal(data.num_annotations, 3)
        np.testing.assert_array_equal(data[[2, 0]].counts(), [counts[2], counts[0]])


@pytest.mark.parametrize(
    ("responses", "classes"),
    [
        ([[3, 7], [7, 7]], [3, 7]),
        ([[True, False], [True, True]], [False, True]),
        ([["x", 2], [2, 2]], ["x", 2]),
        ([[(1, 2), (0, 1)], [(1, 2), (1, 2)]], [(0, 1), (1, 2)]),
    ],
)
def test_labels_may_be_anything_hashable(responses, classes) -> None:
    assert PairData.from_ragged(responses).classes.tolist() == classes


def test_labels_of_an_object_array_keep_their_type() -> None:
    data = PairData.from_responses(np.array([["x", 2], [2, 2]], dtype=object))
    assert data.classes.tolist() == ["x", 2]


def test_annotators_stay_with_their_responses() -> None:
    responses, who = [[3, 7, 7], [7, 3, 3]], [["a", "b", "c"], ["c", "a", "b"]]
    ragged = PairData.from_ragged([row[:2] for row in responses], annotators=[w[:2] for w in who])
    whole = PairData.from_responses(responses, annotators=who)
    said = {(row, who[row][i]): responses[row][i] for row in (0, 1) for i in range(3)}
    for data in (ragged, whole, whole[[1, 0]][[1, 0]], whole.aligned([9, 7, 3])):
        for seed in range(5):
            labels, names = data.responses_and_annotators(np.random.default_rng(seed))
            assert names is not None
            for row in (0, 1):
                for label, name in zip(data.classes[labels[row]], names[row], strict=True):
                    assert said[row, name] == label
    assert (
        PairData.from_counts([[1, 1]]).responses_and_annotators(np.random.default_rng(0))[1] is None
    )


def test_columns_are_known_for_responses_only() -> None:
    columns = PairData.from_responses([["b", "a"], ["a", "a"]]).columns()
    np.testing.assert_array_equal(columns, [[1, 0], [0, 0]])
    assert PairData.from_counts([[1, 1], [2, 0]]).columns() is None


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["counts", "ragged"])
def test_draws_are_uniform_over_ordered_pairs_without_replacement(kind) -> None:
    # 60,000 draws; each cell within 5 standard errors, 18 cells: a false alarm below 2e-5.
    counts = np.array([[2, 1, 0], [3, 0, 2]])
    num_draws = 60_000
    if kind == "counts":
        data = PairData.from_counts(counts)
    else:
        data = PairData.from_ragged([np.repeat(range(3), row) for row in counts], classes=range(3))
    rows = np.repeat([0, 1], num_draws)
    draws = data[rows].draw(np.random.default_rng(0)).reshape(2, num_draws, 2)
    for row, count in enumerate(counts):
        total = count.sum()
        pairs = np.outer(count, count) - np.diag(count)
        expected = pairs / (total * (total - 1))
        found = np.zeros((3, 3))
        np.add.at(found, (draws[row, :, 0], draws[row, :, 1]), 1 / num_draws)
        error = np.sqrt(expected * (1 - expected) / num_draws)
        assert (np.abs(found - expected) <= 5 * error).all()
        assert (found[expected == 0] == 0).all()


def test_a_row_of_two_responses_always_gives_both() -> None:
    data = PairData.from_responses([[0, 1]] * 50)
    assert (data.draw(np.random.default_rng(0)).sum(axis=1) == 1).all()


def test_split_keeps_groups_together_and_loses_no_row() -> None:
    groups = np.repeat(np.arange(100), 7)
    parts = split_rows(700, [0.6, 0.2, 0.2], rng=np.random.default_rng(0), groups=groups)
    assert sorted(np.concatenate(parts).tolist()) == list(range(700))
    assert [len(set(groups[part])) for part in parts] == [60, 20, 20]
    by_row = split_rows(700, [0.5, 0.5], rng=np.random.default_rng(0))
    assert [len(part) for part in by_row] == [350, 350]


@pytest.mark.parametrize("make", [pair_batches, annotation_batches])
@pytest.mark.parametrize("batch_size", [3, 10, 25])
def test_batches_are_pure_and_see_every_row_once_an_epoch(make, batch_size) -> None:
    data = PairData.from_responses(np.arange(20).reshape(10, 2))
    inputs = torch.arange(10)
    num_steps = 10  # 10 batches are batch_size epochs of 10 rows
    batch_at = make(inputs, data, batch_size=batch_size, seed=3)
    batches = [batch_at(step) for step in range(num_steps)]
    again = make(inputs, data, batch_size=batch_size, seed=3)
    for step in reversed(range(num_steps)):
        for first, second in zip(batches[step], again(step), strict=True):
            if first is None or second is None:  # there are no weights
                assert first is second
            else:
                assert first.equal(second)
    seen = torch.cat([batch.inputs for batch in batches]).reshape(batch_size, 10)
    assert (seen.sort(1).values == inputs).all()
    other = make(inputs, data, batch_size=batch_size, seed=4)
    assert not other(0).inputs.equal(batches[0].inputs)


def test_batches_draw_anew_each_epoch_from_the_row_they_show() -> None:
    data = PairData.from_responses(np.arange(40).reshape(4, 10))
    batch_at = pair_batches(torch.arange(4), data, batch_size=4, seed=0)
    drawn = set()
    for step in range(50):
        batch = batch_at(step)
        assert isinstance(batch.inputs, torch.Tensor)
        assert (batch.y1 // 10 == batch.inputs).all()
        assert (batch.y2 // 10 == batch.inputs).all()
        assert (batch.y1 != batch.y2).all()
        drawn.update(zip(batch.y1.tolist(), batch.y2.tolist(), strict=True))
    assert len(drawn) > 100


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PairData.from_responses([1, 0, 1]), r"shape \(3,\).*second annotator"),
        (lambda: PairData.from_responses([[1], [0]]), r"shape \(2, 1\).*second annotator"),
        (lambda: PairData.from_ragged([[1], [1]]), "1 response.*second annotator"),
        (lambda: PairData.from_ragged([[1, 0], []]), "row 1 has no response"),
        (lambda: PairData.from_ragged([[1, 0], [1]]).draw(RNG), "row 1 has 1 response.*has_pair"),
        (lambda: PairData.from_ragged([]), "no rows"),
        (lambda: PairData.from_targets([[1], [1, 0]], "responses"), "lengths.*from_ragged"),
        (lambda: PairData.from_counts([[1, 0], [1, 0]]), "1 annotation per row.*second annotator"),
        (lambda: PairData.from_counts([[1, 1], [0, 0]]), "row 1 has 0 annotation"),
        (lambda: PairData.from_counts([[0.2, 0.8], [1, 0]]), "soft labels.*Multiply each row"),
        (lambda: PairData.from_targets([[0.2, 0.8]], "responses"), "soft labels.*'counts'"),
        (lambda: PairData.from_counts([[1, 1.5]]), "whole number"),
        (lambda: PairData.from_counts([[1, 1]], classes=["a"]), "2 columns but classes has 1"),
        (lambda: PairData.from_responses([[1, np.nan]]), "NaN.*from_ragged"),
        (lambda: PairData.from_ragged([["a", None]]), "None or NaN"),
        (lambda: PairData.from_responses([["a", "z"]], classes=["a", "b"]), "'z'.*'a', 'b'"),
        (lambda: PairData.from_responses([["a", "b"]], classes=["a", "a"]), "twice"),
        (
            lambda: PairData.from_responses([[0, 1]], annotators=["a"]),
            r"annotators has shape \(1,\); expected \(1, 2\)",
        ),
        (lambda: PairData.from_ragged([[0, 1]], annotators=[["a"]]), "different lengths"),
        (lambda: PairData.from_responses([[0, 1]]).aligned([0, 2]), "labels that are not.*: 1"),
        (lambda: split_rows(3, [0.5, 0.6], rng=np.random.default_rng(0)), "sum to 1"),
        (lambda: split_rows(2, [0.9, 0.1], rng=np.random.default_rng(0)), "would be empty"),
        (
            lambda: split_rows(3, [0.5, 0.5], rng=np.random.default_rng(0), groups=[1, 2]),
            r"groups has shape \(2,\)",
        ),
        (
            lambda: pair_batches(
                torch.zeros(3, 1), PairData.from_responses([[0, 1]]), batch_size=1, seed=0
            ),
            "inputs has 3 rows but the pair data has 1",
        ),
    ],
)
def test_refusals_say_what_came_and_what_to_do(make, words) -> None:
    with pytest.raises(ValueError, match=words):
        make()
