"""Fitting a pair network that learns everything by itself: the residual MLP, or the user's own.

A share of the rows is held out. It decides when the training stops, and fits the recalibration.
`stacked_fitting.py` is the other way: from a logistic regression, with every row used.

Axes: inputs are `(n, ...)`, as the backbone wants them.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from secondguess.classification.defaults import NetworkSettings
from secondguess.classification.fit_warnings import warn_of_training
from secondguess.classification.fitting import (
    FitSettings,
    FittedModel,
    Rows,
    hold_out,
    train_network,
)
from secondguess.classification.heads import HeadName, PairModel, build_head
from secondguess.classification.inputs import num_features_of, take_rows
from secondguess.classification.predicting import joint_of
from secondguess.classification.recalibration import PairRecalibration, fit_recalibration
from secondguess.models.residual_mlp import ResidualMLP


def residual_backbone(
    num_inputs: int, network: NetworkSettings, generator: torch.Generator | None = None
) -> ResidualMLP:
    """The residual MLP of appendix F.1: hidden layers four times as wide as its stream.

    >>> from secondguess.classification.defaults import network_alone
    >>> residual_backbone(3, network_alone()).num_features
    512
    """
    return ResidualMLP(
        num_inputs,
        num_blocks=network.num_blocks,
        width=network.width,
        hidden_width=4 * network.width,
        generator=generator,
    )


def pair_network(
    backbone: nn.Module,
    num_features: int,
    num_classes: int,
    *,
    head: HeadName | None,
    num_components: int | None,
    generator: torch.Generator | None = None,
) -> PairModel:
    """A backbone that gives so many features, with a head on it (`mixture` by default).

    >>> model = pair_network(nn.Linear(3, 7), 7, 4, head=None, num_components=None)
    >>> model(torch.zeros(5, 3)).marginal.shape
    torch.Size([5, 4])
    """
    name = head or "mixture"
    return PairModel(
        backbone,
        build_head(name, num_features, num_classes, num_components, generator=generator),
    )


def fit_network(
    rows: Rows,
    settings: FitSettings,
    *,
    backbone: nn.Module | None = None,
    validation: Rows | None = None,
) -> FittedModel:
    """Train a network alone, and recalibrate it on the rows that were held out.

    Args:
        rows: inputs and their responses.
        settings: what to fit; with a `network`.
        backbone: a module from inputs to features, which is copied; None for the residual MLP.
        validation: rows to hold out, instead of a share of the others.
    """
    assert settings.network is not None
    if validation is None:
        rows, validation = hold_out(rows, settings.validation_fraction, seed=settings.seed)
    generator = torch.Generator().manual_seed(settings.seed)
    if backbone is None:
        body = residual_backbone(rows.inputs.shape[1], settings.network, generator)
        num_features = body.num_features
    else:
        body, num_features = (
            copy.deepcopy(backbone),
            num_features_of(backbone, take_rows(rows.inputs, slice(2))),
        )
    model = pair_network(
        body,
        num_features,
        rows.data.num_classes,
        head=settings.head,
        num_components=settings.num_components,
        generator=generator,
    )
    if backbone is not None:
        # What fits into memory with its gradients does so without them.
        model.rows_at_once = settings.network.batch_size
    history = train_network(model, rows, settings, validation=validation)
    warn_of_training(history)
    if validation is None:
        return FittedModel(model, history)
    joint = joint_of(model, validation.inputs).double()
    recalibration = PairRecalibration()
    if settings.recalibrate:
        recalibration = fit_recalibration(
            joint,
            validation.data,
            snapshot=settings.loss == "snapshot",
            weights=validation.weights,
        )
    return FittedModel(
        model,
        history,
        recalibration(joint).prediction(),
        validation.data,
        validation.groups,
        validation.weights,
        joint.prediction().variance,
        recalibration,
    )
