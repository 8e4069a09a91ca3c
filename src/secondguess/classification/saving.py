"""A fitted `PairClassifier` as a folder: `weights.safetensors`, `classifier.json`, a manifest."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sklearn.utils.validation import check_is_fitted
from torch import nn

from secondguess._files import check_manifest, replacing_folder, write_json
from secondguess.classification.fitting import default_backbone
from secondguess.classification.labels import as_classes
from secondguess.classification.recalibration import PairRecalibration
from secondguess.theory.calibration.families import ClassInflations
from secondguess.theory.calibration.inflation import VarianceInflation

if TYPE_CHECKING:
    from secondguess.classification.estimators import PairClassifier

ClassifierT = TypeVar("ClassifierT", bound="PairClassifier")

FORMAT = 1
WEIGHTS, DESCRIPTION = "weights.safetensors", "classifier.json"


def save_classifier(classifier: PairClassifier, directory: Path) -> None:
    """Write a fitted classifier; a save that is cut short leaves the earlier one as it was."""
    check_is_fitted(classifier)
    settings = classifier.get_params(deep=False)
    has_own_backbone = settings.pop("backbone") is not None
    for name in ("classes", "random_state", "checkpoint_dir"):
        settings.pop(name)
    inflations = getattr(classifier, "inflations_", None)
    description = {
        "format": FORMAT,
        "settings": settings,
        "own_backbone": has_own_backbone,
        "classes": _plain_labels(classifier.classes_),
        "num_inputs": classifier.n_features_in_,
        "num_features": classifier.model_.head.in_features,
        "feature_names": getattr(classifier, "feature_names_in_", np.array([])).tolist(),
        "recalibration": asdict(classifier.recalibration_),
        "inflations": None if inflations is None else [asdict(i) for i in inflations.inflations],
    }
    tensors = {f"model.{name}": value for name, value in classifier.model_.state_dict().items()}
    if not has_own_backbone:
        tensors["feature_mean"] = torch.from_numpy(classifier.feature_mean_)
        tensors["feature_scale"] = torch.from_numpy(classifier.feature_scale_)
    tensors = {name: value.contiguous().cpu() for name, value in tensors.items()}
    directory.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(directory) as unfinished:
        save_file(tensors, unfinished / WEIGHTS)
        write_json(unfinished / DESCRIPTION, description)


def load_classifier(
    cls: type[ClassifierT], directory: Path, backbone: nn.Module | None
) -> ClassifierT:
    """Read a classifier that `save_classifier` wrote."""
    description, tensors = _read(directory)
    if description["own_backbone"] != (backbone is not None):
        raise ValueError(
            f"{directory} was saved "
            + ("with a backbone of its own" if backbone is None else "with the default backbone")
            + "; expected load(directory, backbone=...) with a module of the same architecture "
            "exactly in that case."
        )
    classifier = cls(**description["settings"], backbone=backbone)
    classifier.classes_ = as_classes(description["classes"])
    classifier.n_features_in_ = description["num_inputs"]
    if description["feature_names"]:
        classifier.feature_names_in_ = np.array(description["feature_names"], dtype=object)
    if backbone is None:
        classifier.feature_mean_ = tensors.pop("feature_mean").numpy()
        classifier.feature_scale_ = tensors.pop("feature_scale").numpy()
    module = backbone or default_backbone(classifier.n_features_in_, classifier.width)
    model = classifier._assemble(copy.deepcopy(module), description["num_features"])
    if backbone is None:
        model.double()
    state = {name.removeprefix("model."): value for name, value in tensors.items()}
    try:
        model.load_state_dict(state)
    except (RuntimeError, KeyError) as error:
        raise ValueError(
            f"the weights in {directory} do not fit the backbone ({error}); expected a module of "
            f"the architecture that was saved."
        ) from None
    classifier.model_ = model.eval()
    classifier.recalibration_ = PairRecalibration(**description["recalibration"])
    if description["inflations"] is not None:
        classifier.inflations_ = ClassInflations(
            tuple(VarianceInflation(**fields) for fields in description["inflations"])
        )
    return classifier


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    for name in (DESCRIPTION, WEIGHTS):
        if not (directory / name).exists():
            raise FileNotFoundError(
                f"{directory / name} does not exist; expected a directory that "
                f"PairClassifier.save wrote."
            )
    check_manifest(directory)
    try:
        description = json.loads((directory / DESCRIPTION).read_text())
        tensors = load_file(directory / WEIGHTS)
    except (json.JSONDecodeError, SafetensorError) as error:
        raise ValueError(
            f"{directory} holds a damaged classifier ({error}); save it again, or fit again."
        ) from None
    if description.get("format") != FORMAT:
        raise ValueError(
            f"{directory / DESCRIPTION} has format {description.get('format')!r}; this version "
            f"reads format {FORMAT}."
        )
    return description, tensors


def _plain_labels(classes: NDArray[Any]) -> list[Any]:
    labels = classes.tolist()
    bad = [label for label in labels if not isinstance(label, str | int | float | bool)]
    if bad:
        raise ValueError(
            f"the class {bad[0]!r} cannot be written to JSON; fit with strings or numbers as "
            f"labels to save the classifier."
        )
    return labels
