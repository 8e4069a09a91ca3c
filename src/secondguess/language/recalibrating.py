"""`recalibrate`: fit a `SequenceRecalibration` on held-out pairs."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from secondguess.language.drawing import sample_seconds
from secondguess.language.formatting import AnyRow, EncodedRow
from secondguess.language.generation import sample
from secondguess.language.meaning_functions import Meaning
from secondguess.language.meanings import DrawnPairs, draw_pairs, judge_pairs
from secondguess.language.model import PairLanguageModel
from secondguess.language.recalibration_fit import fit_recalibration
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, score, score_tokens, totals
from secondguess.theory.records import SelfCheatScores

FEWEST_PAIRS = 50
"""Six numbers need some rows."""


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

    Beside the responses of each row, others are drawn from the model: what tells the two apart
    corrects the confidence, and whether y2 repeats y1 corrects p(y|y,x) (`fit_recalibration`). With
    `meaning`, responses are what they mean. Drawn responses that were cut off at the length limit
    do not count: the model did not say that they end there.

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
        pairs = [EncodedRow(row.prompt, row.responses[:2]) for row in encoded]
        given = [totals(both) for both in score(plain, pairs, batch_size=batch_size)]
        own = sample(plain, encoded, rng=rng, batch_size=batch_size)
        drawn, ended = [one.scores for one in own], [not one.cut_off for one in own]
        repeated = [row.responses[0] == row.responses[1] for row in encoded]
    else:
        texts = [[meaning(plain.formatter.text(y)) for y in row.responses[:2]] for row in encoded]
        given, drawn, ended = _of_meanings(
            plain,
            encoded,
            meaning,
            others=[(y1,) for y1, _ in texts],
            num_samples=num_samples,
            rng=rng,
            batch_size=batch_size,
        )
        repeated = [y1 == y2 for y1, y2 in texts]
    if not any(ended):
        raise ValueError(
            f"all {len(ended)} responses that the model drew were cut off at its "
            f"{plain.formatter.config.response_length} tokens; expected some that end. Train it "
            f"further, or with a longer response_length."
        )
    people = _rows(given)
    repeats = np.array(repeated, dtype=np.float64)[:, None]
    weights = np.array(ended, dtype=np.float64)[:, None]
    found = fit_recalibration(
        people,
        np.broadcast_to(repeats, people.log_marginal.shape),
        _rows(drawn),
        drawn_weights=weights / weights.mean(),
        of_meanings=meaning is not None,
    )
    return replace(model, recalibration=found)


def _of_meanings(
    model: PairLanguageModel,
    rows: Sequence[EncodedRow],
    meaning: Meaning,
    *,
    others: Sequence[Collection[Hashable]],
    num_samples: int,
    rng: np.random.Generator,
    batch_size: int,
) -> tuple[list[SelfCheatScores], list[SelfCheatScores], list[bool]]:
    """Scores of what y1 means, and of what a draw means, by the same sums; whether the draw ended.

    Both are estimates from a few draws. If the model is right, y1 is one more draw from it: in the
    place of the first one it gets a score with the same law, so that the noise of the sums does not
    tell the two apart.
    """
    sampling: Any = {"rng": rng, "batch_size": batch_size}
    drawn = draw_pairs(
        model,
        [EncodedRow(row.prompt) for row in rows],
        meaning,
        num_samples=num_samples,
        others=others,
        **sampling,
    )
    seconds = sample_seconds(model, rows, **sampling)
    with_y1 = [
        each._replace(pairs=[(row.responses[0], second), *each.pairs[1:]])
        for each, row, (second, _) in zip(drawn, rows, seconds, strict=True)
    ]

    def scores_of_first(pairs: Sequence[DrawnPairs]) -> list[SelfCheatScores]:
        judged = judge_pairs(
            pairs,
            meaning,
            model.formatter,
            lambda items: score_tokens(model, items, batch_size=batch_size),
            recalibration=None,
        )
        return [meanings[0].scores for meanings in judged]

    ended = [each.pairs[0][0] not in each.cut_off for each in drawn]
    return scores_of_first(with_y1), scores_of_first(drawn), ended


def _rows(scores: Sequence[SelfCheatScores]) -> SelfCheatScores:
    """One row each."""
    return SelfCheatScores(
        np.array([np.atleast_1d(each.log_marginal) for each in scores]),
        np.array([np.atleast_1d(each.log_self_conditional) for each in scores]),
    )
