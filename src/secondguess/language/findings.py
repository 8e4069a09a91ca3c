"""What `check` found about a model, kept beside it as `MODEL.check.json` for `answer` to obey.

The file names the model by its content, so that the finding about one model is never taken for a
finding about another that was saved in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secondguess._files import read_document, write_document
from secondguess.language.checking import PairCheck, Verdict
from secondguess.language.model import PairLanguageModel

_KIND, _FORMAT = "secondguess check", 1


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The verdict on a model and the finest bound that its noise allows.

    >>> CheckFinding(Verdict.NO_SIGN, 0.08, 500, {}).objection(0.1) is None
    True
    >>> print(CheckFinding(Verdict.NO_SIGN, 0.08, 500, {}).objection(0.05))
    max_hallucination_rate is 0.05, below 0.080, the finest bound that the model's own noise allows

    Attributes:
        verdict: what the model is.
        resolution: see `PairCheck.resolution`.
        num_pairs: how many held-out pairs it rests on.
        model: the identity of the model.
    """

    verdict: Verdict
    resolution: float
    num_pairs: int
    model: dict[str, Any]

    @classmethod
    def of(cls, check: PairCheck, model: PairLanguageModel) -> CheckFinding:
        """What a check of this model found."""
        return cls(check.verdict, check.resolution, len(check), model.identity)

    def objection(self, max_hallucination_rate: float) -> str | None:
        """Why answers at this rate would not be what they claim, or None."""
        if self.verdict is not Verdict.NO_SIGN:
            return f"the check of {self.num_pairs:,} pairs says that the model {self.verdict}"
        if max_hallucination_rate < self.resolution:
            return (
                f"max_hallucination_rate is {max_hallucination_rate:g}, below "
                f"{self.resolution:.3f}, the finest bound that the model's own noise allows"
            )
        return None

    def save_beside(self, folder: Path) -> None:
        """Write `FOLDER.check.json`, whole or not at all."""
        content = {
            "verdict": self.verdict.name,
            "resolution": self.resolution,
            "num_pairs": self.num_pairs,
            "model": self.model,
        }
        path = _path(folder)
        if path.exists():
            # A finding may be replaced; a file of that name that is none may not.
            read_document(
                path, _KIND, _FORMAT, what="an earlier finding; remove it to keep a new one"
            )
        write_document(path, _KIND, _FORMAT, content)

    @classmethod
    def load_beside(cls, folder: Path, model: PairLanguageModel | None) -> CheckFinding | None:
        """The finding about the model in a folder; None if this very model was not checked.

        Without a model, the finding is taken to be about whatever is in the folder.
        """
        path = _path(folder)
        if not path.is_file():
            return None
        what = "what 'secondguess check' wrote. Check the model again, or remove the file"
        content = read_document(path, _KIND, _FORMAT, what=what)
        try:
            resolution, verdict = float(content["resolution"]), Verdict[content["verdict"]]
            num_pairs, identity = int(content["num_pairs"]), content["model"]
            if not (0 <= resolution <= 1 and isinstance(identity, dict)):
                raise ValueError
        except (ValueError, KeyError, TypeError, OverflowError):
            raise ValueError(f"{path} is damaged; expected {what}.") from None
        found = cls(verdict, resolution, num_pairs, identity)
        return found if model is None or found.model == model.identity else None


def _path(folder: Path) -> Path:
    folder = folder.resolve()
    return folder.with_name(folder.name + ".check.json")
