"""A fitted `PairClassifier` to and from the record that is written to disk.

`saving.py` knows the files and nothing of the estimator; here is what of an estimator goes into
them, and how one is built again.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from secondguess.classification.defaults import NetworkSettings
from secondguess.classification.heads import head_name
from secondguess.classification.inputs import Standardisation
from secondguess.classification.network_fitting import pair_network, residual_backbone
from secondguess.classification.saving import MODEL, SavedClassifier
from secondguess.classification.stacking import empty_stacked_model, network_size
from secondguess.training.devices import device_of

_NOT_SAVED = ("classes", "class_weight", "random_state", "checkpoint_dir", "device")
"""Settings about a fit or a machine, and those by label, which are saved as those of the fit."""
_CLASS_WEIGHT = "class_weight"


def saved_classifier(classifier: Any) -> SavedClassifier:
    """What is kept of a fitted classifier (a `PairClassifier`, which imports this module)."""
    settings = classifier.get_params(deep=False)
    own = isinstance(classifier.backbone, nn.Module)
    for name in (*_NOT_SAVED, *(["backbone"] if own else [])):
        settings.pop(name)
    if isinstance(classifier.class_weight, str):
        settings["class_weight"] = classifier.class_weight
    model = classifier.model_
    tensors = {MODEL + name: value for name, value in model.state_dict().items()}
    if not own:
        tensors |= classifier.standardisation_.tensors()
    if classifier.class_weight_ is not None:
        tensors[_CLASS_WEIGHT] = torch.from_numpy(classifier.class_weight_)
    return SavedClassifier(
        settings=settings,
        own_backbone=own,
        classes=classifier.classes_,
        num_inputs=getattr(classifier, "n_features_in_", 0),
        num_features=model.head.in_features,
        head=head_name(model.head),
        network=network_size(model),
        feature_names=getattr(classifier, "feature_names_in_", np.array([])).tolist(),
        recalibration=classifier.recalibration_,
        variance_map=classifier.variance_map_,
        inflations=getattr(classifier, "inflations_", None),
        intervals=getattr(classifier, "intervals_", None),
        conditions=getattr(classifier, "calibration_conditions_", ()),
        tensors=tensors,
    )


def restore(classifier: Any, saved: SavedClassifier, network: NetworkSettings) -> None:
    """Give an unfitted classifier what was saved.

    Args:
        classifier: with the settings that were saved.
        saved: what was saved.
        network: size of the classifier's network.
    """
    num_classes, num_components = len(saved.classes), classifier.num_components
    if classifier.backbone in ("auto", "linear"):
        model = empty_stacked_model(
            saved.num_inputs, num_classes, saved.head, num_components, saved.network
        )
    else:
        body = copy.deepcopy(classifier.backbone) if saved.own_backbone else None
        model = pair_network(
            body or residual_backbone(saved.num_inputs, network),
            saved.num_features,
            num_classes,
            head=saved.head,
            num_components=num_components,
        )
    if saved.own_backbone:
        model.rows_at_once = network.batch_size
        model.to(device_of(classifier.device))
    else:
        model.double()
        classifier.standardisation_ = Standardisation.from_tensors(saved.tensors)
    saved.fill(model)
    classifier.model_ = model.eval()
    classifier.classes_ = saved.classes
    weights = saved.tensors.get(_CLASS_WEIGHT)
    classifier.class_weight_ = None if weights is None else weights.numpy()
    if weights is not None and classifier.class_weight is None:  # a mapping, by label
        classifier.class_weight = dict(zip(saved.classes.tolist(), weights.tolist(), strict=True))
    if saved.num_inputs:
        classifier.n_features_in_ = saved.num_inputs
    if saved.feature_names:
        classifier.feature_names_in_ = np.array(saved.feature_names, dtype=object)
    classifier.recalibration_ = saved.recalibration
    classifier.variance_map_ = saved.variance_map
    vars(classifier).update(saved.calibration())
