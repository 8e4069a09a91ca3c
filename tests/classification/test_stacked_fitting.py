"""The automatic fit: a regression, a head on it, a network where it helps, and its warnings."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import grouping_error, mean_variance, second_order_ece
from secondguess.classification import stacked_fitting
from secondguess.classification.estimators import PairClassifier
from secondguess.classification.fit_warnings import PairFitWarning, warn_of_training
from secondguess.classification.fitting import Rows
from secondguess.classification.heads import head_name
from secondguess.classification.held_out import SHARES, best_share
from secondguess.classification.logistic import Logistic, cross_fit_logistic, fit_logistic
from secondguess.classification.offsets import set_own_share
from secondguess.classification.pairs import PairData
from secondguess.classification.stacked_fitting import cross_fit_rows, regression_folds
from secondguess.classification.stacking import fit_head, linear_model, network_size
from secondguess.classification.weighting import prepared_rows
from secondguess.theory.annotations import Annotations
from secondguess.training.loop import TrainingHistory


def _draw(probs: np.ndarray, num_raters: int, rng: np.random.Generator) -> np.ndarray:
    edges = probs.cumsum(axis=1)[:, None, :-1]
    labels = (rng.random((len(probs), num_raters, 1)) > edges).sum(axis=2)
    return PairData.from_responses(labels, classes=range(probs.shape[1])).counts()


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _linear_world(num_rows: int, rng: np.random.Generator):
    """Three classes, linear log-odds, and a hidden factor that only people see."""
    X = rng.normal(size=(num_rows, 6))
    hidden = rng.choice([-1.5, 1.5], size=num_rows) * (X[:, 0] > 0)
    logits = np.stack([X[:, 1] + X[:, 2], X[:, 3], hidden], axis=1)
    return X, _softmax(logits)


def test_the_regression_is_that_of_the_shares() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    probs = _softmax(X @ rng.normal(size=(3, 4)))
    fitted = fit_logistic(X, probs, 1e-9)
    np.testing.assert_allclose(_softmax(fitted(X)), probs, atol=2e-3)


def test_log_odds_are_out_of_fold() -> None:
    # Pure noise in many features: in sample the regression fits it, out of fold it cannot.
    rng = np.random.default_rng(0)
    X, counts = rng.normal(size=(100, 80)), rng.multinomial(3, [0.5, 0.5], size=100)
    fitted = cross_fit_logistic(X, counts, np.arange(100) % 5)
    signs = counts[:, 1] - counts[:, 0]
    inside = fitted.model(X)
    assert np.corrcoef(inside[:, 1] - inside[:, 0], signs)[0, 1] > 0.3
    out = fitted.logits[:, 1] - fitted.logits[:, 0]
    assert abs(np.corrcoef(out, signs)[0, 1]) < 0.35


@pytest.mark.statistical
def test_known_world_is_calibrated() -> None:
    # Against the known truth there is no noise but that of the fit, whose law is not known: the
    # seed is fixed and no false-alarm rate is claimed.
    rng = np.random.default_rng(0)
    X, truth = _linear_world(5000, rng)
    counts = _draw(truth[:2000], 3, rng)
    model = PairClassifier("counts", backbone="linear").fit(X[:2000], counts)
    assert head_name(model.model_.head) == "mixture"  # of the two heads, the likelier one
    prediction = model.predict_moments(X[2000:])
    known = Annotations.known(truth[2000:])
    error = grouping_error(prediction, known)
    assert abs(mean_variance(prediction) / error - 1) < 0.25
    assert second_order_ece(prediction, known, num_bins=10) < 0.3 * error


@pytest.mark.statistical
def test_the_background_of_stray_answers_is_found() -> None:
    # A world of the head's own kind: people agree on what is doubtful, and one answer in seven is
    # stray. The seed is fixed, and no false-alarm rate is claimed.
    rng, num_rows, rate = np.random.default_rng(0), 3000, 0.05
    logits = 2 * rng.normal(size=(num_rows, 6))
    means = _softmax(logits)
    doubtful = means**2 / (means + rate)
    total = doubtful.sum(axis=1, keepdims=True)
    settled = rng.random((num_rows, 1)) < 0.5  # r
    label = (rng.random((num_rows, 1)) > (doubtful / total).cumsum(axis=1)[:, :-1]).sum(axis=1)
    truth = np.where(settled, means - doubtful + total * np.eye(6)[label], means)
    data = PairData.from_counts(_draw(truth, 3, rng))
    base = Logistic(np.eye(6), np.zeros(6))
    model = linear_model(base, logits, "correlation")
    rows = Rows(torch.from_numpy(np.hstack([logits, logits])), data)
    fit_head(model, rows, eigenvalue_weight=0.0, snapshot=False, seed=0)
    joint = model(torch.from_numpy(logits).float())
    shares, found = joint.log_shares.detach().exp(), joint.marginal.detach()
    assert abs((found / shares - found).mean().item() / rate - 1) < 0.3
    rare = means < 0.05
    stated = joint.epistemic_variance.detach().numpy()[rare].mean()
    exact = (0.5 * doubtful * (total - doubtful))[rare].mean()
    assert abs(stated / exact - 1) < 0.3
    without = (0.5 * means * (1 - means))[rare].mean()
    assert without > 2 * exact  # so that the line before it says something


@pytest.mark.statistical
def test_few_rows_do_not_raise_the_variance() -> None:
    # 200 rows, 15 classes, some of them rare: without a map the head states 0.85 of the error. Mean
    # over ten worlds, whose ratios spread by 0.2; fixed seeds, no false-alarm rate is claimed.
    ratios = []
    for seed in range(10):
        rng = np.random.default_rng([seed, 99])
        X, hidden = rng.normal(size=(12_000, 30)), rng.normal(size=(12_000, 6))
        logits = X @ (rng.normal(size=(30, 15)) / np.sqrt(30) * 2.5)
        logits += hidden @ (rng.normal(size=(6, 15)) / np.sqrt(6) * 2)
        logits -= np.linspace(0, 4, 15)
        confusion = np.full((15, 15), 0.01)
        for label in range(15):
            confusion[label, label] = 1
            confusion[label, (label + 1) % 15] = 0.05 if label % 2 else 0.2
            confusion[label, (label + 3) % 15] = 0.08
        truth = _softmax(1.5 * logits) @ (confusion / confusion.sum(axis=1, keepdims=True))
        counts = rng.multinomial(2, truth / truth.sum(axis=1, keepdims=True))[:200]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PairFitWarning)
            model = PairClassifier("counts", classes=range(15), backbone="linear")
            prediction = model.fit(X[:200], counts).predict_moments(X[8000:])
        error = grouping_error(prediction, Annotations.known(truth[8000:]))
        ratios.append(mean_variance(prediction) / error)
    assert 0.9 < np.mean(ratios) < 1.15


def test_the_network_is_used_where_it_helps_and_costs_nothing_elsewhere() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    curved = _softmax(np.stack([3 * X[:, 0] * X[:, 1], np.zeros(1500)], axis=1))
    counts = _draw(curved, 3, rng)
    auto = PairClassifier("counts", backbone="auto").fit(X[:1000], counts[:1000])
    linear = PairClassifier("counts", backbone="linear").fit(X[:1000], counts[:1000])
    assert auto.history_.best_step > 0
    assert auto.score(X[1000:], counts[1000:]) > linear.score(X[1000:], counts[1000:]) + 0.05
    # Where it cannot help it may still be taken, by chance, and must not cost anything.
    straight = _draw(_softmax(np.stack([2 * X[:, 0], np.zeros(1500)], axis=1)), 3, rng)
    auto = PairClassifier("counts", backbone="auto").fit(X[:1000], straight[:1000])
    linear = PairClassifier("counts", backbone="linear").fit(X[:1000], straight[:1000])
    assert auto.score(X[1000:], straight[1000:]) > linear.score(X[1000:], straight[1000:]) - 0.002


def test_validation_rows_and_groups_decide_where_given(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X, truth = _linear_world(800, rng)
    counts = _draw(truth, 3, rng)
    settings = {"num_steps": 20, "width": 8, "checkpoint_dir": tmp_path}
    model = PairClassifier("counts", backbone="auto", **settings)
    model.fit(X[:600], counts[:600], validation=(X[600:], counts[600:]))
    assert (tmp_path / "network").is_dir()
    grouped = PairClassifier("counts", backbone="linear")
    grouped.fit(X, counts, groups=np.arange(800) // 2)
    with pytest.raises(ValueError, match=r"groups has shape \(3,\)"):
        grouped.fit(X, counts, groups=[1, 2, 3])


def test_groups_stay_together_where_a_share_of_the_rows_decides(monkeypatch) -> None:
    # As in test_protocol.py: copies that agree on a label which the features do not show. With
    # copies in other folds the weakest penalty seems best, and the log-odds of new rows are wild.
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(60, 80)), rng.integers(2, size=60)
    new, groups = rng.normal(size=(500, 80)), np.repeat(np.arange(60), 5)
    copies, Y = X[groups], np.stack([labels[groups]] * 3, axis=1)
    monkeypatch.setattr(stacked_fitting, "MOST_CROSS_FITTED", 100)
    monkeypatch.setattr(stacked_fitting, "MOST_HELD_OUT", 100)
    model = PairClassifier("responses", backbone="linear").fit(copies, Y, groups=groups)
    assert np.abs(model.predict_proba(new) - 0.5).mean() < 0.1


@pytest.mark.parametrize("backbone", ["auto", "linear"])
@pytest.mark.parametrize("head", ["correlation", "mixture", "symmetric", "binary"])
def test_saved_and_loaded_it_predicts_the_same(tmp_path, backbone, head) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    counts = _draw(_softmax(np.stack([3 * X[:, 0] * X[:, 1], X[:, 2], X[:, 0]], axis=1)), 3, rng)
    settings = {"width": 8, "num_steps": 60, "learning_rate": 0.02}
    model = PairClassifier("counts", backbone=backbone, head=head, **settings)
    model.fit(X[:400], counts[:400], validation=(X[400:], counts[400:]))
    assert network_size(model.model_) == ((8, 1) if backbone == "auto" else None)
    model.save(tmp_path / "model")
    loaded = PairClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_variance(X), model.predict_variance(X))
    assert loaded.score(X, counts) == model.score(X, counts)


@pytest.mark.parametrize(("losses", "warns"), [([1, 2, 3], True), ([2, 1, 3], False), ([1], False)])
def test_a_network_that_overfits_at_once_says_so(losses, warns) -> None:
    steps = 10 * np.arange(1, len(losses) + 1)
    history = TrainingHistory(np.ones(30), steps, np.array(losses), int(steps[np.argmin(losses)]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_training(history)
    assert [str(w.message)[:40] for w in caught] == (
        ["the first validation, after step 10, was"] if warns else []
    )


def test_a_variance_that_held_out_rows_contradict_is_named() -> None:
    # Each item has one right label that its features do not show, and the module shows none.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    counts = 3 * np.eye(2, dtype=int)[rng.integers(2, size=1000)]

    class Nothing(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(inputs)

    settings = {"backbone": Nothing(), "head": "symmetric", "num_steps": 1}
    with pytest.warns(PairFitWarning, match="recalibration multiplied the mean variance"):
        model = PairClassifier("counts", **settings).fit(X, counts)
    with pytest.warns(PairFitWarning, match="do not trust its variance"):
        raw = PairClassifier("counts", recalibrate=False, **settings).fit(X, counts)
    assert model.predict_variance(X).mean() > raw.predict_variance(X).mean()


def _regression_probs(X, counts, X_new) -> np.ndarray:
    """p(y|x) of the regression inside, fitted by itself."""
    data = PairData.from_counts(counts)
    rows, standardise = prepared_rows(X, data)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    fitted = cross_fit_rows(rows, regression_folds(rows, seed))
    return _softmax(fitted.model(standardise(X_new)))


@pytest.mark.statistical
def test_where_log_odds_are_linear_nothing_is_lost_to_the_regression() -> None:
    # Mean over ten worlds, fixed seeds; no false-alarm rate is claimed.
    gains = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(2160, 8))
        truth = _softmax(X @ rng.normal(size=(8, 3)))
        counts = _draw(truth[:160], 3, rng)
        model = PairClassifier("counts", classes=range(3), backbone="linear").fit(X[:160], counts)
        logs = np.log(model.predict_proba(X[160:]))
        kept = np.log(_regression_probs(X[:160], counts, X[160:]))
        gains.append((truth[160:] * (logs - kept)).sum(axis=1).mean())
    assert np.mean(gains) > -0.002


@pytest.mark.parametrize("share", SHARES)
def test_the_share_that_made_the_responses_is_found(share) -> None:
    # The head adds the regression's log-odds once more, and the truth has that share of it. With
    # 20,000 rows the neighbouring shares are worse by many standard errors.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    base = Logistic(rng.normal(size=(2, 3)), np.zeros(3))
    logits = base(X) - base(X).mean(axis=1, keepdims=True)
    model: Any = linear_model(base, logits, "correlation")
    with torch.no_grad():
        model.head.outputs.weight[:3] = torch.diag(model.backbone.scale)
        model.head.outputs.bias[:3] = model.backbone.mean
    counts = _draw(_softmax((1 + share) * logits), 3, rng)
    rows = Rows(torch.from_numpy(np.hstack([X, logits])), PairData.from_counts(counts))
    assert best_share([model], [rows]) == share


def test_the_marginal_is_another_where_that_is_clearly_better() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 2))
    counts = _draw(_softmax(np.stack([3 * X[:, 0] * X[:, 1], 0 * X[:, 0]], axis=1)), 3, rng)
    model = PairClassifier("counts").fit(X[:1200], counts[:1200])
    kept = _regression_probs(X[:1200], counts[:1200], X[1200:])
    shares = counts[1200:] / 3
    found = model.predict_proba(X[1200:])
    assert -(shares * np.log(found)).sum() < -0.8 * (shares * np.log(kept)).sum()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("head", ["correlation", "mixture", "binary"])
def test_a_share_of_the_marginal_leaves_a_valid_joint(head, share) -> None:
    rng = np.random.default_rng(1)
    base = Logistic(rng.normal(size=(4, 3)), rng.normal(size=3))
    model: Any = linear_model(base, rng.normal(size=(50, 3)), head).double()
    for parameter in model.head.parameters():
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    inputs = torch.from_numpy(rng.normal(size=(40, 4)))
    free = model(inputs).log_marginal
    regression = (inputs @ model.backbone.weight + model.backbone.bias).log_softmax(-1)
    set_own_share(model.head, share)
    joint = model(inputs)
    wanted = (regression + share * (free - regression)).softmax(-1)
    torch.testing.assert_close(joint.marginal, wanted)
    assert (joint.epistemic_variance >= 0).all()
    assert (joint.epistemic_variance <= wanted * (1 - wanted) + 1e-12).all()
    if head != "binary":  # which gives no table for three classes
        torch.testing.assert_close(joint.log_joint.exp().sum(-1), wanted)
        assert (torch.linalg.eigvalsh(joint.log_joint.exp()) > -1e-12).all()
