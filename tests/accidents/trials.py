"""Accidents by the hundred: kills inside saves and commands, and two writers of one output.

    python tests/accidents/trials.py --out docs/results/accidents.json

Counts are kept in the file as they grow; called again, it goes on from there. `--saves`, `--kills`
and `--pairs` say how many there are to be of each kind, `--only` of what.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from accidents.processes import Ended, start, unbroken, wait_within
from accidents.subjects import Subject, classifier_fit, commands, make_classifier, make_inputs

from secondguess._files import write_json

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
LONGEST_CHAIN = 4
"""Kills of one piece of work at most, before it is left to end."""

Counts = dict[str, int]


class Record:
    """Counts by kind and name, kept in a file as they grow.

    Attributes:
        path: of the file.
        counts: by kind ("saves", "kills", "pairs"), then by name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: dict[str, dict[str, Counts]] = {"saves": {}, "kills": {}, "pairs": {}}
        if path.exists():
            self.counts |= json.loads(path.read_text())["counts"]

    def of(self, kind: str, name: str, counted: tuple[str, ...]) -> Counts:
        """The counts of a name, zero at first."""
        return self.counts[kind].setdefault(name, dict.fromkeys(counted, 0))

    def keep(self) -> None:
        """Write the file."""
        command = "python tests/accidents/trials.py --out docs/results/accidents.json"
        content = {"command": command, "counts": self.counts}
        write_json(self.path, content)


@contextmanager
def fresh_place(subject: Subject | None = None) -> Iterator[Path]:
    """An empty folder, or one with what a subject needs."""
    place = Path(tempfile.mkdtemp(prefix="accident-"))
    try:
        if subject is not None:
            subject.prepare(place)
        yield place
    finally:
        shutil.rmtree(place)


def kill_saves(
    counts: Counts,
    wanted: int,
    versions: Callable[[], list[Any]],
    load: Callable[[Path], Any],
    seed: int,
) -> Iterator[None]:
    """Kill saves of one model over another, until so many kills have come before the end.

    Args:
        counts: of kills, and of what was there after them.
        wanted: how many kills there are to be.
        versions: makes two models with a method `save`.
        load: what must not fail after a kill.
        seed: of the moments.
    """
    rng = random.Random(seed + counts["kills"])
    with fresh_place() as place:
        saved = Subject(lambda place: None, ("model",))
        known, models = [], versions()
        for model in models:
            model.save(place / "model")
            known.append(saved.found(place))
        present = 1
        said = place / ".said"
        seconds = sorted(unbroken(partial(models[1].save, place / "model"), said) for _ in range(5))
        while counts["kills"] < wanted:
            child = start(partial(models[1 - present].save, place / "model"), said)
            wait_within(rng, 1.1 * seconds[2])
            child.send(signal.SIGKILL)
            ended = child.ended()
            assert ended.code in (0, -signal.SIGKILL), ended.said
            found = saved.found(place)
            if ended.code:  # it did not come too late
                counts["kills"] += 1
                kind = ("earlier", "new")[found != known[present]]
                counts[kind if found in known else "mixed or torn"] += 1
            load(place / "model")
            present = known.index(found)
            if counts["kills"] % 10 == 0:
                unbroken(partial(models[present].save, place / "model"), said)
                left = {path.name for path in place.iterdir()} - {"model", ".said"}
                assert not left, left
            yield


def kill_runs(counts: Counts, wanted: int, subject: Subject, seed: int) -> Iterator[None]:
    """Kill a piece of work a few times, let it end, and look at its output; and so on.

    Args:
        counts: of kills by signal, of outputs, and of processes that were left.
        wanted: how many kills there are to be.
        subject: what is killed.
        seed: of moments and signals.
    """
    with fresh_place(subject) as place:
        seconds = unbroken(partial(subject.run, place), place / ".said")
        right = subject.found(place)
    while counts["kills"] < wanted:
        rng = random.Random(seed + counts["kills"])
        with fresh_place(subject) as place:
            for _ in range(rng.randint(1, LONGEST_CHAIN)):
                child = start(partial(subject.run, place), place / ".said")
                wait_within(rng, 1.05 * seconds)
                number = rng.choice(SIGNALS)
                child.send(number)
                ended = child.ended()
                counts["processes left"] += ended.left
                # On a busy machine no run takes as long as another.
                seconds *= 0.85 if ended.code == 0 else 1.05
                if ended.code == 0:
                    break
                _check_end(ended, number)
                counts["kills"] += 1
                counts[number.name] += 1
            ended = start(partial(subject.run, place), place / ".said").ended()
            counts["processes left"] += ended.left
            # Killed between its output and its end, or ended before the kill came: it is told so.
            assert ended.code == 0 or (ended.code == 2 and " exists" in ended.said), ended.said
            counts["ends"] += 1
            counts["same bytes" if subject.found(place) == right else "other bytes"] += 1
            hidden = [path.name for path in place.iterdir() if path.name.endswith(".unfinished")]
            counts["litter"] += bool(hidden) and ended.code == 0
        yield


def _check_end(ended: Ended, number: int) -> None:
    """The signal ended it, or it ended with the code that shells give, or the output is there."""
    assert ended.code in (-number, 128 + number) or " exists" in ended.said, ended
    assert "Traceback" not in ended.said, ended.said


def two_writers(counts: Counts, wanted: int, subject: Subject, seed: int) -> Iterator[None]:
    """Start a second writer of one output at a random moment of the first, which may be stopped.

    Args:
        counts: of pairs, and of how they ended.
        wanted: how many pairs there are to be.
        subject: what both do.
        seed: of the moments.
    """
    with fresh_place(subject) as place:
        seconds = unbroken(partial(subject.run, place), place / ".said")
        right = {subject.found(place)}
        if subject.repeatable:
            unbroken(partial(subject.run, place), place / ".said")
            right.add(subject.found(place))
    while counts["pairs"] < wanted:
        rng = random.Random(seed + counts["pairs"])
        with fresh_place(subject) as place:
            first = start(partial(subject.run, place), place / ".first")
            wait_within(rng, seconds)
            stopped = rng.random() < 0.5
            if stopped:
                first.send(signal.SIGSTOP)
            second = start(partial(subject.run, place), place / ".second")
            if stopped:
                while not _is_over(second.pid):
                    time.sleep(0.005)
                first.send(signal.SIGCONT)
            ends = [first.ended(), second.ended()]
            counts["pairs"] += 1
            counts[_judged(ends, subject)] += 1
            counts["whole outputs"] += subject.found(place) in right
        yield


def _is_over(pid: int) -> bool:
    """Whether a child has ended; it is not waited for, so that it can be asked again."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _judged(ends: list[Ended], subject: Subject) -> str:
    codes = sorted(each.code for each in ends)
    told = [each for each in ends if each.code == 2]
    if codes == [0, 2]:
        messages = [line for line in told[0].said.splitlines() if line.startswith("secondguess: ")]
        if len(messages) == 1 and "Traceback" not in told[0].said:
            return "one works, one is told"
    if codes == [0, 0] and subject.repeatable:
        return "one after the other"
    print(ends, file=sys.stderr)
    return "anything else"


KINDS = {
    "saves": ("kills", "earlier", "new", "mixed or torn"),
    "kills": (
        "kills",
        *(number.name for number in SIGNALS),
        "ends",
        "same bytes",
        "other bytes",
        "litter",
        "processes left",
    ),
    "pairs": (
        "pairs",
        "one works, one is told",
        "one after the other",
        "anything else",
        "whole outputs",
    ),
}
KILLED = ("fit", "score", "answer", "calibrate --workers 2")


Trial = tuple[str, str, Callable[[Counts, int], Iterator[None]]]
"""A kind of accident, to what it happens, and what makes so many of them, counted."""


def trials(inputs: Path) -> Iterator[Trial]:
    """All kinds of accidents."""
    from secondguess.classification.estimators import PairClassifier
    from secondguess.language.model import PairLanguageModel

    def fitted(flipped: bool) -> PairClassifier:
        # Trained in a child: threads that a training leaves behind do not survive a fork.
        path = inputs / f"classifier-{flipped}"
        unbroken(
            lambda: make_classifier(None, num_steps=20, flipped=flipped).save(path),
            inputs / ".said",
        )
        return PairClassifier.load(path)

    saved: dict[str, tuple[Callable[[], list[Any]], Callable[[Path], Any]]] = {
        "PairClassifier.save": (lambda: [fitted(False), fitted(True)], PairClassifier.load),
        "PairLanguageModel.save": (
            lambda: [PairLanguageModel.load(inputs / f"model-{seed}") for seed in (0, 1)],
            PairLanguageModel.load,
        ),
    }
    for name, (versions, load) in saved.items():
        yield "saves", name, partial(kill_saves, versions=versions, load=load, seed=1)
    subjects = commands(inputs)
    fit = Subject(classifier_fit, ("classifier",), repeatable=True)
    for name, subject in {
        **{name: subjects[name] for name in KILLED},
        "PairClassifier.fit": fit,
    }.items():
        yield "kills", name, partial(kill_runs, subject=subject, seed=2)
    for name, subject in subjects.items():
        yield "pairs", name, partial(two_writers, subject=subject, seed=4)


def main() -> None:
    """Do what is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    for name, count in (("--saves", 200), ("--kills", 50), ("--pairs", 50)):
        parser.add_argument(name, type=int, default=count)
    given = parser.parse_args()
    record = Record(given.out)
    with fresh_place() as inputs:
        make_inputs(inputs)
        for kind, name, accidents in trials(inputs):
            wanted = getattr(given, kind)
            if not wanted or (given.only and name not in given.only):
                continue
            for _ in accidents(record.of(kind, name, KINDS[kind]), wanted):
                record.keep()


if __name__ == "__main__":
    main()
