"""Long tables of an annotation tool: three libraries, missing values, single labels, classes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from secondguess.classification.estimators import PairClassifier
from secondguess.classification.losses import all_pairs_log_prob
from secondguess.classification.pairs import PairData
from secondguess.classification.table_joint import TableJoint

LINES = {
    "item": ["b", "a", "b", "a", "b", "c", None],
    "label": [2, 1, 2, None, 7, 1, 7],
    "who": ["x", "x", "y", "y", "z", "z", "x"],
}


def _tables(lines):
    return [pd.DataFrame(lines), pl.DataFrame(lines), pa.table(lines), lines]


@pytest.mark.parametrize("table", _tables(LINES), ids=["pandas", "polars", "pyarrow", "dict"])
def test_all_libraries_give_the_same_data(table) -> None:
    data = PairData.from_long(table, item="item", label="label", annotator="who")
    assert data.items is not None
    assert data.annotators is not None
    assert data.items.tolist() == ["b", "a", "c"]
    assert data.classes.tolist() == [1, 2, 7]
    assert data.classes.dtype.kind == "i"  # pandas had made floats of them
    np.testing.assert_array_equal(data.counts(), [[0, 2, 1], [1, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(data.has_pair, [True, False, False])
    assert (data.num_missing, data.num_repeated) == (2, 0)
    assert data.annotators[0].tolist() == ["x", "y", "z"]
    assert data[[2, 0]].items.tolist() == ["c", "b"]  # pyright: ignore


def test_every_kind_of_missing_value_is_dropped() -> None:
    for missing in (None, float("nan"), pd.NA, pd.NaT, ""):
        table = {"item": [1, 1, 1], "label": ["a", missing, "b"]}
        data = PairData.from_long(table, item="item", label="label")
        assert (data.num_missing, data.num_annotations.tolist()) == (1, [2])
    whole = pd.DataFrame({"item": [1, 1, 1], "label": pd.array([3, None, 4], dtype="Int64")})
    assert PairData.from_long(whole, item="item", label="label").classes.tolist() == [3, 4]


def test_the_last_label_of_an_annotator_counts() -> None:
    table = {"item": [1, 1, 1], "label": ["a", "b", "c"], "who": ["x", "y", "x"]}
    data = PairData.from_long(table, item="item", label="label", annotator="who")
    assert data.num_repeated == 1
    assert sorted(data.classes[data.labels[0]]) == ["b", "c"]


def test_categories_name_the_classes_in_their_order() -> None:
    order = ["low", "mid", "top"]
    lines = {"item": [1, 1], "label": ["top", "low"]}
    pandas_table = pd.DataFrame(lines).astype({"label": pd.CategoricalDtype(order)})
    polars_table = pl.DataFrame(lines, schema_overrides={"label": pl.Enum(order)})
    for table in (pandas_table, polars_table):
        assert PairData.from_long(table, item="item", label="label").classes.tolist() == order
    given = PairData.from_long(lines, item="item", label="label", classes=["top", "low"])
    assert given.classes.tolist() == ["top", "low"]


def test_a_crosstab_keeps_its_names_and_is_matched_by_them() -> None:
    table = pd.DataFrame({"item": [1, 1, 2, 2, 2], "label": ["b", "a", "c", "c", "a"]})
    counts = pd.crosstab(table["item"], table["label"])
    assert PairData.from_counts(counts).classes.tolist() == ["a", "b", "c"]
    aligned = PairData.from_targets(counts, "counts", classes=["d", "c", "b", "a"])
    np.testing.assert_array_equal(aligned.counts(), [[0, 0, 1, 1], [0, 2, 0, 1]])
    numbered = pd.DataFrame([[1, 1], [2, 0]])
    assert PairData.from_counts(numbered, classes=["x", "y"]).classes.tolist() == ["x", "y"]


@pytest.mark.parametrize("table", _tables(LINES), ids=["pandas", "polars", "pyarrow", "dict"])
def test_an_unknown_column_is_named(table) -> None:
    with pytest.raises(ValueError, match=r"no column 'stars'.*label"):
        PairData.from_long(table, item="item", label="stars")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"item": [1, 2], "label": ["a", "b"]}, "second annotator"),
        ({"item": [1], "label": [None]}, "no line with a label"),
        ({"item": [1], "label": ["a", "b"]}, "expected one length"),
    ],
)
def test_refusals(table, words) -> None:
    with pytest.raises(ValueError, match=words):
        PairData.from_long(table, item="item", label="label")


def test_a_single_response_has_the_likelihood_of_the_marginal() -> None:
    joint = TableJoint(torch.tensor([[[0.4, 0.2], [0.2, 0.2]]] * 2).log())
    labels, multiplicity = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1, 1], [1, 0]])
    found = all_pairs_log_prob(joint, labels, multiplicity).exp()
    torch.testing.assert_close(found, torch.tensor([0.2, 0.4]))


@pytest.mark.parametrize("loss", ["all_pairs", "pair", "snapshot"])
def test_single_responses_are_trained_on_and_left_out_of_the_guarantee(loss) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    seen = X[:, :1] + 0.5 * rng.normal(size=(400, 3))
    rows = [list(row[:k]) for row, k in zip(seen > 0, rng.integers(1, 4, 400), strict=True)]
    data = PairData.from_ragged(rows)
    model = PairClassifier(loss=loss, backbone="mlp", width=16, num_steps=30).fit(X, data)
    assert np.isfinite(model.score(X, data))
    paired = data.has_pair
    whole = model.calibrate(X, data, min_variance=0.05).predict_interval(X)
    assert any("rows with a single one" in said for said in model.calibration_conditions_)
    part = model.calibrate(X[paired], data[paired], min_variance=0.05).predict_interval(X)
    np.testing.assert_array_equal(whole.upper, part.upper)
