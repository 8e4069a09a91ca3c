"""How well variances of p(answer|cue) are known: ECE-2 with people's counts as truth, and rivals.

Every method gives a `Prediction` of shape `(n,)`, one event per cue and answer, all with the same
probabilities but for those that have their own; they differ in the variance that they claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import rankdata

from secondguess._arrays import FloatArray
from secondguess.experiments.associations.scoring import ScoredAnswers
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.language.recalibration_fit import fit_recalibration
from secondguess.theory.annotations import Annotations
from secondguess.theory.floors import second_order_ece_floor
from secondguess.theory.metrics import grouping_error, mean_variance, squared_error_estimate
from secondguess.theory.records import Prediction, SelfCheatScores
from secondguess.theory.reliability import (
    first_order_ece,
    second_order_ece,
    second_order_ece_standard_error,
)

OURS = "pair model, recalibrated"
PLAIN = "pair model"
NAIVE = "p(1 - p)"
SCALED = "p(1 - p), scaled on held-out pairs"
PROMPTED = "iterative prompting of the pretrained model"

EVENTS_PER_BIN = 500
"""As in the paper: 5,000 images of ten classes in 100 bins."""
FEWEST_BINS = 5


def truth_of(answers: ScoredAnswers) -> Annotations:
    """Estimates of p(answer|cue) and of its square.

    With k of the K people, k/K and k(k-1)/(K(K-1)). That answers of one person are not recorded
    leaves the second without bias, because k = 1 adds nothing to it, and lowers the first by
    p(1-p)^(K-1), at most 0.0025 for 150 people and nothing for answers that many give.
    """
    people, asked = answers.people, answers.participants
    return Annotations(people / asked, people * (people - 1) / (asked * (asked - 1)))


def recalibration_of(answers: ScoredAnswers) -> SequenceRecalibration:
    """The lines that the answers of held-out cues ask for.

    On the answers that the model proposed, as those that are judged are, and with all people: each
    answer is given by its share of the people, and drawn with its probability; and p(answer|answer,
    cue) is compared with the share of repeats, (k-1)/(K-1), among the k people who gave it.
    """
    own = answers[answers.proposed]
    num_answers = np.bincount(own.cues).max()
    place = (own.cues, np.arange(len(own.cues)) - np.searchsorted(own.cues, own.cues))

    def by_cue(values: FloatArray, other: float = 0.0) -> FloatArray:
        """One row per cue; `other` where a cue has fewer answers."""
        table = np.full((own.cues.max() + 1, num_answers), other)
        table[place] = values
        return table

    scores = SelfCheatScores(
        by_cue(own.scores.log_marginal, -np.inf), by_cue(own.scores.log_self_conditional)
    )
    shares = by_cue(own.people / own.participants)
    repeats = by_cue(np.maximum(own.people - 1, 0) / (own.participants - 1))
    return fit_recalibration(
        scores,
        repeats,
        scores,
        given_weights=shares,
        drawn_weights=np.exp(np.minimum(scores.log_marginal, 0.0)),
        are_shares=True,
    )


def prediction_of(scores: SelfCheatScores) -> Prediction:
    """Probabilities and variances of events; a negative variance stays what it is."""
    return Prediction(np.exp(np.minimum(scores.log_marginal, 0.0)), scores.epistemic_variance)


def scale_of(answers: ScoredAnswers, probs: FloatArray) -> float:
    """The share of p(1-p) that is squared error on held-out cues: the rival's one parameter."""
    errors = squared_error_estimate(probs, truth_of(answers))
    return float(errors.sum() / (probs * (1 - probs)).sum())


def predictions(
    answers: ScoredAnswers,
    held_out: ScoredAnswers,
    recalibration: SequenceRecalibration,
) -> dict[str, Prediction]:
    """Every method's prediction of the same events.

    Args:
        answers: the events.
        held_out: events of other cues, which one-parameter rivals are fitted on.
        recalibration: fitted on the same.
    """
    ours = prediction_of(recalibration(answers.scores))
    probs = ours.probs
    naive = probs * (1 - probs)
    other = prediction_of(recalibration(held_out.scores)).probs
    return {
        OURS: ours,
        PLAIN: prediction_of(answers.scores),
        NAIVE: Prediction(probs, naive),
        SCALED: Prediction(probs, scale_of(held_out, other) * naive),
    }


def judged(
    prediction: Prediction, answers: ScoredAnswers, *, rng: np.random.Generator
) -> dict[str, Any]:
    """One row of the table."""
    truth = truth_of(answers)
    num_bins = max(FEWEST_BINS, len(prediction) // EVENTS_PER_BIN)
    error = grouping_error(prediction, truth)
    ece = second_order_ece(prediction, truth, num_bins=num_bins)
    floor = second_order_ece_floor(
        prediction, answers.participants, rng=rng, num_bins=num_bins, num_simulations=20
    )
    return {
        "num_events": len(prediction),
        "num_bins": num_bins,
        "first_order_ece": first_order_ece(prediction, truth, num_bins=num_bins),
        "grouping_error": error,
        "mean_variance": mean_variance(prediction),
        "second_order_ece": ece,
        "standard_error": second_order_ece_standard_error(
            prediction, truth, rng=rng, num_bins=num_bins
        ),
        "floor": floor.mean,
        "share_of_grouping_error": ece / error,
        "share_in_100_bins": second_order_ece(prediction, truth) / error,
        "negative": float((prediction.variance < 0).mean()),
        "cue_correlation": cue_correlation(prediction, answers),
    }


def cue_correlation(prediction: Prediction, answers: ScoredAnswers) -> float:
    """Rank correlation, over cues, of the variance that is claimed and the error that is made."""
    claimed = np.bincount(answers.cues, weights=prediction.variance)
    made = np.bincount(answers.cues, weights=squared_error_estimate(prediction, truth_of(answers)))
    asked = np.unique(answers.cues)
    return float(np.corrcoef(rankdata(claimed[asked]), rankdata(made[asked]))[0, 1])


def table(
    methods: Mapping[str, Prediction], answers: ScoredAnswers, *, rng: np.random.Generator
) -> dict[str, Any]:
    """Every method's row."""
    return {name: judged(each, answers, rng=rng) for name, each in methods.items()}
