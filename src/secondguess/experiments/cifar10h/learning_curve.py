"""How good a network is after so many minutes: looks at it during its training, kept in a file.

The minutes are those of the processor, on one thread, so that other work on the machine does not
count. Looks change nothing about the training. Where it was stopped and resumed, steps between the
last look and the place where it resumes are counted at the mean pace up to that look; steps that
were lost, and made again, count once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from secondguess._files import read_document, write_document

_CURVE, _FORMAT = "secondguess learning curve", 1


@dataclass(frozen=True, slots=True)
class Look:
    """What a network reaches on held-out images.

    Attributes:
        step: optimizer steps that it has taken.
        seconds: of the processor, up to here.
        accuracy: in per cent.
        kl: divergence from the annotators' shares.
    """

    step: int
    seconds: float
    accuracy: float
    kl: float


class LearningCurve:
    """The looks of one training.

    >>> import tempfile
    >>> curve = LearningCurve(Path(tempfile.mkdtemp()) / "curve.json", lambda network: (81.0, 0.4))
    >>> batch_at = curve.watched(lambda step: ["a batch"])
    >>> batch_at(0), curve.look(nn.Identity())
    (['a batch'], 0.4)
    >>> [(look.step, look.accuracy) for look in curve.looks]
    [(1, 81.0)]

    Args:
        path: of the file; looks that it holds already are those of the same training, before it was
            stopped.
        measure: from a network to its accuracy in per cent and its divergence.
    """

    def __init__(self, path: Path, measure: Callable[[Any], tuple[float, float]]) -> None:
        self._path, self._measure = path, measure
        self._step: int | None = None
        self._start = 0.0
        self.looks: list[Look] = []
        if path.exists():
            found = read_document(path, _CURVE, _FORMAT, what="a learning curve; remove it")
            self.looks = [Look(**look) for look in found["looks"]]

    def watched(self, batch_at: Callable[[int], Any]) -> Callable[[int], Any]:
        """The same batches; who asks for them is known to have come so far."""

        def watched_batch(step: int) -> Any:
            if self._step is None:  # the first step since the training was started or resumed
                self.looks = [look for look in self.looks if look.step <= step]
                last = self.looks[-1] if self.looks else Look(1, 0.0, 0.0, 0.0)
                self._start = time.process_time() - last.seconds * step / last.step
            self._step = step
            return batch_at(step)

        return watched_batch

    def look(self, network: nn.Module) -> float:
        """Measure the network and keep what was found; returns the divergence."""
        assert self._step is not None  # a look follows a step
        accuracy, kl = self._measure(network)
        seconds = round(time.process_time() - self._start, 1)
        self.looks.append(Look(self._step + 1, seconds, accuracy, kl))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        looks = [asdict(each) for each in self.looks]
        write_document(self._path, _CURVE, _FORMAT, {"looks": looks})
        return kl
