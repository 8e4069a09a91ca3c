"""Fetch the three files from their official addresses: `secondguess download cifar10h FOLDER`.

Every file is checked against a SHA-256 before anything reads it, and nothing that is there already
is fetched again. The labels are free for non-commercial use (CIFAR-10H: CC BY-NC-SA 4.0, CIFAR-10N:
CC BY-NC 4.0).
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secondguess._files import only_writer_of, place_beside
from secondguess.experiments.cifar10h.data import COUNTS_FILE, IMAGE_FOLDER, PRETRAINING_FILE, load


@dataclass(frozen=True, kw_only=True)
class OfficialFile:
    """A file to fetch.

    >>> IMAGES.url
    'https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz'

    Attributes:
        url: the official address.
        sha256: digest of the file's bytes.
    """

    url: str
    sha256: str


IMAGES = OfficialFile(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
CIFAR10N = OfficialFile(
    url="https://github.com/UCSC-REAL/cifar-10-100n/raw/main/data/CIFAR-10_human.pt",
    sha256="873e69c39cb9b5e97fb6bae2d60bb59b38a5cbc31d2b868f7903dcb2b9dd2310",
)
CIFAR10H = OfficialFile(
    url="https://github.com/jcpeterson/cifar-10h/raw/master/data/cifar10h-counts.npy",
    sha256="9b36b4550349af56c79083356312eb4af856cc5fd3caf1f669d40b9d0bbb69ff",
)


def download(data_dir: Path | str) -> None:
    """Fetch what is missing into a folder, then load all of it once, which checks it.

    Args:
        data_dir: made if it is missing.

    Raises:
        ValueError: a file came with other bytes than expected; it is not kept.
    """
    folder = Path(data_dir).expanduser()
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with only_writer_of(folder / "download"), place_beside(folder / "download") as scratch:
            _fill(folder, scratch)
    finally:
        if is_new:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
    load(folder)


def _fill(folder: Path, scratch: Path) -> None:
    """Fetch what is missing, each file whole or not at all."""
    if not (folder / IMAGE_FOLDER / "test_batch").exists():
        archive = fetch(IMAGES, scratch / "images.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        shutil.move(scratch / IMAGE_FOLDER, folder / IMAGE_FOLDER)
    if not (folder / PRETRAINING_FILE).exists():
        labels = read_cifar10n(fetch(CIFAR10N, scratch / "cifar10n.pt"))
        np.save(scratch / PRETRAINING_FILE, labels)
        (scratch / PRETRAINING_FILE).replace(folder / PRETRAINING_FILE)
    if not (folder / COUNTS_FILE).exists():
        fetch(CIFAR10H, scratch / COUNTS_FILE).replace(folder / COUNTS_FILE)


def fetch(file: OfficialFile, path: Path) -> Path:
    """Download a file and check its digest; returns its path.

    >>> import tempfile
    >>> source = Path(tempfile.mkdtemp()) / "labels"
    >>> _ = source.write_bytes(b"0, 1, 1")
    >>> digest = hashlib.sha256(b"0, 1, 1").hexdigest()
    >>> file = OfficialFile(url=source.as_uri(), sha256=digest)
    >>> fetch(file, source.with_suffix(".copy")).read_bytes()
    b'0, 1, 1'

    Args:
        file: what to fetch.
        path: where to put it.
    """
    with urllib.request.urlopen(file.url, timeout=60) as response, path.open("wb") as target:
        shutil.copyfileobj(response, target)
    with path.open("rb") as fetched:
        digest = hashlib.file_digest(fetched, "sha256").hexdigest()
    if digest != file.sha256:
        path.unlink()
        raise ValueError(
            f"{file.url} has SHA-256 {digest}, expected {file.sha256}; the file at that address "
            f"has changed, or the download was cut. Nothing was kept."
        )
    return path


def read_cifar10n(path: Path) -> np.ndarray:
    """The three random annotators' labels `(50000, 3)` of the published file.

    The file is a pickle; it is read with a reader that rebuilds arrays and runs nothing else.
    """
    import torch

    constructor = np.zeros(0).__reduce__()[0]
    # The published file names the array constructor by its old module.
    old_name = (constructor, "numpy.core.multiarray._reconstruct")
    arrays = [constructor, old_name, np.ndarray, np.dtype, type(np.dtype(np.int64))]
    with torch.serialization.safe_globals(arrays):
        published = torch.load(path, weights_only=True)
    return np.stack([published[f"random_label{i}"] for i in (1, 2, 3)], axis=1).astype(np.uint8)
