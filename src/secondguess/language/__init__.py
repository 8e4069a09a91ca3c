"""Pairs of sequences on any Hugging Face causal language model.

`PairFormat` and `PairCollator` turn responses into training data; `score`, `sample` and `answer`
use the model; `check_pairs` looks for signs against it.
"""

from secondguess.language.checking import PairCheck, check_pairs, property_rate
from secondguess.language.fitting import pair_batches, pair_loss
from secondguess.language.formatting import PairCollator, PairFormat, PairFormatter
from secondguess.language.generation import Sampling, answer, sample
from secondguess.language.model import PairLanguageModel
from secondguess.language.scoring import ScoredResponse, score, score_pairs, totals
from secondguess.language.tokenizer import word_tokenizer

__all__ = [
    "PairCheck",
    "PairCollator",
    "PairFormat",
    "PairFormatter",
    "PairLanguageModel",
    "Sampling",
    "ScoredResponse",
    "answer",
    "check_pairs",
    "pair_batches",
    "pair_loss",
    "property_rate",
    "sample",
    "score",
    "score_pairs",
    "totals",
    "word_tokenizer",
]
