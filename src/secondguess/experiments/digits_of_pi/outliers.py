"""Confidences far above 1, which no calibrated model has: how many, which, and why (F.3.4).

The paper's reason is a slip in the first response, an unlikely token that the model would not say
again: having seen it, the model speaks as before, so p(y|y,x) is far below p(y|x). That can be
measured: after a y1 that is no sentence, how much of p(y2|y1,x) is on sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from secondguess._arrays import FloatArray, IntArray
from secondguess.experiments.digits_of_pi.evaluation import (
    MALFORMED,
    OUTLIER_CONFIDENCE,
    Statements,
    log_probs_after,
)
from secondguess.experiments.digits_of_pi.pairs import PiPairs
from secondguess.experiments.digits_of_pi.questions import digits_at
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import ScoredResponse

EDGES = (OUTLIER_CONFIDENCE, 2.0, 10.0, np.inf)
"""Edges of the bands of confidence that outliers are counted in."""

NUM_EXPLAINED = 100
"""Outliers after which second responses are looked at, spread over their confidences."""

NUM_SHOWN = 10


def explain_outliers(
    model: PairLanguageModel,
    pairs: PiPairs,
    statements: Statements,
    drawn: Sequence[ScoredResponse],
    share_correct: FloatArray,
) -> dict[str, Any]:
    """Counts by band of confidence, what follows those that are no sentence, and some as text.

    Args:
        model: the trained model.
        pairs: the tokens of prompts and sentences.
        statements: samples.
        drawn: the same samples, row by row.
        share_correct: `(n,)`, the exact share of true statements about each digit.
    """
    confidence = statements.scores.epistemic_confidence.ravel()
    is_true, columns = statements.is_true.ravel(), statements.columns.ravel()
    rows = np.repeat(np.arange(len(statements.offsets)), statements.columns.shape[1])
    outliers = np.flatnonzero(confidence > OUTLIER_CONFIDENCE)
    outliers = outliers[np.argsort(-confidence[outliers], kind="stable")]
    malformed = _evenly(outliers[columns[outliers] == MALFORMED], NUM_EXPLAINED)
    after = [
        _share_sentences_after(model, pairs, int(statements.offsets[rows[index]]), drawn[index])
        for index in malformed
    ]
    bands = []
    for low, high in pairwise(EDGES):
        inside = outliers[(confidence[outliers] > low) & (confidence[outliers] <= high)]
        bands.append(
            {
                "above": low,
                "count": len(inside),
                "false": int((~is_true[inside]).sum()),
                "malformed": int((columns[inside] == MALFORMED).sum()),
            }
        )
    return {
        "num_samples": len(confidence),
        "bands": bands,
        "malformed": {
            "count": len(malformed),
            "share_sentences_after": float(np.mean(after)) if len(after) else None,
        },
        "examples": [
            {
                "offset": int(statements.offsets[rows[index]]),
                "digit": int(digits_at(statements.offsets[rows[index]])),
                "text": drawn[index].text,
                "confidence": float(confidence[index]),
                "probability": float(np.exp(statements.scores.log_marginal.ravel()[index])),
                "is_true": bool(is_true[index]),
                "share_correct": float(share_correct[rows[index]]),
            }
            for index in _evenly(outliers, NUM_SHOWN)
        ],
    }


def _share_sentences_after(
    model: PairLanguageModel, pairs: PiPairs, offset: int, first: ScoredResponse
) -> float:
    return float(np.exp(log_probs_after(model, pairs, offset, first.tokens)).sum())


def _evenly(values: IntArray, wanted: int) -> IntArray:
    """At most `wanted` of the values, evenly spread.

    >>> _evenly(np.arange(10, 15), 3), _evenly(np.arange(10, 12), 3)
    (array([10, 12, 14]), array([10, 11]))
    """
    if len(values) <= wanted:
        return values
    return values[np.linspace(0, len(values) - 1, wanted).round().astype(np.int64)]
