"""What others score answers of a language model by, one method per file, through one interface.

A method is a function `score(model, asked)` that gives `RivalScores`: one number per question, the
higher, the more the answer is to be trusted, and what it cost. All judge the same answers with the
same draws, and use nothing of a pair model but p(y1|x), so any causal language model will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from secondguess.baselines.answers import (
    log_probability,
    mutual_information,
    p_true,
    semantic_entropy,
    verbalised,
)
from secondguess.baselines.answers.asking import Asked, RivalScores
from secondguess.language.model import PairLanguageModel

RIVALS: Mapping[str, Callable[[PairLanguageModel, Asked], RivalScores]] = {
    "total log-probability": log_probability.total,
    "mean log-probability": log_probability.mean_per_token,
    "semantic entropy": semantic_entropy.score,
    "P(True)": p_true.score,
    "mutual information of iterated prompts": mutual_information.score,
    "verbalised confidence": verbalised.score,
}
"""By the names that tables use."""

__all__ = ["RIVALS", "Asked", "RivalScores"]
