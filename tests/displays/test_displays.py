"""Displays draw the numbers of the metrics, on given axes or on their own, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from secondguess import Prediction, SelfCheatScores, Triage, triage
from secondguess.classification.estimators import PairClassifier
from secondguess.classification.pairs import PairData
from secondguess.displays import (
    ConfidenceReliabilityDisplay,
    HallucinationCurveDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    TriageDisplay,
)
from secondguess.theory.annotations import Annotations
from secondguess.theory.metrics import (
    hallucination_curve,
    risk_coverage_curve,
    squared_error_estimate,
)
from secondguess.theory.reliability import reliability_bins

RNG = np.random.default_rng(0)
COUNTS = RNG.multinomial(6, [0.5, 0.3, 0.2], size=200)
PROBS = RNG.dirichlet([5, 3, 2], size=200)
PREDICTION = Prediction(PROBS, 0.1 * PROBS * (1 - PROBS))
CONFIDENCE = RNG.uniform(size=200)
IS_MADE_UP = RNG.random(200) > CONFIDENCE
SCORES = SelfCheatScores(np.log(0.5 * CONFIDENCE), np.full(200, np.log(0.5)))


class Estimator:
    """What a fitted pair classifier offers: its classes, its moments and its confidences."""

    classes_ = np.array(["a", "b", "c"])

    def predict_moments(self, X: np.ndarray) -> Prediction:
        return Prediction(PROBS[X], PREDICTION.variance[X])

    def predict_confidence(self, X: np.ndarray) -> np.ndarray:
        return np.stack([CONFIDENCE, CONFIDENCE / 2, CONFIDENCE / 3], axis=1)[X]


ROWS = np.arange(200)
DATA = PairData.from_counts(COUNTS, classes=["a", "b", "c"])
FROM_PREDICTIONS = {
    ReliabilityDisplay: (PREDICTION, COUNTS),
    ConfidenceReliabilityDisplay: (CONFIDENCE, ~IS_MADE_UP),
    RiskCoverageDisplay: (CONFIDENCE, 1.0 * IS_MADE_UP),
    HallucinationCurveDisplay: (1 - CONFIDENCE, IS_MADE_UP),
}
ALL = pytest.mark.parametrize("kind", FROM_PREDICTIONS, ids=lambda kind: kind.__name__)


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    matplotlib.use("agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def drawn(line) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


@ALL
def test_every_display_keeps_the_convention(kind) -> None:
    display = kind.from_predictions(*FROM_PREDICTIONS[kind], name="one")
    assert display.ax_.figure is display.figure_
    assert display.line_ in display.ax_.get_lines()
    assert display.line_.get_label() == "one"
    assert display.ax_.get_xlabel()
    assert display.ax_.get_ylabel()
    # Drawn again, elsewhere, with another name and another look.
    axes = Figure().subplots()
    again = display.plot(ax=axes, name="again", color="red")
    assert again is display
    assert display.ax_ is axes
    assert (display.line_.get_label(), display.line_.get_color()) == ("again", "red")


@ALL
def test_a_second_series_shares_the_axes_the_reference_and_the_legend(kind) -> None:
    first = kind.from_predictions(*FROM_PREDICTIONS[kind], name="first")
    second = kind.from_predictions(*FROM_PREDICTIONS[kind], name="second", ax=first.ax_)
    assert second.ax_ is first.ax_
    labels = [text.get_text() for text in first.ax_.get_legend().get_texts()]
    assert [label for label in labels if label in ("first", "second")] == ["first", "second"]
    assert len(labels) == len(set(labels))


@ALL
def test_without_a_name_there_is_no_legend(kind) -> None:
    display = kind.from_predictions(*FROM_PREDICTIONS[kind], ax=Figure().subplots())
    assert display.ax_.get_legend() is None


@ALL
def test_an_estimator_gives_its_own_name_and_takes_pair_data_or_counts(kind) -> None:
    counted, paired = (kind.from_estimator(Estimator(), ROWS, y) for y in (COUNTS, DATA))
    np.testing.assert_array_equal(drawn(counted.line_), drawn(paired.line_))
    display = kind.from_estimator(Estimator(), ROWS, COUNTS)
    assert display.line_.get_label() == "Estimator"


@ALL
def test_classes_in_another_order_are_refused(kind) -> None:
    other = PairData.from_counts(COUNTS, classes=["b", "a", "c"])
    with pytest.raises(ValueError, match=r"classes .*b.*a.*c.*expected those of the estimator"):
        kind.from_estimator(Estimator(), ROWS, other)


@ALL
def test_a_real_estimator_can_be_drawn(kind) -> None:
    inputs = RNG.normal(size=(60, 2))
    y = (inputs[:, :1] + 0.5 * RNG.normal(size=(60, 3)) > 0).astype(int)
    model = PairClassifier(targets="responses").fit(inputs, y)
    display = kind.from_estimator(model, inputs, PairData.from_responses(y))
    assert display.line_.get_label() == "PairClassifier"


def test_reliability_of_variance_draws_the_bins_of_squared_errors() -> None:
    display = ReliabilityDisplay.from_predictions(PREDICTION, COUNTS, num_bins=7)
    errors = squared_error_estimate(PROBS, COUNTS)
    bins = reliability_bins(PREDICTION.variance, errors, num_bins=7)
    np.testing.assert_array_equal(drawn(display.line_), (bins.predicted, bins.observed))
    np.testing.assert_array_equal(display.bins.observed, bins.observed)


def test_reliability_of_variance_takes_a_known_truth() -> None:
    truth = np.full((200, 3), 1 / 3)
    display = ReliabilityDisplay.from_predictions(PREDICTION, Annotations.known(truth), num_bins=5)
    bins = reliability_bins(PREDICTION.variance, (PROBS - truth) ** 2, num_bins=5)
    np.testing.assert_array_equal(drawn(display.line_), (bins.predicted, bins.observed))


def test_reliability_of_probability_draws_annotators_shares() -> None:
    display = ReliabilityDisplay.from_predictions(PREDICTION, COUNTS, order="first", num_bins=7)
    bins = reliability_bins(PROBS, COUNTS / 6, num_bins=7)
    np.testing.assert_array_equal(drawn(display.line_), (bins.predicted, bins.observed))


def test_the_diagonal_reaches_every_series() -> None:
    small = ReliabilityDisplay.from_predictions(PREDICTION, COUNTS, name="small")
    large = Prediction(PROBS, 10 * PREDICTION.variance)
    ReliabilityDisplay.from_predictions(large, COUNTS, name="large", ax=small.ax_)
    diagonal = small.ax_.get_lines()[0]
    x, y = drawn(diagonal)
    np.testing.assert_array_equal(x, y)
    assert x.max() >= max(drawn(line)[0].max() for line in small.ax_.get_lines())


def test_no_reference_line_where_none_is_asked_for() -> None:
    axes = Figure().subplots()
    ReliabilityDisplay.from_predictions(PREDICTION, COUNTS, ax=axes, ref_line=False)
    assert len(axes.get_lines()) == 1


def test_reliability_of_confidence_is_by_deciles_and_says_what_is_above_one() -> None:
    confidence = np.concatenate([np.linspace(0, 1, 95), [1.2, 3.0, 50.0, np.inf, np.inf]])
    is_true = np.arange(100) % 2 == 0
    display = ConfidenceReliabilityDisplay.from_predictions(confidence, is_true, name="mine")
    bins = reliability_bins(np.minimum(confidence, 1), is_true, num_bins=10)
    np.testing.assert_array_equal(drawn(display.line_), (bins.predicted, bins.observed))
    assert display.share_above_one == 0.05
    assert display.line_.get_label() == "mine (5 % of C above 1, drawn at 1)"


def test_scores_stand_for_their_confidence_and_their_gap() -> None:
    ours = ConfidenceReliabilityDisplay.from_predictions(SCORES, ~IS_MADE_UP)
    theirs = ConfidenceReliabilityDisplay.from_predictions(SCORES.epistemic_confidence, ~IS_MADE_UP)
    np.testing.assert_array_equal(drawn(ours.line_), drawn(theirs.line_))
    ours = HallucinationCurveDisplay.from_predictions(SCORES, IS_MADE_UP)
    theirs = HallucinationCurveDisplay.from_predictions(SCORES.confidence_gap(), IS_MADE_UP)
    np.testing.assert_array_equal(drawn(ours.line_), drawn(theirs.line_))


def test_a_calibrated_confidence_lies_on_the_diagonal() -> None:
    """Ten bins of 20,000 rows; a mean of 2,000 is off by 0.05 with probability below 1e-4."""
    rng = np.random.default_rng(1)
    confidence = rng.uniform(size=20_000)
    display = ConfidenceReliabilityDisplay.from_predictions(
        confidence, rng.random(20_000) < confidence
    )
    np.testing.assert_allclose(*drawn(display.line_), atol=0.05)


def test_curves_draw_the_metrics_curves() -> None:
    display = HallucinationCurveDisplay.from_predictions(
        1 - CONFIDENCE, IS_MADE_UP, rng=np.random.default_rng(3)
    )
    curve = hallucination_curve(1 - CONFIDENCE, IS_MADE_UP, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(drawn(display.line_), curve)
    losses = RNG.random(200)
    risk = RiskCoverageDisplay.from_predictions(CONFIDENCE, losses, rng=np.random.default_rng(3))
    curve = risk_coverage_curve(CONFIDENCE, losses, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(drawn(risk.line_), curve)


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    gap = np.random.default_rng(0).random(50_000)
    display = HallucinationCurveDisplay.from_predictions(gap, gap > 0.5)
    x, y = drawn(display.line_)
    assert 900 < len(x) <= 1000
    assert (x[-1], y[-1]) == (1.0, (gap > 0.5).mean())


def test_the_risk_of_an_estimator_is_the_annotators_disagreement() -> None:
    display = RiskCoverageDisplay.from_estimator(Estimator(), ROWS, COUNTS)
    losses = 1 - COUNTS[ROWS, PROBS.argmax(axis=1)] / 6
    np.testing.assert_allclose(display.curve.risk[-1], losses.mean())
    first = np.argmax(PROBS.max(axis=1))
    np.testing.assert_allclose(display.curve.risk[0], losses[first])
    by_variance = RiskCoverageDisplay.from_estimator(Estimator(), ROWS, COUNTS, by="variance")
    first = np.argmin(PREDICTION.variance.sum(axis=1))
    np.testing.assert_allclose(by_variance.curve.risk[0], losses[first])


def test_the_risk_of_an_estimator_may_be_the_majority_or_the_squared_error() -> None:
    called = PROBS.argmax(axis=1)
    against = COUNTS[ROWS, called] < COUNTS.max(axis=1)
    display = RiskCoverageDisplay.from_estimator(Estimator(), ROWS, COUNTS, loss="majority")
    np.testing.assert_allclose(display.curve.risk[-1], against.mean())
    assert 0 < against.mean() < 1
    assert display.ax_.get_ylabel() == "labels against the majority"
    errors = squared_error_estimate(PROBS, COUNTS).sum(axis=1)
    display = RiskCoverageDisplay.from_estimator(
        Estimator(), ROWS, COUNTS, loss="squared_error", by="variance"
    )
    np.testing.assert_allclose(display.curve.risk[-1], errors.mean())
    np.testing.assert_allclose(
        display.curve.risk[0], errors[np.argmin(PREDICTION.variance.sum(axis=1))]
    )
    assert display.ax_.get_ylabel() == "squared error of probabilities"


@pytest.mark.statistical
def test_each_loss_has_a_ranking_of_its_own() -> None:
    """20,000 rows; at half coverage the two rankings differ by more than 20 standard errors."""
    rng = np.random.default_rng(5)
    mean, spread = rng.beta(2, 2, 20_000), rng.uniform(0.02, 0.5, 20_000)
    truth = rng.beta(mean * (1 / spread - 1), (1 - mean) * (1 / spread - 1))
    votes = rng.binomial(5, truth)
    counts = np.stack([5 - votes, votes], axis=1)
    probs = np.stack([1 - mean, mean], axis=1)
    variance = np.repeat((spread * mean * (1 - mean))[:, None], 2, axis=1)
    known = SimpleNamespace(
        classes_=np.array([0, 1]), predict_moments=lambda X: Prediction(probs, variance)
    )

    def risk(by, loss) -> float:
        display = RiskCoverageDisplay.from_estimator(known, truth, counts, by=by, loss=loss)
        return display.curve.risk[10_000]

    assert risk("probability", "majority") < 0.8 * risk("variance", "majority")
    assert risk("probability", "disagreement") < 0.8 * risk("variance", "disagreement")
    assert risk("variance", "squared_error") < 0.8 * risk("probability", "squared_error")


def _parts() -> Triage:
    naive = (PROBS * (1 - PROBS)).sum(axis=1)
    unknown = naive * CONFIDENCE
    nats = {"disagreement_nats": 2 * (naive - unknown), "ignorance_nats": unknown / 2}
    return Triage(disagreement=naive - unknown, ignorance=unknown, **nats)


def test_triage_draws_every_item_and_marks_the_three_lists() -> None:
    parts = _parts()
    display = TriageDisplay.from_predictions(parts, num_rows=4, name="items")
    np.testing.assert_array_equal(drawn(display.line_), (parts.disagreement, parts.ignorance))
    for name, rows in {
        "people disagree": parts.people_disagree(4),
        "not learned": parts.not_learned(4),
        "label next": parts.label_next(4),
    }.items():
        x, y = drawn(display.lists_[name])
        np.testing.assert_array_equal(x, parts.disagreement[rows])
        np.testing.assert_array_equal(y, parts.ignorance[rows])
    legend = display.ax_.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["as much of both", "items", *display.lists_]
    assert display.ax_.figure is display.figure_
    axes = Figure().subplots()
    assert display.plot(ax=axes, color="red").ax_ is axes
    assert display.line_.get_color() == "red"


def test_triage_in_nats_says_which_side_is_a_bound_and_draws_other_numbers() -> None:
    parts = _parts()
    display = TriageDisplay.from_predictions(parts, unit="nats", num_rows=0, ref_line=False)
    places = (parts.disagreement_nats, parts.ignorance_nats)
    np.testing.assert_array_equal(drawn(display.line_), places)
    assert display.lists_ == {}
    assert display.ax_.get_legend() is None
    assert len(display.ax_.get_lines()) == 1
    assert display.ax_.get_ylabel() == "not learned (nats, at least)"
    assert display.ax_.get_xlabel() == "people disagree (nats, at most)"
    with pytest.raises(ValueError, match="unit is 'bits'; expected one of variance, nats"):
        TriageDisplay.from_predictions(parts, unit="bits")  # pyright: ignore[reportArgumentType]
    none = np.full(200, np.nan)
    parts = replace(parts, ignorance_nats=none, disagreement_nats=none)
    with pytest.raises(ValueError, match="no nats"):
        TriageDisplay.from_predictions(parts, unit="nats")


def test_pipelines_are_drawn_as_what_they_end_with() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 2))
    y = (inputs[:, :1] + 0.5 * rng.normal(size=(60, 3)) > 0).astype(int)
    classifier = PairClassifier("responses", backbone="linear")
    steps = make_pipeline(FunctionTransformer(np.negative), classifier).fit(inputs, y)
    data = PairData.from_responses(y)
    for kind in FROM_PREDICTIONS:
        whole = kind.from_estimator(steps, inputs, data)
        last = kind.from_estimator(classifier, -inputs, data)
        np.testing.assert_array_equal(drawn(whole.line_), drawn(last.line_))
        assert whole.line_.get_label() == "PairClassifier"
    display = TriageDisplay.from_estimator(steps, inputs)
    np.testing.assert_array_equal(display.triage.ignorance, triage(steps, inputs).ignorance)
    np.testing.assert_array_equal(
        display.triage.ignorance, classifier.predict_variance(-inputs).sum(axis=1)
    )
    assert display.line_.get_label() == "PairClassifier"
    with pytest.raises(TypeError, match="SimpleNamespace has no joints"):
        TriageDisplay.from_estimator(SimpleNamespace(), inputs)


def test_an_estimator_makes_up_what_no_annotator_chose() -> None:
    counts = COUNTS.copy()
    called = PROBS.argmax(axis=1)
    counts[ROWS[:50], called[:50]] = 0
    counts[ROWS[:50], (called[:50] + 1) % 3] = 6
    display = HallucinationCurveDisplay.from_estimator(Estimator(), ROWS, counts)
    made_up = (counts[ROWS, called] == 0).mean()
    assert display.curve.hallucination_rate[-1] == made_up


def test_displays_import_without_matplotlib_and_drawing_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from secondguess.displays import HallucinationCurveDisplay\n"
        "try: HallucinationCurveDisplay.from_predictions([0.1, 0.2], [0, 1])\n"
        "except ImportError as error: print(error)\n"
        "print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, torch = run.stdout.splitlines()
    assert "pip install 'secondguess[displays]'" in said
    assert torch == "False"


def test_what_an_estimator_lacks_is_named() -> None:
    with pytest.raises(TypeError, match=r"SimpleNamespace has no predict_moments"):
        ReliabilityDisplay.from_estimator(SimpleNamespace(), ROWS, COUNTS)


def test_wrong_words_are_named() -> None:
    with pytest.raises(ValueError, match="order is 'third'; expected first or second"):
        ReliabilityDisplay.from_predictions(PREDICTION, COUNTS, order="third")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="by is 'luck'; expected one of probability, variance"):
        RiskCoverageDisplay.from_estimator(Estimator(), ROWS, COUNTS, by="luck")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="loss is 'pain'; expected one of disagreement, majority"):
        RiskCoverageDisplay.from_estimator(Estimator(), ROWS, COUNTS, loss="pain")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="y has 2 columns; expected annotator counts"):
        ReliabilityDisplay.from_estimator(Estimator(), ROWS, COUNTS[:, :2])
