"""The ensemble: several naive networks, and the variance between them (appendix F.2.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from secondguess.baselines import naive
from secondguess.classification.batches import PairBatch
from secondguess.theory.records import Prediction
from secondguess.training.ensembles import MemberStack, ensemble_loss


def loss(model: MemberStack, batch: PairBatch) -> Tensor:
    """The naive loss of each member on its own batch, summed (see `ensemble_loss`).

    >>> stack = MemberStack([torch.nn.Linear(1, 1) for _ in range(8)])
    >>> responses = torch.ones(32, 8, dtype=torch.int64)
    >>> loss(stack, PairBatch(torch.zeros(32, 8, 1), responses, responses)).shape
    torch.Size([])
    """
    return ensemble_loss(naive.loss)(model, batch)


def member_batches(
    sources: Sequence[Callable[[int], PairBatch]],
) -> Callable[[int], PairBatch]:
    """A batch for each member from its own source, the member axis behind the batch axis.

    >>> source = lambda step: PairBatch(torch.zeros(32, 1), torch.zeros(32), torch.zeros(32))
    >>> member_batches([source] * 8)(0).inputs.shape
    torch.Size([32, 8, 1])
    """

    def batch_at(step: int) -> PairBatch:
        batches = [source(step) for source in sources]
        parts = zip(*((batch.inputs, batch.y1, batch.y2) for batch in batches), strict=True)
        return PairBatch(*(torch.stack(part, dim=1) for part in parts))

    return batch_at


@torch.no_grad()
def predict(model: MemberStack, inputs: Tensor) -> Prediction:
    """The mean of the members' probabilities, and their variance with n - 1.

    The paper's formula lacks the member index: the sum is over members. Dividing by one less than
    their number makes it unbiased for the variance of an infinite ensemble.

    >>> stack = MemberStack([torch.nn.Linear(1, 1) for _ in range(8)])
    >>> predict(stack, torch.zeros(5, 1)).probs.shape
    (5, 2)
    """
    if model.num_members < 2:
        raise ValueError("the ensemble has 1 member; expected 2 or more, to have a variance.")
    probs = naive.class_log_probs(model(inputs).double()).exp()
    return Prediction(probs.mean(dim=0).cpu().numpy(), probs.var(dim=0).cpu().numpy())
