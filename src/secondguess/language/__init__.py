"""Pairs of sequences on any Hugging Face causal language model.

`fit` trains on rows of responses, `score`, `sample` and `answer` use the model, `check` looks for
signs against it. `PairFormat` and `PairCollator` are for trainers of your own.
"""

from secondguess.language.answering import answer
from secondguess.language.beams import beam_search
from secondguess.language.checking import PairCheck, Verdict, check
from secondguess.language.collating import PairCollator
from secondguess.language.drawing import sample_firsts, sample_seconds
from secondguess.language.findings import CheckFinding
from secondguess.language.fitting import PairFit, fine_tuning, fit, pair_batches
from secondguess.language.formatting import EncodedRow, PairFormat, PairFormatter
from secondguess.language.generation import Sampling, sample
from secondguess.language.meaning_functions import (
    by_embedding,
    by_json_field,
    by_pattern,
    normalised,
)
from secondguess.language.meanings import ScoredMeaning, score_meanings
from secondguess.language.model import PairLanguageModel
from secondguess.language.pair_arrays import PairLayout
from secondguess.language.properties import property_rate
from secondguess.language.recalibrating import recalibrate
from secondguess.language.recalibration import SequenceRecalibration
from secondguess.language.scoring import ScoredResponse, score, score_pairs, totals
from secondguess.language.shared_prompts import pair_loss
from secondguess.language.tokenizer import word_tokenizer

__all__ = [
    "CheckFinding",
    "EncodedRow",
    "PairCheck",
    "PairCollator",
    "PairFit",
    "PairFormat",
    "PairFormatter",
    "PairLanguageModel",
    "PairLayout",
    "Sampling",
    "ScoredMeaning",
    "ScoredResponse",
    "SequenceRecalibration",
    "Verdict",
    "answer",
    "beam_search",
    "by_embedding",
    "by_json_field",
    "by_pattern",
    "check",
    "fine_tuning",
    "fit",
    "normalised",
    "pair_batches",
    "pair_loss",
    "property_rate",
    "recalibrate",
    "sample",
    "sample_firsts",
    "sample_seconds",
    "score",
    "score_meanings",
    "score_pairs",
    "totals",
    "word_tokenizer",
]
