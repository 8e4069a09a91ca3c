"""The scikit-learn face: its own checks, targets, tools around it, intervals, files, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from secondguess._files import replacing_folder
from secondguess.classification import saving
from secondguess.classification.cross_validation import cross_predict
from secondguess.classification.estimators import PairClassifier
from secondguess.classification.heads import HeadName
from secondguess.classification.pairs import PairData
from secondguess.theory.records import RestsOn

HEADS: list[HeadName] = ["correlation", "mixture", "symmetric", "binary"]


def _responses(num_rows: int = 120, num_raters: int = 3, seed: int = 0):
    """Three classes in a plane; raters see a point with noise of their own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 2))
    seen = X[:, None, 0] + 0.5 * rng.normal(size=(num_rows, num_raters))
    return X, np.array(["low", "mid", "top"])[np.digitize(seen, [-0.5, 0.5])]


def _small(**settings) -> PairClassifier:
    """A small network alone, trained for a moment."""
    default = {"targets": "responses", "backbone": "mlp", "width": 16, "num_steps": 30}
    return PairClassifier(**{**default, **settings})


def _counts(Y) -> np.ndarray:
    return PairData.from_responses(Y).counts()


@pytest.mark.parametrize("head", HEADS)
def test_predictions_have_the_shapes_and_classes_of_the_labels(head) -> None:
    X, Y = _responses()
    model = _small(head=head).fit(X, Y)
    assert model.classes_.tolist() == ["low", "mid", "top"]
    assert set(model.predict(X)) <= {"low", "mid", "top"}
    probs = model.predict_proba(X)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(X), model.classes_[probs.argmax(axis=1)])
    joint = model.predict_joint(X)
    np.testing.assert_allclose(joint.marginal, probs)
    np.testing.assert_allclose(joint.epistemic_variance, model.predict_variance(X))
    np.testing.assert_allclose(joint.epistemic_confidence, model.predict_confidence(X))
    if head != "symmetric":
        assert (model.predict_variance(X) >= 0).all()
        assert (model.predict_confidence(X) <= 1).all()


def test_counts_and_responses_of_the_same_annotations_give_the_same_model() -> None:
    X, Y = _responses()
    # Two steps, because rounding differs and grows with every step.
    by_responses = _small(num_steps=2).fit(X, Y)
    by_counts = _small(num_steps=2, targets="counts", classes=["low", "mid", "top"])
    by_counts.fit(X, _counts(Y))
    by_data = _small(num_steps=2, targets=None).fit(X, PairData.from_responses(Y))
    expected = by_responses.predict_proba(X)
    np.testing.assert_allclose(by_counts.predict_proba(X), expected, atol=1e-5)
    np.testing.assert_array_equal(by_data.predict_proba(X), expected)
    np.testing.assert_allclose(by_counts.score(X, _counts(Y)), by_responses.score(X, Y), rtol=1e-5)


@pytest.mark.parametrize("loss", ["all_pairs", "pair"])
def test_same_seed_same_result(loss) -> None:
    X, Y = _responses(300)
    first, second, other = (
        _small(loss=loss, random_state=seed).fit(X, Y).predict_variance(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_score_is_the_mean_pair_log_likelihood() -> None:
    X, Y = _responses(40, num_raters=2)
    model = _small().fit(X, Y)
    joint = model.predict_joint(X)
    codes = torch.from_numpy(np.searchsorted(model.classes_, Y))
    expected = joint.log_prob(codes[:, 0], codes[:, 1]).mean().item()
    assert model.score(X, Y) == pytest.approx(expected)


def test_early_stopping_and_recalibration_need_a_validation_part() -> None:
    X, Y = _responses(400)
    fitted = _small(num_steps=400, validate_every=10, patience=2, learning_rate=0.01).fit(X, Y)
    assert fitted.history_.best_step < 400
    assert fitted.recalibration_.temperature != 1
    small = _small().fit(X[:100], Y[:100])
    assert len(small.history_.validation_steps) == 0
    assert small.recalibration_.temperature == 1
    given = _small().fit(X[:100], Y[:100], validation=(X[100:], Y[100:]))
    assert len(given.history_.validation_steps) > 0
    assert _small(recalibrate=False).fit(X, Y).recalibration_.temperature == 1


def test_groups_are_held_out_together() -> None:
    # Every row occurs ten times, slightly blurred, so that none is a copy of another; held out by
    # row, the validation loss could not see overfitting.
    X, Y = _responses(40)
    X, Y, groups = np.repeat(X, 10, 0), np.repeat(Y, 10, 0), np.repeat(np.arange(40), 10)
    X = X + 1e-6 * np.random.default_rng(0).normal(size=X.shape)
    settings = {"num_steps": 300, "validate_every": 10, "learning_rate": 0.01, "patience": 100}
    by_group = _small(**settings).fit(X, Y, groups=groups).history_
    by_row = _small(**settings).fit(X, Y).history_
    assert by_group.validation_losses[-1] > by_row.validation_losses[-1] + 0.5
    assert by_group.best_step < 200


def test_works_in_pipeline_grid_search_and_cross_validation() -> None:
    X, Y = _responses()
    pipeline = make_pipeline(StandardScaler(), _small(num_steps=10))
    search = GridSearchCV(pipeline, {"pairclassifier__learning_rate": [1e-5, 1e-2]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"pairclassifier__learning_rate": 1e-2}
    assert cross_val_score(pipeline, X, Y, cv=2).shape == (2,)
    assert set(cross_val_predict(pipeline, X, Y, cv=2)) <= {"low", "mid", "top"}
    assert clone(_small(head="binary")).get_params()["head"] == "binary"  # pyright: ignore


def test_cross_predict_gives_out_of_fold_moments_in_one_order_of_classes() -> None:
    X, Y = _responses(90)
    Y = np.where(Y == "mid", "low", Y)
    Y[:3] = "rare"  # occurs in one fold only
    folds = cross_predict(_small(), X, Y, cv=3)
    assert folds.probs.shape == (90, 3)
    first = _small(classes=["low", "rare", "top"]).fit(X[30:], Y[30:]).predict_moments(X[:30])
    np.testing.assert_allclose(folds.probs[:30], first.probs)
    np.testing.assert_allclose(folds.variance[:30], first.variance)
    pipeline = make_pipeline(StandardScaler(), _small())
    groups = np.arange(90) // 3
    grouped = cross_predict(pipeline, X, Y, cv=GroupKFold(3), groups=groups)
    assert np.isfinite(grouped.variance).all()
    with pytest.raises(TypeError, match="expected a PairClassifier"):
        cross_predict(StandardScaler(), X, Y)  # pyright: ignore[reportArgumentType]


def test_scikit_learns_own_way_to_probabilities_mixes_classes_up() -> None:
    # Rater 0 says "mid" or "top", rater 1 "low" or "mid": re-encoded column by column, both have
    # the classes 0 and 1, and the first fold, all of (mid, low), seems to hold a single class.
    X = np.linspace(-1, 1, 60)[:, None]
    Y = np.where(X > 0, ["top", "mid"], ["mid", "low"])
    assert cross_predict(_small(), X, Y, cv=2).probs.shape == (60, 3)
    with pytest.raises(ValueError, match="one class"):
        cross_val_predict(_small(), X, Y, cv=2, method="predict_proba")


def test_intervals_come_from_a_calibration_set_and_say_so() -> None:
    X, Y = _responses(900, seed=1)
    model = _small(num_steps=100).fit(X[:300], Y[:300])
    with pytest.raises(NotFittedError, match=r"call calibrate\(X, y\)"):
        model.predict_interval(X)
    assert model.calibrate(X[300:], Y[300:], min_variance=0.01) is model
    interval = model.predict_interval(X, miss_rate=0.2)
    assert interval.rests_on is RestsOn.CALIBRATION_SET
    assert interval.lower.shape == (900, 3)
    assert [i.num_responses for i in model.inflations_.inflations] == [3, 3, 3]
    wider = model.predict_interval(X, miss_rate=0.2, jointly=True)
    assert (wider.width >= interval.width).all()
    assert (wider.width > interval.width).any()
    chosen = model.calibrate(X[300:], Y[300:])
    sizes = {i.num_rows for i in chosen.inflations_.inflations}
    assert len(sizes) == 1  # a random fifth chose the cut-off, the same rows for every class
    assert 420 < sizes.pop() < 540
    model.fit(X[:300], Y[:300])
    with pytest.raises(NotFittedError):
        model.predict_interval(X)


def test_counts_of_different_sizes_calibrate_with_as_many_as_the_poorest_row() -> None:
    X, Y = _responses(200, num_raters=5)
    counts = _counts(Y)
    counts[7] = [1, 0, 2]
    model = _small(targets="counts").fit(X, counts).calibrate(X, counts, min_variance=0.05)
    assert model.inflations_.inflations[0].num_responses == 3


class Flat(nn.Module):
    """A backbone for images `(n, 2, 2)` with dropout, to see that modes are set."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)


def test_a_backbone_of_ones_own_is_copied_and_takes_any_shape() -> None:
    X, Y = _responses()
    images = np.concatenate([X, X**2], axis=1).reshape(-1, 2, 2)
    backbone = Flat()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    model = _small(backbone=backbone).fit(images, Y)
    assert all(value.equal(before[name]) for name, value in backbone.state_dict().items())
    np.testing.assert_array_equal(model.predict_proba(images), model.predict_proba(images))
    with pytest.raises(ValueError, match=r"expected \(n, num_features\)"):
        _small(backbone=nn.Identity()).fit(images, Y)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("own", [False, True])
def test_saved_and_loaded_it_predicts_the_same(tmp_path, head, own) -> None:
    X, Y = _responses(240)
    backbone = nn.Sequential(nn.Linear(2, 5), nn.Tanh()) if own else None
    model = (
        _small(head=head, backbone=backbone or "mlp")
        .fit(X[:200], Y[:200])
        .calibrate(X[200:], Y[200:])
    )
    model.save(tmp_path / "model")
    loaded = PairClassifier.load(tmp_path / "model", backbone=backbone)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.predict_variance(X), model.predict_variance(X))
    first, second = loaded.predict_interval(X, 0.2), model.predict_interval(X, 0.2)
    np.testing.assert_array_equal(first.upper, second.upper)
    assert loaded.score(X, Y) == model.score(X, Y)
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".safetensors", ".json"}


def test_damaged_or_foreign_files_are_refused(tmp_path) -> None:
    X, Y = _responses()
    model = _small(backbone=nn.Linear(2, 5)).fit(X, Y)
    folder = tmp_path / "model"
    model.save(folder)
    with pytest.raises(ValueError, match="with a backbone of its own"):
        PairClassifier.load(folder)
    with pytest.raises(ValueError, match="do not fit the backbone"):
        PairClassifier.load(folder, backbone=nn.Linear(3, 5))
    with pytest.raises(FileNotFoundError, match="expected a folder"):
        PairClassifier.load(tmp_path / "elsewhere")
    weights = folder / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-7])
    with pytest.raises(ValueError, match=r"weights\.safetensors was changed"):
        PairClassifier.load(folder, backbone=nn.Linear(2, 5))
    weights.unlink()
    with pytest.raises(ValueError, match=r"weights\.safetensors is missing"):
        PairClassifier.load(folder, backbone=nn.Linear(2, 5))


def test_a_folder_of_another_kind_or_version_is_refused(tmp_path) -> None:
    folder = tmp_path / "model"
    for files, words in (
        ({"notes.txt": "none"}, "expected a directory that PairClassifier.save wrote"),
        ({"classifier.json": "{", "weights.safetensors": ""}, "damaged classifier"),
    ):
        with replacing_folder(folder) as unfinished:
            for name, text in files.items():
                (unfinished / name).write_text(text)
        with pytest.raises((ValueError, OSError), match=words):
            PairClassifier.load(folder)
    with replacing_folder(folder) as unfinished:
        (unfinished / "classifier.json").write_text(
            '{"kind": "secondguess classifier", "format": 99}'
        )
        save_file({"nothing": torch.zeros(1)}, unfinished / "weights.safetensors")
    with pytest.raises(ValueError, match="has format 99"):
        PairClassifier.load(folder)


def test_a_save_that_is_cut_short_leaves_the_earlier_one(tmp_path, monkeypatch) -> None:
    X, Y = _responses()
    first, second = _small().fit(X, Y), _small(random_state=1).fit(X, Y)
    first.save(tmp_path / "model")

    def cut_short(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(saving, "write_document", cut_short)  # after the weights were written
    with pytest.raises(KeyboardInterrupt):
        second.save(tmp_path / "model")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    loaded = PairClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), first.predict_proba(X))
    second.save(tmp_path / "model")
    loaded = PairClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), second.predict_proba(X))


def test_a_fit_goes_on_from_its_checkpoints_and_refuses_those_of_other_rows(tmp_path) -> None:
    X, Y = _responses()
    plain = _small().fit(X, Y).predict_proba(X)
    for _ in range(2):  # the second time there is nothing left to train
        again = _small(checkpoint_dir=tmp_path).fit(X, Y)
        np.testing.assert_array_equal(again.predict_proba(X), plain)
    with pytest.raises(ValueError, match="rows"):
        _small(checkpoint_dir=tmp_path).fit(X[1:], Y[1:])


def test_targets_are_stated_and_doubted_where_they_look_wrong() -> None:
    X, Y = _responses(200, num_raters=6)
    counts, codes = _counts(Y), np.searchsorted(["low", "mid", "top"], Y)
    with pytest.raises(ValueError, match="targets is None; expected 'responses'"):
        PairClassifier().fit(X, Y)
    with pytest.raises(ValueError, match=r"looks like annotator counts.*targets='counts'"):
        _small().fit(X, counts)
    with pytest.raises(ValueError, match=r"looks like responses.*targets='responses'"):
        _small(targets="counts").fit(X, codes + 1)
    with pytest.raises(ValueError, match="holds <U3 labels"):
        _small(targets="counts").fit(X, Y)
    _small(num_steps=1).fit(X, codes)
    _small(num_steps=1, targets="counts").fit(X, counts)
    confirmed = _small(num_steps=1, classes=range(7)).fit(X, counts)
    assert len(confirmed.classes_) == 7


@pytest.mark.parametrize(
    ("settings", "change", "words"),
    [
        ({}, lambda X, Y: (X, Y[:, :1]), "second annotator"),
        ({}, lambda X, Y: (X, Y[:, 0]), "second annotator"),
        ({}, lambda X, Y: (X, np.full_like(Y, "low")), "one class"),
        ({}, lambda X, Y: (X[:-1], Y), "inconsistent numbers of samples"),
        ({}, lambda X, Y: (np.where(X > 1, np.nan, X), Y), "contains NaN"),
        ({"classes": ["low", "top"]}, lambda X, Y: (X, Y), "'mid'"),
        ({"head": "square"}, lambda X, Y: (X, Y), "head is 'square'"),
        ({"loss": "hinge"}, lambda X, Y: (X, Y), "loss is 'hinge'"),
    ],
)
def test_refusals_of_fit(settings, change, words) -> None:
    with pytest.raises(ValueError, match=words):
        _small(**settings).fit(*change(*_responses()))


def test_refusals_after_fit() -> None:
    X, Y = _responses()
    model = _small().fit(X, Y)
    with pytest.raises(ValueError, match=r"X has 3 features.*expecting 2"):
        model.predict(np.ones((4, 3)))
    with pytest.raises(ValueError, match="'new'"):
        model.calibrate(X, np.where(Y == "mid", "new", Y))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.score(X, Y[:-1])
    with pytest.raises(NotFittedError):
        _small().predict(X)
