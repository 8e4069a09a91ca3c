"""Checkpoint files, which the training loop resumes from: safetensors, whole or not at all.

A checkpoint is a flat dictionary of tensors and a small JSON state, in one file (the JSON stands in
the header of the safetensors file), so the two can never disagree. Nothing is pickled. The previous
good one is kept. A checksum over all tensors finds damage that leaves the length alone. A directory
is for one run at a time.
"""

from __future__ import annotations

import json
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from secondguess._files import only_writer_of, parse_json, replacing

KEPT = 2
"""How many checkpoints stay on disk: the newest, and the one to fall back on."""

_HEADER, _FORMAT = "secondguess", 1
_NAME = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was saved after a step.

    Attributes:
        step: how many steps had been taken.
        tensors: all tensors, by name, on the CPU.
        state: whatever else was saved, as JSON.
    """

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


@contextmanager
def only_training_in(directory: Path) -> Iterator[None]:
    """Hold a directory, made if it is missing; while it is held, a second training is refused."""
    directory.mkdir(parents=True, exist_ok=True)
    with only_writer_of(directory / "checkpoints"):
        yield


@contextmanager
def told_as_os_error() -> Iterator[None]:
    """A full disk is an `OSError` also where safetensors writes the file."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"the weights cannot be written: {error}") from None


def write_checkpoint(
    directory: Path, checkpoint: Checkpoint, *, identity: Mapping[str, Any]
) -> None:
    """Write a checkpoint atomically, then remove all but the newest two.

    >>> import tempfile
    >>> directory = Path(tempfile.mkdtemp())
    >>> write_checkpoint(directory, Checkpoint(7, {"w": torch.ones(2)}, {}), identity={"seed": 0})
    >>> read_checkpoint(directory, identity={"seed": 0}).tensors
    {'w': tensor([1., 1.])}

    Args:
        directory: where the checkpoints of this one training are; made if it is missing.
        checkpoint: what to save.
        identity: what the training is (configuration, shapes, seed): a checkpoint is only read
            back by a run of the same identity.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()
    }
    header = {
        "format": _FORMAT,
        "step": checkpoint.step,
        "identity": identity,
        "state": checkpoint.state,
        "checksum": _checksum(tensors),
    }
    path = directory / f"step-{checkpoint.step:09d}.safetensors"
    with replacing(path) as unfinished, told_as_os_error():
        save_file(tensors, unfinished, metadata={_HEADER: json.dumps(header, sort_keys=True)})
    # A file of a later step is damaged or of an abandoned run: this training has just been there.
    kept = [found for step, found in _newest_first(directory) if step <= checkpoint.step][:KEPT]
    for _, found in _newest_first(directory):
        if found not in kept:
            found.unlink()


def read_checkpoint(directory: Path, *, identity: Mapping[str, Any]) -> Checkpoint | None:
    """The newest good checkpoint, or None where there is none.

    A damaged file is skipped with a `RuntimeWarning` that says which one is used in its place. A
    checkpoint of another identity raises a `ValueError` that lists the differences.
    """
    damaged: list[str] = []
    for _, path in _newest_first(directory):
        try:
            found, saved_identity = _read(path)
        except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
            damaged.append(f"{path} is damaged ({error})")
            continue
        _check_identity(path, saved_identity, identity)
        if damaged:
            _warn(damaged, f"Resuming from step {found.step} ({path.name}).")
        return found
    if damaged:
        _warn(damaged, "No good checkpoint is left: starting from step 0.")
    return None


def _read(path: Path) -> tuple[Checkpoint, dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        header = parse_json(file.metadata()[_HEADER].encode(), constants=True)
        if header["format"] != _FORMAT:
            raise ValueError(f"its format is {header['format']!r}; this version reads {_FORMAT}")
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
    if _checksum(tensors) != header["checksum"]:
        raise ValueError("its checksum does not match")
    return Checkpoint(header["step"], tensors, header["state"]), header["identity"]


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    checksum = 0
    for name in sorted(tensors):
        data = tensors[name].reshape(-1).view(torch.uint8).numpy().data
        checksum = zlib.crc32(data, zlib.crc32(name.encode(), checksum))
    return checksum


def _check_identity(path: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    before, now = dict(_leaves(saved)), dict(_leaves(json.loads(json.dumps(wanted))))
    missing = object()
    changed = [
        f"{key}: {before.get(key, 'absent')!r} in the checkpoint, {now.get(key, 'absent')!r} now"
        for key in sorted(before.keys() | now.keys())
        if before.get(key, missing) != now.get(key, missing)
    ]
    if changed:
        shown = "; ".join(changed[:5]) + ("; ..." if len(changed) > 5 else "")
        raise ValueError(
            f"{path} is the checkpoint of another training run ({shown}). Resume with the "
            f"configuration it was made with, or name another directory."
        )


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, tree


def _newest_first(directory: Path) -> list[tuple[int, Path]]:
    found = [(_NAME.fullmatch(path.name), path) for path in directory.glob("step-*")]
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def _warn(damaged: list[str], outcome: str) -> None:
    warnings.warn("; ".join(damaged) + f". {outcome}", RuntimeWarning, stacklevel=4)
