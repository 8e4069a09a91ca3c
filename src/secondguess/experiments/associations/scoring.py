"""What a model says of answers to cues: p(answer|cue) and p(answer|answer,cue).

The answers of a cue that are judged must not be chosen by what its people said: among answers that
people gave, every probability is too low. So the model proposes them: the most probable words of
all that people answered to other cues. The answers that people gave are scored too, because they
are what the repeats of a recalibration are about, and for the record. Axes: one row per cue and
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from secondguess._arrays import FloatArray
from secondguess.experiments.associations.norms import Cue, as_response
from secondguess.experiments.runner import Arrays
from secondguess.language.formatting import PairFormatter
from secondguess.language.model import PairLanguageModel
from secondguess.language.prefixes import Prefix, at_least_float32
from secondguess.language.scoring import chunks, score, totals
from secondguess.theory.records import SelfCheatScores

_PROPOSALS_PER_ANSWER = 1.3
"""Words are proposed by their first tokens, a third more of them than are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredAnswers:
    """Answers to cues with their scores and their people, one entry per cue and answer.

    Attributes:
        cues: `(n,)`, the number of the cue.
        words: `(n,)`, the answer.
        scores: of the answers.
        people: `(n,)`, how many gave the answer.
        participants: `(n,)`, how many were asked.
        proposed: `(n,)`, whether the answer is one of those that the model finds most probable.
    """

    cues: np.ndarray
    words: np.ndarray
    scores: SelfCheatScores
    people: FloatArray
    participants: FloatArray
    proposed: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> ScoredAnswers:
        """Some of the rows."""
        return ScoredAnswers(
            self.cues[rows],
            self.words[rows],
            self.scores[rows],
            self.people[rows],
            self.participants[rows],
            self.proposed[rows],
        )

    def arrays(self) -> Arrays:
        """As the arrays of a part."""
        return {
            "cues": self.cues,
            "words": self.words,
            "log_marginal": self.scores.log_marginal,
            "log_self_conditional": self.scores.log_self_conditional,
            "people": self.people,
            "participants": self.participants,
            "proposed": self.proposed,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> ScoredAnswers:
        """What `arrays` gave."""
        scores = SelfCheatScores(arrays["log_marginal"], arrays["log_self_conditional"])
        names = ("people", "participants", "proposed")
        return cls(arrays["cues"], arrays["words"], scores, *(arrays[name] for name in names))


class Vocabulary:
    """The words that people answered to some cues, by the tokens they start with.

    Args:
        cues: the cues; not those that are judged.
        formatter: of the model.
    """

    def __init__(self, cues: Sequence[Cue], formatter: PairFormatter) -> None:
        people: dict[str, int] = {}
        for cue in cues:
            for word, count in cue.answers.items():
                people[word] = people.get(word, 0) + count
        self.words = np.array(sorted(people))
        tokens = [formatter.response_tokens(as_response(word)) for word in self.words]
        self.first_tokens = np.array([each[0] for each in tokens])
        counts = np.array([people[word] for word in self.words], dtype=np.float64)
        together = np.bincount(self.first_tokens, weights=counts)
        self.log_shares = np.log(counts / together[self.first_tokens])
        """Log of the word's share of the people whose answer starts with this token."""

    def likely(self, log_first: FloatArray, number: int) -> list[str]:
        """The words that log-probabilities of first tokens, `(tokens,)`, make most likely."""
        estimates = log_first[self.first_tokens] + self.log_shares
        return self.words[np.argsort(-estimates, kind="stable")[:number]].tolist()


def score_answers(
    model: PairLanguageModel,
    cues: Sequence[Cue],
    vocabulary: Vocabulary,
    *,
    num_answers: int,
    batch_size: int = 64,
) -> ScoredAnswers:
    """Score the `num_answers` most probable answers to each cue, and those that people gave.

    Answers longer than any that the model was trained on are left out.
    """
    number = round(_PROPOSALS_PER_ANSWER * num_answers)
    proposals = _proposals(model, cues, vocabulary, number)
    asked = []
    for cue, words in zip(cues, proposals, strict=True):
        given = [word for word in cue.answers if _fits(word, model.formatter)]
        asked.append(list(dict.fromkeys([*words, *given])))
    rows = [
        {"prompt": cue.prompt, "responses": [as_response(word) for word in words]}
        for cue, words in zip(cues, asked, strict=True)
    ]
    scored = score(model, rows, batch_size=batch_size)
    parts = [
        _of_cue(number, cue, words, len(own), totals(responses), num_answers)
        for number, (cue, words, own, responses) in enumerate(
            zip(cues, asked, proposals, scored, strict=True)
        )
    ]
    arrays = [part.arrays() for part in parts]
    return ScoredAnswers.from_arrays(
        {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}
    )


def _of_cue(
    number: int,
    cue: Cue,
    words: list[str],
    num_proposals: int,
    scores: SelfCheatScores,
    num_answers: int,
) -> ScoredAnswers:
    proposed = np.zeros(len(words), dtype=bool)
    proposed[np.argsort(-scores.log_marginal[:num_proposals])[:num_answers]] = True
    return ScoredAnswers(
        np.full(len(words), number),
        np.array(words),
        scores,
        np.array([cue.answers.get(word, 0) for word in words], dtype=np.float64),
        np.full(len(words), cue.participants, dtype=np.float64),
        proposed,
    )


def _fits(word: str, formatter: PairFormatter) -> bool:
    tokens = formatter.tokenizer.encode(as_response(word), add_special_tokens=False)
    return len(tokens) < formatter.config.response_length


@torch.inference_mode()
def _proposals(
    model: PairLanguageModel, cues: Sequence[Cue], vocabulary: Vocabulary, number: int
) -> list[list[str]]:
    found = []
    for some in chunks(cues, 64):
        prompts = [model.formatter.prompt_tokens(cue.prompt) for cue in some]
        logits = at_least_float32(Prefix.of(model, prompts).logits)
        for row in logits.log_softmax(dim=-1).double().cpu().numpy():
            found.append(vocabulary.likely(row, number))
    return found
