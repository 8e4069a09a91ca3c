"""The confidence of meanings whose wordings can be listed: exact sums, with nothing to estimate.

`meanings` draws wordings and bounds what was not drawn. Where all wordings of a meaning are known
(a few templates around a name, the spellings of a date) their probabilities are summed instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from secondguess.language.formatting import FormatError, PairFormatter, Prompt, Response
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import DEFAULT_BATCH_SIZE, score_tokens
from secondguess.theory.records import SelfCheatScores


class ListedScores(NamedTuple):
    """Scores of shape `(n,)`, one per prompt, as the network has them.

    Attributes:
        meaning: log p(m|x) and log p(m|m,x).
        wording: log p(y|x) and log p(y|y,x) of the drawn wording, or else of the first listed one.
    """

    meaning: SelfCheatScores
    wording: SelfCheatScores


def score_listed(
    model: PairLanguageModel,
    prompts: Sequence[Prompt],
    wordings: Sequence[Sequence[Response]],
    *,
    drawn: Sequence[Response] | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> ListedScores:
    """The scores of one meaning per prompt, with and without peeking at one of its wordings.

    >>> from secondguess.language.examples import tiny_pair_model
    >>> either = score_listed(tiny_pair_model(), ["flip"], [["heads", "tails"]])
    >>> one = score_listed(tiny_pair_model(), ["flip"], [["heads"]])
    >>> bool(either.meaning.log_marginal[0] > one.meaning.log_marginal[0])
    True
    >>> bool(one.meaning.log_marginal[0] == one.wording.log_marginal[0])
    True

    Args:
        model: a pair model; a recalibration that it has is not applied.
        prompts: `n` prompts.
        wordings: all wordings of the meaning that is judged, for each prompt, as text or tokens.
            Those that are longer than the model's responses can be are left out.
        drawn: for each prompt, a wording of this meaning that was drawn from the model. Then
            p(m|m,x) is estimated by p(m|y1,x) of this one y1, which has the right mean, at k
            second responses in place of k².
        batch_size: how many sequences are in one pass.
    """
    formatter = model.formatter
    nothing = (formatter.end,)  # behind a first response that is only scored itself
    groups = []
    for row, (prompt, texts) in enumerate(zip(prompts, wordings, strict=True)):
        listed = _possible(formatter, texts)
        firsts = listed if drawn is None else [formatter.response_tokens(drawn[row])]
        if not firsts or not set(firsts) <= set(listed):
            raise ValueError(
                f"prompt {row} has the wordings {list(texts)!r}, and "
                f"{'no draw' if drawn is None else repr(drawn[row])}; expected at least one that "
                f"fits the model's responses, and a draw that is one of them."
            )
        groups.append((formatter.prompt_tokens(prompt), listed, firsts))
    items = [
        (asked, one, two)
        for asked, listed, firsts in groups
        for one in listed
        for two in (listed if one in firsts else [nothing])
    ]
    scored = score_tokens(model, items, batch_size=batch_size)
    logs = {
        item: (float(first.sum()), float(second.sum()))
        for item, (first, second) in zip(items, scored, strict=True)
    }
    meanings, words = [], []
    for asked, listed, firsts in groups:
        alone = {one: logs[asked, one, one if one in firsts else nothing][0] for one in listed}
        joint = [sum(logs[asked, one, two]) for one in firsts for two in listed]
        log_repeat = _log_sum(joint) - _log_sum([alone[one] for one in firsts])
        # Sums of token log-probabilities may end slightly above zero.
        meanings.append((min(0.0, _log_sum([*alone.values()])), min(0.0, log_repeat)))
        words.append(logs[asked, firsts[0], firsts[0]])
    return ListedScores(_scores(meanings), _scores(words))


def _possible(formatter: PairFormatter, texts: Sequence[Response]) -> list[tuple[int, ...]]:
    """The distinct wordings that the model can give."""
    listed = {}
    for text in texts:
        with suppress(FormatError):
            listed[formatter.response_tokens(text)] = None
    return list(listed)


def _log_sum(logs: Sequence[float]) -> float:
    return float(np.logaddexp.reduce(logs))


def _scores(pairs: Sequence[tuple[float, float]]) -> SelfCheatScores:
    return SelfCheatScores(*np.array(pairs, dtype=np.float64).reshape(-1, 2).T)
