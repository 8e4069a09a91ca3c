"""CIFAR-10 images with several annotators' labels each: the files, their checks and the splits.

A data folder holds three things, and `download.py` says where each comes from:

    cifar-10-batches-py/    the images, the official folder
    cifar10n-labels.npy     CIFAR-10N: three annotators' labels of each training image
    cifar10h-counts.npy     CIFAR-10H: label counts of about fifty annotators for each test image

Nothing here touches the network, and no file can run code while it is read. Images are bytes of
shape `(n, 3, 32, 32)`; nothing is normalised or augmented yet.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess._arrays import IntArray
from secondguess.classification.pairs import PairData
from secondguess.experiments.data import find_data

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
IMAGE_FOLDER = "cifar-10-batches-py"
PRETRAINING_FILE = "cifar10n-labels.npy"
COUNTS_FILE = "cifar10h-counts.npy"

CHANNEL_MEAN = (0.49139968, 0.48215841, 0.44653091)
CHANNEL_DEVIATION = (0.24703223, 0.24348513, 0.26158784)
"""Mean and standard deviation of the training pixels, scaled to [0, 1]."""

NUM_FINETUNING = 3000
NUM_VALIDATION = 2000

_NUM_TRAIN, _NUM_TEST, _BATCH = 50_000, 10_000, 10_000


@dataclass(frozen=True, slots=True, eq=False)
class AnnotatedInputs:
    """Inputs, the responses of several annotators to each, and CIFAR-10's own label.

    >>> examples = AnnotatedInputs(
    ...     inputs=np.zeros((2, 3, 32, 32), np.uint8),
    ...     responses=PairData.from_counts([[50, 0], [20, 31]]),
    ...     labels=np.array([0, 1]),
    ... )
    >>> len(examples[:1]), examples.responses.counts()
    (1, array([[50,  0], [20, 31]]))

    Attributes:
        inputs: `(n, 3, 32, 32)` bytes, red, green and blue, as they are loaded; a tensor of bytes
            or of features `(n, copies, num_features)` where they are prepared for a network.
        responses: n rows of annotations.
        labels: `(n,)` class indices, for accuracy only.
    """

    inputs: Any
    responses: PairData
    labels: IntArray

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> AnnotatedInputs:
        """Some of the rows, by a slice, an index array or a mask."""
        return AnnotatedInputs(self.inputs[rows], self.responses[rows], self.labels[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Cifar10H:
    """The five parts of appendix F.2.1; `test` is for evaluation only.

    Attributes:
        pretraining: the 50,000 training images with three labels each (CIFAR-10N).
        annotated: the 10,000 test images with about fifty labels each (CIFAR-10H).
    """

    pretraining: AnnotatedInputs
    annotated: AnnotatedInputs

    @property
    def finetuning(self) -> AnnotatedInputs:
        """Images 0 to 2,999 of CIFAR-10H: the fine-tuning sweep trains on them."""
        return self.annotated[:NUM_FINETUNING]

    @property
    def validation(self) -> AnnotatedInputs:
        """Images 3,000 to 4,999: hyper-parameters are chosen by the divergence on them."""
        return self.annotated[NUM_FINETUNING : NUM_FINETUNING + NUM_VALIDATION]

    @property
    def all_finetuning(self) -> AnnotatedInputs:
        """Images 0 to 4,999, both of the above: the final models train on them."""
        return self.annotated[: NUM_FINETUNING + NUM_VALIDATION]

    @property
    def test(self) -> AnnotatedInputs:
        """Images 5,000 to 9,999: every published number comes from them."""
        return self.annotated[NUM_FINETUNING + NUM_VALIDATION :]


def find_data_dir(data_dir: Path | str | None = None) -> Path:
    """The folder that holds the data, see `find_data`.

    >>> find_data_dir("~/cifar").name
    'cifar'
    """
    files = f"{IMAGE_FOLDER}/, {PRETRAINING_FILE} and {COUNTS_FILE}"
    return find_data(data_dir, expected=f"a folder with {files}. {_HOW_TO_GET}")


def load(data_dir: Path | str | None = None) -> Cifar10H:
    """Read and check all files.

    The labels carry no image names, only an order. So the loader checks the order itself: the
    annotators' most frequent label has to be CIFAR-10's for most images.

    Args:
        data_dir: see `find_data_dir`.

    Raises:
        FileNotFoundError: a file is missing; the message says where to get it.
        ValueError: a file is not what it should be.
    """
    folder = find_data_dir(data_dir)
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    parts = [_read_batch(folder / IMAGE_FOLDER / name) for name in batches]
    train_images, train_labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    test_images, test_labels = _read_batch(folder / IMAGE_FOLDER / "test_batch")
    _check_pixels(folder / IMAGE_FOLDER, train_images)

    votes = _read_array(folder / PRETRAINING_FILE, (_NUM_TRAIN, 3))
    if votes.max() >= len(CLASSES):
        raise ValueError(
            f"{folder / PRETRAINING_FILE} has a label {votes.max()}; expected 0 to 9. {_HOW_TO_GET}"
        )
    counts = _read_array(folder / COUNTS_FILE, (_NUM_TEST, len(CLASSES)))
    # Each annotator of CIFAR-10N is right for 82 or 83 % of the images, CIFAR-10H's majority for
    # 99 %; in any other order both would be right for 10 %.
    _check_order(folder / PRETRAINING_FILE, votes[:, 0], train_labels, at_least=0.75)
    _check_order(folder / COUNTS_FILE, counts.argmax(axis=1), test_labels, at_least=0.98)
    indices = range(len(CLASSES))
    return Cifar10H(
        AnnotatedInputs(
            train_images, PairData.from_responses(votes, classes=indices), train_labels
        ),
        AnnotatedInputs(test_images, PairData.from_counts(counts, classes=indices), test_labels),
    )


_HOW_TO_GET = (
    "`secondguess download cifar10h FOLDER` fetches all three from their official addresses and "
    "checks them."
)


class _ArrayUnpickler(pickle.Unpickler):
    """Reads the official batches, which hold arrays, bytes, lists and integers, and nothing else.

    A pickle can call any function by name; this one can rebuild arrays only.
    """

    _ALLOWED = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}")
        # NumPy 2 warns about the old name of the module, which the official files use.
        return super().find_class(module_name.replace("numpy.core", "numpy._core"), global_name)


def _read_batch(path: Path) -> tuple[NDArray[np.uint8], IntArray]:
    _check_exists(path)
    try:
        with path.open("rb") as file:
            batch = _ArrayUnpickler(file, encoding="bytes").load()
        pixels, labels = batch[b"data"], np.asarray(batch[b"labels"], dtype=np.int64)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a CIFAR-10 batch ({error}); expected the python version's file. "
            f"{_HOW_TO_GET}"
        ) from None
    if pixels.shape != (_BATCH, 3072) or pixels.dtype != np.uint8 or labels.shape != (_BATCH,):
        raise ValueError(
            f"{path} holds pixels of shape {pixels.shape} and {len(labels)} labels; expected "
            f"({_BATCH}, 3072) bytes and {_BATCH} labels. {_HOW_TO_GET}"
        )
    return pixels.reshape(_BATCH, 3, 32, 32), labels


def _read_array(path: Path, shape: tuple[int, int]) -> IntArray:
    _check_exists(path)
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path} is not an array file ({error}). {_HOW_TO_GET}") from None
    if array.shape != shape or array.dtype.kind not in "iu" or array.min() < 0:
        raise ValueError(
            f"{path} holds {array.dtype} of shape {array.shape}; expected whole numbers, 0 or "
            f"more, of shape {shape}. {_HOW_TO_GET}"
        )
    return array.astype(np.int64)


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. {_HOW_TO_GET}")


def _check_pixels(path: Path, images: NDArray[np.uint8]) -> None:
    mean = images.mean(axis=(0, 2, 3)) / 255
    if np.abs(mean - CHANNEL_MEAN).max() > 1e-6:
        raise ValueError(
            f"{path}: the training pixels have mean {mean.round(6).tolist()}; CIFAR-10's is "
            f"{np.round(CHANNEL_MEAN, 6).tolist()}. {_HOW_TO_GET}"
        )


def _check_order(path: Path, votes: IntArray, labels: IntArray, *, at_least: float) -> None:
    agreement = float(np.mean(votes == labels))
    if agreement < at_least:
        raise ValueError(
            f"{path} agrees with CIFAR-10's labels for {agreement:.1%} of the images; expected "
            f"{at_least:.0%} or more. Are its rows in the official order? {_HOW_TO_GET}"
        )
