"""From the mixtures that a head makes to the distribution over p(.|x) that users get.

Axes: rows (n), components (R), classes (K).
"""

from __future__ import annotations

from secondguess.classification.joint import PairJoint
from secondguess.classification.mixture_joint import MixtureJoint
from secondguess.theory.distribution import PredictedDistribution


def predicted_distribution(joint: PairJoint) -> PredictedDistribution:
    """The candidates of a mixture and their weights.

    >>> import torch
    >>> components = torch.tensor([[[0.9, 0.1], [0.1, 0.9]]]).log()
    >>> joint = MixtureJoint(torch.tensor([[0.5, 0.5]]).log(), components)
    >>> predicted_distribution(joint).entropy().epistemic.round(3)
    array([0.368])

    Raises:
        ValueError: the joint is no mixture, and knows two moments only.
    """
    if not isinstance(joint, MixtureJoint):
        raise ValueError(
            f"a {type(joint).__name__} has two moments of p(y|x); expected head='mixture', whose "
            f"components are a distribution over it."
        )
    weights, components = joint.double().distribution()
    return PredictedDistribution(weights.cpu().numpy(), components.cpu().numpy())
