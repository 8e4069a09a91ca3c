"""Joints of many rows, a bounded number at a time: the only place where rows are cut into chunks.

The tables of a joint are the largest thing that a pair model makes: 20,000 rows of 100 classes are
1.6 GB. Whatever is a number per row and class, or a mean over rows, is therefore computed from
`joints_of`; `joint_of` is for those who want the joints themselves.

Axes: rows (n), then those of the inputs, or classes (K).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import nn

from secondguess._arrays import FloatArray
from secondguess.classification.heads import PairModel
from secondguess.classification.inputs import Inputs, num_rows_of, take_rows
from secondguess.classification.joint import PairJoint
from secondguess.classification.losses import all_pairs_log_prob, annotations_loss
from secondguess.classification.pairs import PairData

VALUES_AT_ONCE = 2**21
"""Numbers that a head makes together, at most: 16 MB in float64, and several such on the way."""


@torch.no_grad()
def joint_of(model: PairModel, inputs: Inputs) -> PairJoint:
    """The joints of all rows in one, the backbone taking `rows_at_once`.

    >>> from secondguess.classification.heads import BinaryPairHead
    >>> model = PairModel(nn.Linear(3, 7), BinaryPairHead(7))
    >>> joint_of(model, torch.zeros(5000, 3)).marginal.shape
    torch.Size([5000, 2])
    """
    features = [
        model.features(take_rows(inputs, slice(start, start + model.rows_at_once)))
        for start in range(0, num_rows_of(inputs), model.rows_at_once)
    ]
    return model.head(torch.cat(features))


def joints_of(
    model: PairModel, inputs: Inputs, *, values_per_row: int = 0
) -> Iterator[tuple[slice, PairJoint]]:
    """The joints of all rows, some at a time, each with the rows it is of.

    >>> from secondguess.classification.heads import SymmetricPairHead
    >>> model = PairModel(nn.Linear(3, 7), SymmetricPairHead(7, num_classes=100))
    >>> [rows for rows, _ in joints_of(model, torch.zeros(400, 3))]
    [slice(0, 209, None), slice(209, 400, None)]

    Args:
        model: the network.
        inputs: `(n, ...)`.
        values_per_row: how many numbers the caller makes of each row, where that is more than the
            head does.
    """
    layers = [layer for layer in model.head.children() if isinstance(layer, nn.Linear)]
    values = max(values_per_row, *(layer.out_features for layer in layers))
    step = max(1, min(model.rows_at_once, VALUES_AT_ONCE // values))
    num_rows = num_rows_of(inputs)
    for start in range(0, num_rows, step):
        rows = slice(start, min(start + step, num_rows))
        yield rows, joint_of(model, take_rows(inputs, rows))


def read_joints(
    joints: Iterable[tuple[slice, PairJoint]],
    num_rows: int,
    read: Callable[[PairJoint], FloatArray],
) -> FloatArray:
    """What `read` finds in the joints of all rows, put together.

    >>> from secondguess.classification.heads import BinaryPairHead
    >>> model = PairModel(nn.Linear(3, 7), BinaryPairHead(7))
    >>> joints = joints_of(model, torch.zeros(5, 3))
    >>> read_joints(joints, 5, lambda joint: joint.prediction().variance).shape
    (5, 2)

    Args:
        joints: of some rows at a time, each with the rows it is of.
        num_rows: of all joints.
        read: from the joint of m rows to an array `(m, ...)` in float64.
    """
    found: FloatArray | None = None
    for rows, joint in joints:
        part = read(joint)
        if found is None:
            # Made once: small arrays kept between large ones would leave holes in the memory that
            # no later table fits in.
            found = np.empty((num_rows, *part.shape[1:]))
        found[rows] = part
    if found is None:
        raise ValueError("inputs has no rows; expected at least one.")
    return found


@torch.no_grad()
def row_log_probs(joint: PairJoint, data: PairData) -> FloatArray:
    """`all_pairs_log_prob` of predicted joints on the responses to the same inputs, `(n,)`.

    >>> from secondguess.classification.table_joint import TableJoint
    >>> joint = TableJoint(torch.full((1, 2, 2), 1 / 4).double().log())
    >>> row_log_probs(joint, PairData.from_responses([[0, 1]])).round(4)
    array([-1.3863])
    """
    device = joint.log_marginal.device
    labels = torch.from_numpy(data.labels).to(device)
    multiplicity = torch.from_numpy(data.multiplicity).to(device)
    return all_pairs_log_prob(joint, labels, multiplicity).double().cpu().numpy()


def held_out_loss(
    joint: PairJoint,
    data: PairData,
    *,
    snapshot: bool = False,
    weights: FloatArray | None = None,
) -> float:
    """`annotations_loss` of predicted joints on the responses to the same inputs.

    Weights `(n,)` of the rows, where there are any, are to be 1 on average over all rows.

    >>> from secondguess.classification.table_joint import TableJoint
    >>> joint = TableJoint(torch.full((1, 2, 2), 1 / 4).log())
    >>> round(held_out_loss(joint, PairData.from_responses([[0, 1]])), 4)
    1.3863
    """
    device = joint.log_marginal.device
    labels = torch.from_numpy(data.labels).to(device)
    multiplicity = torch.from_numpy(data.multiplicity).to(device)
    scaled = None if weights is None else torch.from_numpy(weights).to(device)
    loss = annotations_loss(joint, labels, multiplicity, snapshot=snapshot, weights=scaled)
    return loss.item()


def mean_loss(
    model: PairModel,
    inputs: Inputs,
    data: PairData,
    *,
    snapshot: bool = False,
    weights: FloatArray | None = None,
) -> float:
    """`held_out_loss` of the model's joints for these inputs, which never exist all at once.

    >>> from secondguess.classification.heads import BinaryPairHead
    >>> model = PairModel(nn.Linear(3, 7), BinaryPairHead(7))
    >>> data = PairData.from_responses([[0, 1], [1, 1]])
    >>> inputs = torch.ones(2, 3)
    >>> mean_loss(model, inputs, data) == held_out_loss(joint_of(model, inputs), data)
    True

    Args:
        model: the network.
        inputs: as the backbone wants them.
        data: their responses.
        snapshot: see `annotations_loss`.
        weights: `(n,)`, of the rows; equal by default.
    """
    if weights is not None:
        weights = weights / weights.mean()
    # A pair of places is looked up in every component of a mixture.
    places = data.labels.shape[1] ** 2 * getattr(model.head, "num_components", 1)
    # The loss of all annotations is one per annotation, that of pairs one per row.
    sizes = data.num_annotations if snapshot else np.ones(len(data))
    return sum(
        float(sizes[rows].sum() / sizes.sum())
        * held_out_loss(
            joint,
            data[rows],
            snapshot=snapshot,
            weights=None if weights is None else weights[rows],
        )
        for rows, joint in joints_of(model, inputs, values_per_row=places)
    )
