"""Recalibration: the numbers that a confidence rests on, corrected.

A trained model's p(y|x), p(y|y,x) and confidence C = p(y|x) / p(y|y,x) are off by what it has not
learned. Each of the three is corrected by a line on the logit scale (`logit_lines`); which lines
held-out pairs ask for, `fit_recalibration` says. Logs of probabilities have any shape.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from secondguess._files import read_document, read_record, write_document
from secondguess.language.logit_lines import LogitLine
from secondguess.theory.records import SelfCheatScores

_FILE_NAME = "recalibration.json"
_KIND, _FORMAT = "secondguess recalibration", 1
_IDENTITY = LogitLine()


@dataclass(frozen=True, slots=True)
class SequenceRecalibration:
    """Lines for p(y|x), for p(y|y,x) and for C.

    >>> half_known = SelfCheatScores(np.log([0.4]), np.log([0.8]))
    >>> correct = SequenceRecalibration(
    ...     LogitLine(), LogitLine(), num_pairs=500, confidence=LogitLine(1.0, 1.0)
    ... )
    >>> half_known.epistemic_confidence, correct(half_known).epistemic_confidence.round(3)
    (array([0.5]), array([0.731]))

    p(y|y,x) and p(y|x) are moved first, and then the confidence that they give: p(y|x) becomes C
    times p(y|y,x). A confidence above 1 is as far off as its reciprocal, and the latter moves it as
    far: 1 stays 1, and what is above stays above.

    Attributes:
        first: for p(y|x).
        repeat: for p(y|y,x).
        num_pairs: how many held-out pairs they rest on.
        of_meanings: whether the responses were meanings, and so are the scores to correct.
        confidence: for C, after the other two; files from before it was there have none.
    """

    first: LogitLine
    repeat: LogitLine
    num_pairs: int
    of_meanings: bool = False
    confidence: LogitLine = _IDENTITY

    def __call__(self, scores: SelfCheatScores) -> SelfCheatScores:
        """The scores as the held-out pairs have them."""
        moved = SelfCheatScores(
            self.first(scores.log_marginal), self.repeat(scores.log_self_conditional)
        )
        known = np.isfinite(moved.log_ratio)  # neither probability is 0
        log_confidence = np.where(known, moved.log_ratio, 0.0)
        repeat = np.where(known, moved.log_self_conditional, 0.0)
        log_marginal = repeat - np.sign(log_confidence) * self.confidence(-np.abs(log_confidence))
        return replace(
            moved,
            log_marginal=np.where(known, np.minimum(log_marginal, 0.0), moved.log_marginal),
        )

    def save(self, directory: Path | str) -> None:
        """Write it beside the weights of a model."""
        write_document(Path(directory, _FILE_NAME), _KIND, _FORMAT, asdict(self))

    @classmethod
    def load(cls, directory: Path | str) -> SequenceRecalibration | None:
        """Read what `save` wrote; None where there is nothing."""
        path = Path(directory, _FILE_NAME)
        if not path.is_file():
            return None
        content = read_document(path, _KIND, _FORMAT, what="a recalibration")
        return read_record(cls, content, str(path))


def wordings_only(found: SequenceRecalibration | None) -> SequenceRecalibration | None:
    """A recalibration that corrects the scores of wordings: not one about meanings."""
    return None if found is None or found.of_meanings else found
