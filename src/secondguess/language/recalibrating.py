"""`recalibrate`: fit a `SequenceRecalibration` on held-out pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from secondguess.language.formatting import AnyRow, EncodedRow
from secondguess.language.generation import sample
from secondguess.language.meaning_functions import Meaning
from secondguess.language.meanings import score_meanings
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration import SequenceRecalibration, fit_line, fit_repeat_line
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, score, totals
from secondguess.theory.records import SelfCheatScores

FEWEST_PAIRS = 50
"""Four parameters need some events of each kind."""


def recalibrate(
    model: PairLanguageModel,
    rows: Sequence[AnyRow],
    *,
    rng: np.random.Generator,
    meaning: Meaning | None = None,
    num_samples: int = 10,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> PairLanguageModel:
    """The model with the recalibration that held-out pairs ask for; its weights stay.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> rows = [{"prompt": "flip", "responses": ["heads", "heads"]}] * 60
    >>> better = recalibrate(tiny_pair_model(), rows, rng=np.random.default_rng(0))
    >>> one = [{"prompt": "flip", "responses": ["heads"]}]
    >>> [[before]], [[after]] = score(tiny_pair_model(), one), score(better, one)
    >>> bool(after.scores.log_self_conditional > before.scores.log_self_conditional)
    True

    For each row, a response is drawn from the model, and "y1 is that response" is the event that
    corrects p(y|x); "y2 repeats y1" is the event that corrects p(y|y,x) of y1. With `meaning`, both
    are events of meanings. How far the lines go, `fit_line` says.

    Args:
        model: a pair model; a recalibration that it has is replaced.
        rows: held-out rows with two or more independent responses, the first two of which count;
            none of them may have been trained on, and `check` needs others again.
        rng: of the responses that are drawn.
        meaning: what an answer means, if answers are to be judged by their meaning.
        num_samples: pairs drawn per row where there is a `meaning`.
        batch_size: how many sequences are in one pass.
    """
    plain = replace(model, recalibration=None)
    encoded = [plain.formatter.encode(row) for row in rows]
    if len(encoded) < FEWEST_PAIRS:
        raise ValueError(
            f"there are {len(encoded)} pairs; expected at least {FEWEST_PAIRS} to recalibrate on."
        )
    if meaning is None:
        drawn = sample(plain, encoded, rng=rng, batch_size=batch_size)
        first_only = [EncodedRow(row.prompt, row.responses[:1]) for row in encoded]
        own = [one for [one] in score(plain, first_only, batch_size=batch_size)]
        drawn_scores, own_scores = totals(drawn), totals(own)
        guessed = [y.tokens == row.responses[0] for y, row in zip(drawn, encoded, strict=True)]
        repeated = [row.responses[0] == row.responses[1] for row in encoded]
    else:
        texts = [[meaning(plain.formatter.text(y)) for y in row.responses[:2]] for row in encoded]
        prompts = [EncodedRow(row.prompt) for row in encoded]
        scored = score_meanings(
            plain,
            prompts,
            meaning,
            rng=rng,
            num_samples=num_samples,
            others=[(y1,) for y1, _ in texts],
            batch_size=batch_size,
        )
        drawn_scores = _joined([meanings[0].scores for meanings in scored])
        guessed = [
            meanings[0].meaning == y1 for meanings, (y1, _) in zip(scored, texts, strict=True)
        ]
        # A meaning that was not drawn has no estimate: those rows have no second event.
        known = [
            (each.scores, y1 == y2)
            for meanings, (y1, y2) in zip(scored, texts, strict=True)
            for each in meanings
            if each.meaning == y1
        ]
        if not known:
            raise ValueError(
                "no held-out answer has a meaning that the model drew; raise num_samples, or train "
                "it further."
            )
        own_scores, repeated = _joined([scores for scores, _ in known]), [r for _, r in known]
    found = SequenceRecalibration(
        fit_line(drawn_scores.log_marginal, np.array(guessed, dtype=np.float64)),
        fit_repeat_line(own_scores.log_self_conditional, np.array(repeated, dtype=np.float64)),
        num_pairs=len(encoded),
        of_meanings=meaning is not None,
    )
    return replace(model, recalibration=found)


def _joined(scores: Sequence[SelfCheatScores]) -> SelfCheatScores:
    return SelfCheatScores(
        np.array([each.log_marginal for each in scores]),
        np.array([each.log_self_conditional for each in scores]),
    )
