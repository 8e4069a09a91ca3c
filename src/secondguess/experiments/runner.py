"""Runs an experiment in parts, keeps what is finished, and writes results in one layout.

    OUT/<experiment>/<preset>/seed-<n>/
        result.json    experiment, preset, seed, config, versions, machine, seconds, metrics, claims
        arrays.npz     every array of every part, named "<part>/<array>"
        page.json      what the report says of the run (`Section`)
        figures/
        parts/<part>/  result.json and arrays.npz of one part, beside its checkpoints

A part (one method, one sweep value) is the unit that is kept: a run that was stopped skips finished
parts, and a part that trains resumes from its own checkpoints. All files are written whole or not
at all. The seconds of a part that was interrupted are those of all its attempts, but for attempts
that were killed. A part is held while it is computed, so a second process can compute some parts
of a run (`only_parts`) beside the one that does the others.

A part is computed with one thread, wherever it runs: with more, sums are split another way, and a
seed would give other bits on a machine with other cores or other work.
"""

from __future__ import annotations

import json
import os
import platform
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from secondguess._files import only_writer_of, read_document, replacing, write_document
from secondguess.experiments.needs import marked
from secondguess.experiments.progress import part_progress, tell_progress
from secondguess.experiments.threads import one_thread
from secondguess.report.files import RESULT_FILE, write_page, write_result
from secondguess.report.sections import Claim as Claim
from secondguess.report.sections import Section

Arrays = dict[str, np.ndarray]

_PART, _INTERRUPTED, _FORMAT = "secondguess part", "secondguess interrupted part", 1


@dataclass(frozen=True, slots=True)
class PartResult:
    """What a part found: numbers for the tables (in JSON types) and arrays for the figures."""

    metrics: dict[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of an experiment that is computed once.

    Attributes:
        name: of its directory.
        config: all that its result depends on and nothing else, in JSON types: a finished part is
            used again by every run with the same.
        compute: from a directory for its checkpoints, and the parts before it, to its result.
        effort: how long it takes beside the other parts, roughly; only progress bars use it.
    """

    name: str
    config: Mapping[str, Any]
    compute: Callable[[Path, Mapping[str, PartResult]], PartResult]
    effort: float = 1.0


_only: ContextVar[Collection[str] | None] = ContextVar("which parts", default=None)


@contextmanager
def only_parts(names: Collection[str] | None) -> Iterator[None]:
    """Inside, runs compute these parts and end, without results; None for whole runs.

    The process of the whole run does the others in the meantime, so none of them may need these.
    """
    token = _only.set(names)
    try:
        yield
    finally:
        _only.reset(token)


def run_experiment(
    *,
    experiment: str,
    preset: str,
    seed: int,
    config: Mapping[str, Any],
    parts: Sequence[Part],
    claims: Callable[[Mapping[str, PartResult]], Sequence[Claim]],
    draw: Callable[[Mapping[str, PartResult], Path], None],
    describe: Callable[[Mapping[str, PartResult]], Section] | None = None,
    out: Path,
    report: Callable[[str], None] = print,
) -> Path:
    """Compute the parts that are not finished, then write results, claims and figures.

    Args:
        experiment: its name.
        preset: the name of its size.
        seed: of this run.
        config: the settings of the run, for the record.
        parts: in the order they are computed.
        claims: from all parts to the claims that they decide.
        draw: from all parts and a directory to the figures in it.
        describe: from all parts to what the report says of them; without it, the report shows
            claims and figures alone.
        out: where results of all experiments are.
        report: told what is going on, a line at a time.

    Returns:
        The directory of the run.
    """
    directory = out / experiment / preset / f"seed-{seed}"
    done = _compute_parts(
        parts, directory, lambda line: report(f"{experiment} seed {seed}: {line}")
    )
    if _only.get() is not None:
        return directory
    _write_arrays(
        directory / "arrays.npz",
        {
            f"{name}/{key}": array
            for name, part in done.items()
            for key, array in part.arrays.items()
        },
    )
    if describe is not None:
        write_page(directory, describe(done))
    write_result(
        directory,
        {
            "experiment": experiment,
            "preset": preset,
            "seed": seed,
            "config": config,
            "versions": _versions(),
            "machine": _machine(),
            "seconds": {name: round(part.seconds, 1) for name, part in done.items()},
            "metrics": {name: part.metrics for name, part in done.items()},
            "claims": [asdict(claim) for claim in claims(done)],
        },
    )
    figures = directory / "figures"
    figures.mkdir(exist_ok=True)
    draw(done, figures)
    report(f"{experiment} seed {seed}: {directory}")
    return directory


def run_preset(
    presets: Mapping[str, Any],
    *,
    experiment: str,
    preset: str,
    seed: int,
    out: Path,
    parts: Callable[[Any], Sequence[Part]],
    claims: Callable[[Mapping[str, PartResult]], Sequence[Claim]],
    draw: Callable[[Mapping[str, PartResult], Path], None],
    describe: Callable[[Mapping[str, PartResult]], Section],
) -> Path:
    """Run or resume one seed of an experiment that is one config and nothing else.

    Args:
        presets: configs by name, dataclasses with a field `seed`.
        experiment: its name, as the command line has it.
        preset: one of the names.
        seed: put into the config.
        out: where results of all experiments are.
        parts: from a config to the parts of its run.
        claims: see `run_experiment`, as for the others.
        draw: from all parts to the figures.
        describe: from all parts to the page.

    Returns:
        The directory of the run.
    """
    check_known("preset", [preset], presets)
    config = replace(presets[preset], seed=seed)
    return run_experiment(
        experiment=experiment,
        preset=preset,
        seed=seed,
        config=asdict(config),
        parts=parts(config),
        claims=lambda done: marked(claims(done), experiment, preset),
        draw=draw,
        describe=describe,
        out=out,
    )


def _compute_parts(
    parts: Sequence[Part], directory: Path, report: Callable[[str], None]
) -> dict[str, PartResult]:
    """What the parts found, in their order. A part that another process is at is left to it."""
    only, done = _only.get(), {}
    wanted = [part for part in parts if only is None or part.name in only]
    effort_done, effort = 0.0, sum(part.effort for part in wanted)
    elsewhere: list[Part] = []
    for part in wanted:
        with part_progress(part.name, before=effort_done / effort, share=part.effort / effort):
            if _do(part, directory, done, report):
                effort_done += part.effort
            else:
                elsewhere.append(part)
    for part in elsewhere if only is None else ():
        tell_progress(part.name, effort_done / effort)
        while not _do(part, directory, done, report):  # that process may die, and leave it to us
            time.sleep(0.5)
        effort_done += part.effort
    return {part.name: done[part.name] for part in wanted if part.name in done}


def _do(
    part: Part, directory: Path, done: dict[str, PartResult], report: Callable[[str], None]
) -> bool:
    """Read or compute a part into `done`; False where another process is computing it."""
    part_directory = directory / "parts" / part.name
    found = _read_part(part_directory, part)
    if found is None:
        part_directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            try:
                held.enter_context(only_writer_of(part_directory))
            except BlockingIOError:
                return False
            found = _read_part(part_directory, part)  # it may have been finished just now
            if found is None:
                report(part.name)
                with one_thread():
                    found = _compute(part, part_directory, done)
                _write_part(part_directory, part, found)
    elif _only.get() is None:  # else the process of the whole run says so
        report(f"{part.name} is finished")
    done[part.name] = found
    return True


def _compute(part: Part, directory: Path, done: Mapping[str, PartResult]) -> PartResult:
    """The result of a part, with the seconds of this attempt and of interrupted ones before it."""
    earlier = directory / "interrupted.json"
    spent = _spent(earlier)
    start = time.perf_counter()
    try:
        computed = part.compute(directory, done)
    except BaseException:
        seconds = {"seconds": spent + time.perf_counter() - start}
        write_document(earlier, _INTERRUPTED, _FORMAT, seconds)
        raise
    earlier.unlink(missing_ok=True)
    return PartResult(computed.metrics, computed.arrays, spent + time.perf_counter() - start)


def _spent(earlier: Path) -> float:
    """The seconds of interrupted attempts; 0 where that is not known."""
    with suppress(OSError, ValueError):
        found = read_document(earlier, _INTERRUPTED, _FORMAT, what="an interrupted part")
        if isinstance(found.get("seconds"), int | float):
            return float(found["seconds"])
    return 0.0


def _read_part(directory: Path, part: Part) -> PartResult | None:
    path = directory / RESULT_FILE
    if not path.exists():
        return None
    saved = read_document(path, _PART, _FORMAT, what="a finished part; remove its folder")
    if any(not isinstance(saved.get(name), dict) for name in ("config", "metrics")):
        raise ValueError(f"{path} is damaged; remove its folder, and the part is computed again.")
    config = json.loads(json.dumps(part.config))
    if saved["config"] != config:
        changed = [
            f"{key}: {saved['config'].get(key)!r} there, {config.get(key)!r} now"
            for key in sorted(saved["config"].keys() | config.keys())
            if saved["config"].get(key) != config.get(key)
        ]
        raise ValueError(
            f"{directory} holds a result with other settings ({'; '.join(changed)}). Name another "
            f"--out, or remove this folder: parts that do not depend on them are kept."
        )
    try:
        with np.load(directory / "arrays.npz") as arrays:
            return PartResult(saved["metrics"], dict(arrays), float(saved["seconds"]))
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{directory} holds a damaged part ({error}); remove it, and it is computed again."
        ) from None


def _write_part(directory: Path, part: Part, result: PartResult) -> None:
    # The JSON last: where it is, the part is finished.
    _write_arrays(directory / "arrays.npz", result.arrays)
    content = {"config": part.config, "metrics": result.metrics, "seconds": result.seconds}
    write_document(directory / RESULT_FILE, _PART, _FORMAT, content)


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def check_known(kind: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name that does not exist.

    >>> check_known("preset", ["huge"], ["quick", "cpu"])
    Traceback (most recent call last):
    ...
    ValueError: 'huge' is no preset; expected one of quick, cpu.
    """
    for name in given:
        if name not in known:
            raise ValueError(f"{name!r} is no {kind}; expected one of {', '.join(known)}.")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("secondguess", "numpy", "scipy", "torch", "gpytorch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _machine() -> dict[str, Any]:
    return {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()}


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
