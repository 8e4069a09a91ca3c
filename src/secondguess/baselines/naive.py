"""The naive network: cross-entropy, and all of p(1 - p) taken for ignorance (appendix F.2.2).

It would be right if every response were a function of its input.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from secondguess.classification.batches import PairBatch
from secondguess.classification.losses import response_loss
from secondguess.theory.records import Prediction


def class_log_probs(logits: Tensor) -> Tensor:
    """Log-probabilities `(..., num_classes)` from logits, or from one log-odds of class 1.

    >>> class_log_probs(torch.tensor([[0.0]])).exp()
    tensor([[0.5000, 0.5000]])
    """
    if logits.shape[-1] == 1:
        return torch.cat([logsigmoid(-logits), logsigmoid(logits)], dim=-1)
    return logits.log_softmax(dim=-1)


def loss(model: Callable[[Tensor], Tensor], batch: PairBatch) -> Tensor:
    """Mean of -log p(y|x) over both responses of each row.

    >>> batch = PairBatch(torch.zeros(3, 1), torch.tensor([0, 1, 1]), torch.tensor([1, 1, 0]))
    >>> loss(torch.nn.Identity(), batch)
    tensor(0.6931)
    """
    assert isinstance(batch.inputs, Tensor)  # rivals take no other kind
    return response_loss(class_log_probs(model(batch.inputs)), batch)


@torch.no_grad()
def predict(model: Callable[[Tensor], Tensor], inputs: Tensor) -> Prediction:
    """Probabilities p, with variance p(1 - p).

    >>> predict(torch.nn.Identity(), torch.zeros(1, 2)).variance
    array([[0.25, 0.25]])
    """
    probs = class_log_probs(model(inputs).double()).exp().cpu().numpy()
    return Prediction(probs, probs * (1 - probs))
