"""The mark of tests that need the real files of CIFAR-10, CIFAR-10N and CIFAR-10H."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from secondguess.experiments.cifar10h import data
from secondguess.experiments.data import DATA_VARIABLE

_FILES = (data.IMAGE_FOLDER, data.PRETRAINING_FILE, data.COUNTS_FILE)
_FOLDER = os.environ.get(DATA_VARIABLE)

NEEDS_DATA = pytest.mark.skipif(
    not _FOLDER or not all((Path(_FOLDER) / file).exists() for file in _FILES),
    reason=f"{DATA_VARIABLE} is {_FOLDER!r}; expected a folder with {', '.join(_FILES)}",
)
