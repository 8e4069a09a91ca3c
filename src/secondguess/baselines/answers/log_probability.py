"""How probable the answer itself is: in all, or per token (Malinin and Gales, 2020)."""

from __future__ import annotations

from secondguess.baselines.answers.asking import Asked, RivalScores, continuation_log_probs
from secondguess.language.model import PairLanguageModel


def total(model: PairLanguageModel, asked: Asked) -> RivalScores:
    """Log p(y|x).

    >>> from secondguess.language.examples import tiny_pair_model
    >>> total(tiny_pair_model(), Asked(["flip"], ["heads"], [["heads"]])).passes
    2
    """
    return RivalScores(continuation_log_probs(model, asked.prompts, asked.answers), passes=2)


def mean_per_token(model: PairLanguageModel, asked: Asked) -> RivalScores:
    """Log p(y|x) divided by the number of tokens, the end included."""
    lengths = [len(model.formatter.response_tokens(answer)) for answer in asked.answers]
    return RivalScores(total(model, asked).values / lengths, passes=2)
