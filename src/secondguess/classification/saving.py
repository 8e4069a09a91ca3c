"""What a fitted `PairClassifier` is on disk: `weights.safetensors`, `classifier.json`, a manifest.

`SavedClassifier` is the record in between. It knows the files and nothing of the estimator, which
makes the record in `save` and builds itself from it in `load`. The folder is replaced as a whole,
so that a save that is cut short leaves the earlier one as it was, and weights are never read with
the description of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from secondguess._files import (
    check_manifest,
    read_document,
    read_record,
    replacing_folder,
    write_document,
)
from secondguess.classification.heads import HeadName
from secondguess.classification.labels import as_classes
from secondguess.classification.recalibration import PairRecalibration
from secondguess.classification.variance_map import VarianceMap
from secondguess.theory.calibration.families import ClassInflations
from secondguess.theory.calibration.fitted_intervals import FittedIntervals
from secondguess.theory.calibration.inflation import VarianceInflation
from secondguess.training.checkpoints import told_as_os_error

KIND, FORMAT = "secondguess classifier", 3
MODEL = "model."
"""What the names of the network's tensors begin with."""

WEIGHTS, DESCRIPTION = "weights.safetensors", "classifier.json"


@dataclass(frozen=True, kw_only=True)
class SavedClassifier:
    """A fitted classifier as plain values and tensors.

    Attributes:
        settings: arguments of the estimator, those that JSON can hold.
        own_backbone: whether the backbone was the user's own, who must bring it again.
        classes: `(K,)` labels.
        num_inputs: features of X.
        num_features: features that the backbone hands to the head.
        head: name of the head.
        network: width and blocks of a network beside the regression, or None.
        feature_names: names of the columns of X, or none.
        recalibration: what is done to the joints.
        variance_map: what is then done to their variances.
        inflations: of `calibrate` by pairs, where it was called.
        intervals: of `calibrate` by counts, where it was called.
        conditions: what their guarantee rests on.
        tensors: the weights, and the standardisation of the default backbone.
    """

    settings: dict[str, Any]
    own_backbone: bool
    classes: NDArray[Any]
    num_inputs: int
    num_features: int
    head: HeadName
    network: tuple[int, int] | None
    feature_names: Sequence[str]
    recalibration: PairRecalibration
    variance_map: VarianceMap
    inflations: ClassInflations | None
    intervals: FittedIntervals | None
    conditions: Sequence[str]
    tensors: dict[str, Tensor]

    def write(self, directory: Path) -> None:
        """Write the folder; an earlier classifier in it is replaced at once, or stays as it was."""
        inflations = self.inflations
        description = {
            "settings": self.settings,
            "own_backbone": self.own_backbone,
            "classes": _plain_labels(self.classes),
            "num_inputs": self.num_inputs,
            "num_features": self.num_features,
            "head": self.head,
            "network": self.network,
            "feature_names": list(self.feature_names),
            "recalibration": asdict(self.recalibration),
            "variance_map": asdict(self.variance_map),
            "inflations": None
            if inflations is None
            else [asdict(inflation) for inflation in inflations.inflations],
            "intervals": self.intervals and self.intervals.to_plain(),
            "conditions": list(self.conditions),
        }
        tensors = {name: value.contiguous().cpu() for name, value in self.tensors.items()}
        directory.parent.mkdir(parents=True, exist_ok=True)
        with replacing_folder(directory) as folder:
            with told_as_os_error():
                save_file(tensors, folder / WEIGHTS)
            write_document(folder / DESCRIPTION, KIND, FORMAT, description)

    @classmethod
    def read(cls, directory: Path, *, own_backbone: bool) -> SavedClassifier:
        """Read what `write` wrote, if it was saved with (or without) a backbone of its own."""
        description, tensors = _read(directory)
        if description.get("own_backbone") != own_backbone:
            owner = "the default backbone" if own_backbone else "a backbone of its own"
            raise ValueError(
                f"{directory} was saved with {owner}; expected load(directory, backbone=...) with "
                f"a module of the same architecture exactly where it had one of its own."
            )
        try:
            return cls._from_description(description, tensors)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"{directory / DESCRIPTION} is damaged ({error}); save it again, or fit again."
            ) from None

    @classmethod
    def _from_description(
        cls, description: dict[str, Any], tensors: dict[str, Tensor]
    ) -> SavedClassifier:
        inflations = description["inflations"]
        return cls(
            settings=description["settings"],
            own_backbone=description["own_backbone"],
            classes=as_classes(description["classes"]),
            num_inputs=description["num_inputs"],
            num_features=description["num_features"],
            head=description["head"],
            network=description["network"] and tuple(description["network"]),
            feature_names=description["feature_names"],
            recalibration=read_record(PairRecalibration, description["recalibration"]),
            variance_map=VarianceMap.from_plain(description["variance_map"]),
            inflations=None
            if inflations is None
            else ClassInflations(
                tuple(read_record(VarianceInflation, each) for each in inflations)
            ),
            intervals=description["intervals"]
            and FittedIntervals.from_plain(description["intervals"]),
            conditions=description["conditions"],
            tensors=tensors,
        )

    def calibration(self) -> dict[str, Any]:
        """The attributes that `calibrate` gave the classifier, where it was called."""
        found = {
            "inflations_": self.inflations,
            "intervals_": self.intervals,
            "calibration_conditions_": tuple(self.conditions) or None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def fill(self, model: nn.Module) -> None:
        """Put the saved weights into a network."""
        weights = {
            name.removeprefix(MODEL): value
            for name, value in self.tensors.items()
            if name.startswith(MODEL)
        }
        try:
            model.load_state_dict(weights)
        except (RuntimeError, KeyError) as error:
            raise ValueError(
                f"the saved weights do not fit the backbone ({error}); expected a module of the "
                f"architecture that was saved."
            ) from None


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    missing = {DESCRIPTION, WEIGHTS} - check_manifest(directory).keys()
    if missing:
        raise FileNotFoundError(
            f"{directory / min(missing)} does not exist; expected a directory that "
            f"PairClassifier.save wrote."
        )
    try:
        tensors = load_file(directory / WEIGHTS)
    except SafetensorError as error:
        raise ValueError(
            f"{directory} holds a damaged classifier ({error}); save it again, or fit again."
        ) from None
    what = "the description of a classifier"
    return read_document(directory / DESCRIPTION, KIND, FORMAT, what=what), tensors


def _plain_labels(classes: NDArray[Any]) -> list[Any]:
    labels = classes.tolist()
    bad = [label for label in labels if not isinstance(label, str | int | float | bool)]
    if bad:
        raise ValueError(
            f"the class {bad[0]!r} cannot be written to JSON; fit with strings or numbers as "
            f"labels to save the classifier."
        )
    return labels
