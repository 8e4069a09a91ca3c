"""Losses of pair models: functions of a `PairJoint` and the responses, each a mean over the rows.

All are proper: the true joint of a pair given what the model sees minimises them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from secondguess.classification.batches import AnnotationBatch, PairBatch
from secondguess.classification.joint import PairJoint
from secondguess.classification.mixture_joint import MixtureJoint
from secondguess.classification.table_joint import TableJoint

EIGENVALUE_WEIGHT = 10.0
"""Weight of the negative-eigenvalue penalty in the paper's CIFAR-10H experiments."""


def pair_loss(joint: PairJoint, y1: Tensor, y2: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean of -log p(y1,y2|x) over one pair per row (section 3).

    >>> joint = TableJoint(torch.full((2, 3, 3), 1 / 9).log())
    >>> pair_loss(joint, torch.tensor([0, 1]), torch.tensor([2, 1]))
    tensor(2.1972)

    Args:
        joint: n joints.
        y1: first responses, `(n,)` class indices.
        y2: second responses, `(n,)`.
        weights: of the rows, `(n,)`, 1 on average; equal by default.
    """
    return -_mean(joint.log_prob(y1, y2), weights)


def all_pairs_log_prob(joint: PairJoint, labels: Tensor, multiplicity: Tensor) -> Tensor:
    """Mean of log p(y1,y2|x) over all ordered pairs of different annotations of each row, `(n,)`.

    A row with a single response has no pair; it gives log p(y|x), and so trains the marginal.

    >>> joint = TableJoint(torch.tensor([[[0.4, 0.1], [0.1, 0.4]]]).log())
    >>> all_pairs_log_prob(joint, torch.tensor([[0, 1]]), torch.tensor([[2, 0]])).exp()
    tensor([0.4000])

    Args:
        joint: n joints.
        labels: `(n, d)` class indices.
        multiplicity: `(n, d)`, how many annotations have each label, as in `PairData`.
    """
    y1, y2 = labels.unsqueeze(2), labels.unsqueeze(1)
    shape = (*labels.shape, labels.shape[1])
    log_prob = joint.log_prob(y1.expand(shape), y2.expand(shape))
    # An annotation makes no pair with itself: m_i m_j pairs of two places, m_i (m_i - 1) of one.
    weights = multiplicity.unsqueeze(2) * (multiplicity.unsqueeze(1) - _eye_like(multiplicity))
    total = multiplicity.sum(1)
    log_prob = torch.where(weights > 0, log_prob, 0.0)  # unused places may be impossible pairs
    pairs = (weights * log_prob).sum((1, 2)) / (total * (total - 1)).clamp_min(1)
    if (total > 1).all():
        return pairs
    single = torch.where(multiplicity > 0, joint.log_marginal.gather(1, labels), 0.0).sum(1)
    return torch.where(total > 1, pairs, single)


def all_pairs_loss(
    joint: PairJoint, labels: Tensor, multiplicity: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The exact mean of `pair_loss` over the draw of the pair: same expectation, less noise.

    >>> joint = TableJoint(torch.full((1, 3, 3), 1 / 9).log())
    >>> all_pairs_loss(joint, torch.tensor([[0, 1, 2]]), torch.tensor([[2, 1, 0]]))
    tensor(2.1972)

    Args:
        joint: n joints.
        labels: `(n, d)` class indices.
        multiplicity: `(n, d)`, how many annotations have each label, as in `PairData`.
        weights: of the rows, `(n,)`, 1 on average; equal by default.
    """
    return -_mean(all_pairs_log_prob(joint, labels, multiplicity), weights)


def snapshot_loss(
    joint: MixtureJoint, labels: Tensor, multiplicity: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Minus the log-probability of all annotations of every row, per annotation.

    Where pairs train two moments of p(y|x), this trains as many as a row has annotations (Ahdritz
    et al., ICLR 2025). Only a mixture has a probability for more than two responses.

    >>> components = torch.tensor([[[0.9, 0.1], [0.1, 0.9]]]).log()
    >>> joint = MixtureJoint(torch.tensor([[0.5, 0.5]]).log(), components)
    >>> snapshot_loss(joint, torch.tensor([[0, 1]]), torch.tensor([[3, 0]]))
    tensor(0.3360)

    Args:
        joint: n mixtures.
        labels: `(n, d)` class indices.
        multiplicity: `(n, d)`, how many annotations have each label, as in `PairData`.
        weights: of the rows, `(n,)`, 1 on average; equal by default.
    """
    log_probs = joint.log_prob_of_all(labels, multiplicity)
    return -_mean(log_probs, weights) * len(labels) / multiplicity.sum()


def annotations_loss(
    joint: PairJoint,
    labels: Tensor,
    multiplicity: Tensor,
    *,
    snapshot: bool,
    weights: Tensor | None = None,
) -> Tensor:
    """`snapshot_loss`, or `all_pairs_loss`.

    >>> joint = TableJoint(torch.full((1, 3, 3), 1 / 9).log())
    >>> rows = torch.tensor([[0, 1, 2]]), torch.tensor([[2, 1, 0]])
    >>> annotations_loss(joint, *rows, snapshot=False)
    tensor(2.1972)
    """
    if not snapshot:
        return all_pairs_loss(joint, labels, multiplicity, weights)
    if not isinstance(joint, MixtureJoint):
        raise ValueError(
            f"loss='snapshot' came with a {type(joint).__name__}; expected a mixture head, "
            f"which alone has a probability for more than two responses."
        )
    return snapshot_loss(joint, labels, multiplicity, weights)


def negative_eigenvalue_penalty(joint: TableJoint) -> Tensor:
    """Mean over the rows of `sum_i max(0, -lambda_i)^2`, lambda the eigenvalues of the table.

    A calibrated joint is positive semidefinite, so the penalty does not move the optimum. (The
    appendix prints `max(0, lambda_i)`; its prose penalises negative eigenvalues, and so does this.)
    The paper multiplies it by `EIGENVALUE_WEIGHT`.

    >>> never_twice = TableJoint(torch.tensor([[[0.0, 0.5], [0.5, 0.0]]]).log())
    >>> negative_eigenvalue_penalty(never_twice)  # eigenvalues 1/2 and -1/2
    tensor(0.2500)
    """
    eigenvalues = torch.linalg.eigvalsh(joint.log_table.exp())
    return eigenvalues.clamp_max(0).square().sum(-1).mean()


def pair_model_loss(
    model: nn.Module,
    batch: PairBatch | AnnotationBatch,
    *,
    eigenvalue_weight: float = EIGENVALUE_WEIGHT,
    marginal_weight: float = 0.0,
    snapshot: bool = False,
) -> Tensor:
    """The loss of a pair model on a batch of either kind, penalty included where there is one.

    The first guess p(y1|x) can be given weight of its own: `marginal_weight` times the mean of
    -log p(y|x) over the responses is added. The true joint minimises both terms, so the optimum
    stays where it was; a network that cannot learn all of a large joint learns its marginal first.

    >>> from secondguess.classification.heads import PairModel, SymmetricPairHead
    >>> model = PairModel(nn.Identity(), SymmetricPairHead(in_features=2, num_classes=3))
    >>> batch = PairBatch(torch.zeros(4, 2), torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 1]))
    >>> pair_model_loss(model, batch).shape
    torch.Size([])

    Args:
        model: from inputs to a `PairJoint`.
        batch: one pair per row, or all annotations of each row.
        eigenvalue_weight: of the negative-eigenvalue penalty; used by table joints only.
        marginal_weight: of the first guess.
        snapshot: whether to learn from all annotations at once (`snapshot_loss`), not from pairs;
            for batches of all annotations.
    """
    joint: PairJoint = model(batch.inputs)
    if isinstance(batch, PairBatch):
        loss = pair_loss(joint, batch.y1, batch.y2, batch.weights)
    else:
        loss = annotations_loss(
            joint, batch.labels, batch.multiplicity, snapshot=snapshot, weights=batch.weights
        )
    if marginal_weight > 0:
        loss = loss + marginal_weight * response_loss(joint.log_marginal, batch)
    if isinstance(joint, TableJoint) and eigenvalue_weight > 0:
        loss = loss + eigenvalue_weight * negative_eigenvalue_penalty(joint)
    return loss


def response_loss(log_probs: Tensor, batch: PairBatch | AnnotationBatch) -> Tensor:
    """The mean over the rows of the mean of -log p(y|x) over a row's responses, each on its own.

    >>> log_probs = torch.tensor([[0.5, 0.25, 0.25]]).log()
    >>> batch = PairBatch(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([0]))
    >>> response_loss(log_probs, batch)
    tensor(0.6931)

    Args:
        log_probs: log p(y|x), `(n, num_classes)`.
        batch: one pair per row, or all annotations of each row.
    """
    if isinstance(batch, PairBatch):
        both = log_probs.gather(1, torch.stack([batch.y1, batch.y2], dim=1)).mean(dim=1)
        return -_mean(both, batch.weights)
    shares = batch.multiplicity / batch.multiplicity.sum(dim=1, keepdim=True)
    # A class of zero probability that nobody chose is 0 * -inf, which must count as nothing.
    chosen = log_probs.gather(1, batch.labels).masked_fill(shares == 0, 0.0)
    return -_mean((shares * chosen).sum(dim=1), batch.weights)


def _mean(values: Tensor, weights: Tensor | None) -> Tensor:
    return values.mean() if weights is None else (values * weights.to(values)).mean()


def _eye_like(multiplicity: Tensor) -> Tensor:
    size = multiplicity.shape[1]
    return torch.eye(size, dtype=multiplicity.dtype, device=multiplicity.device)
