"""The file between `calibrate` and `intervals`: what was certified, which columns, and whose."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from secondguess import __version__
from secondguess._files import read_document, read_record, write_json
from secondguess.theory.calibration.count_stream import CountIntervals
from secondguess.theory.calibration.inflation import VarianceInflation
from secondguess.theory.records import Interval

_KIND, _FORMAT = "secondguess calibration", 2
_WHAT = "a calibration that 'secondguess calibrate' wrote"


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationFile:
    """What a calibration file says.

    Attributes:
        probs: the column of probabilities.
        variance: the column of their variances.
        inflation: what was certified by pairs, for every miss rate; or
        counts: what was certified by counts, for one.
        predictor: the SHA-256 of the model whose predictions they are, where it was named.
    """

    probs: str
    variance: str
    inflation: VarianceInflation | None = None
    counts: CountIntervals | None = None
    predictor: str | None = None

    def __post_init__(self) -> None:
        if (self.inflation is None) == (self.counts is None):
            raise ValueError("it has an inflation and counts, or neither; expected one of them.")

    @property
    def failure_rate(self) -> float:
        """How often, over calibration sets, the guarantee may not hold."""
        fitted = self.inflation or self.counts
        assert fitted is not None
        return fitted.failure_rate

    def miss_rate(self, asked: float | None) -> float:
        """The one that was asked for, or the one that was certified, or 0.1."""
        if self.counts is None:
            return 0.1 if asked is None else asked
        if asked not in (None, self.counts.miss_rate):
            raise ValueError(
                f"the miss rate is {asked:g}, but counts were certified for "
                f"{self.counts.miss_rate:g} only; calibrate with --miss-rate {asked:g}, or with "
                f"--method pairs, which certifies every one."
            )
        return self.counts.miss_rate

    def interval(self, probs: NDArray[Any], variance: NDArray[Any], miss_rate: float) -> Interval:
        """Intervals for predictions."""
        if self.counts is not None:
            return self.counts.interval(probs, variance)
        assert self.inflation is not None
        return self.inflation.interval(probs, variance, miss_rate)

    def as_document(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {"kind": _KIND, "format": _FORMAT, "version": __version__, **asdict(self)}

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        write_json(path, self.as_document())

    @classmethod
    def load(cls, path: Path) -> CalibrationFile:
        """Read the file; every entry is checked."""
        content = read_document(path, _KIND, _FORMAT, what=_WHAT)
        entries = {k: v for k, v in content.items() if k != "version"}
        try:
            return read_record(cls, entries)
        except ValueError as error:
            raise ValueError(f"{path} is damaged; expected {_WHAT} ({error})") from None

    @staticmethod
    def digest_of(predictor: Path | None) -> str | None:
        """The SHA-256 of a file, or of all files in a folder with their names."""
        if predictor is None:
            return None
        if not predictor.exists():
            raise ValueError(f"{predictor} does not exist; expected the model's file or folder.")
        files = sorted(
            Path(parent, name) for parent, _, names in os.walk(predictor) for name in names
        )
        digest = hashlib.sha256()
        for path in files if predictor.is_dir() else [predictor]:
            if not path.is_file():
                raise ValueError(f"{path} is not a file; expected a model of regular files.")
            name = path.relative_to(predictor).as_posix()
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{name!r} {content}\n".encode())
        return digest.hexdigest()

    def check_predictor(self, path: Path, predictor: Path | None) -> None:
        """Refuse any other predictor than the one that was calibrated, where that is known."""
        if self.predictor == self.digest_of(predictor):
            return
        if predictor is None:
            raise ValueError(f"{path} is for the predictions of one model; name it by --predictor.")
        other = "no model was named" if self.predictor is None else "it was another model"
        raise ValueError(
            f"{path} was not made for {predictor} ({other}); calibrate its predictions first."
        )
