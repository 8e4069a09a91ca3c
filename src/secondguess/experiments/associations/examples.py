"""Cues to look at: those that the model says it knows although people differ, and the others.

They are chosen by what the model says alone, so that what people said can bear it out or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from secondguess.experiments.associations.evaluation import truth_of
from secondguess.experiments.associations.norms import Cue
from secondguess.experiments.associations.scoring import ScoredAnswers
from secondguess.theory.metrics import squared_error_estimate
from secondguess.theory.records import Prediction

NUM_EXAMPLES = 10
NUM_SHOWN = 4


def examples(
    prediction: Prediction, answers: ScoredAnswers, cues: Sequence[Cue]
) -> dict[str, list[dict[str, Any]]]:
    """Ten cues of each kind, most marked first.

    Of the half of the cues about which the model expects people to differ most (the sum of p(1-p)
    over answers), those with the smallest and those with the largest share of it that is variance
    of p(answer|cue), that is, ignorance.
    """
    probs = prediction.probs
    spread = np.bincount(answers.cues, weights=probs * (1 - probs))
    ignorance = np.bincount(answers.cues, weights=prediction.variance)
    asked = np.unique(answers.cues)
    varied = asked[spread[asked] >= np.median(spread[asked])]
    order = varied[np.argsort(ignorance[varied] / spread[varied], kind="stable")]

    def shown(number: int) -> dict[str, Any]:
        rows = np.flatnonzero(answers.cues == number)
        errors = squared_error_estimate(prediction, truth_of(answers))[rows]
        likely = rows[np.argsort(-probs[rows])][:NUM_SHOWN]
        cue = cues[number]
        given = sorted(cue.answers.items(), key=lambda item: -item[1])[:NUM_SHOWN]
        return {
            "cue": cue.word,
            "share_unknown": float(ignorance[number] / spread[number]),
            "expected_error": float(np.sqrt(max(ignorance[number], 0.0))),
            "error": float(np.sqrt(max(float(errors.sum()), 0.0))),
            "model": [[str(answers.words[row]), float(probs[row])] for row in likely],
            "people": [[word, count / cue.participants] for word, count in given],
        }

    return {
        "known": [shown(number) for number in order[:NUM_EXAMPLES]],
        "unknown": [shown(number) for number in order[::-1][:NUM_EXAMPLES]],
    }
