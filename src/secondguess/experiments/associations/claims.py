"""What the experiment is to show, decided on the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping

from secondguess.experiments.associations.evaluation import NAIVE, OURS, PROMPTED
from secondguess.experiments.runner import Claim, PartResult


def association_claims(done: Mapping[str, PartResult]) -> list[Claim]:
    """ECE-2 against the grouping error, and against rivals that have seen no second answer."""
    methods = done["scores"].metrics["methods"]
    few = done["scores"].metrics["prompted"]
    ours = methods[OURS]
    return [
        Claim.at_most(
            f"{OURS}: ECE-2, as a share of the grouping error",
            ours["share_of_grouping_error"],
            0.25,
        ),
        Claim.at_most(
            f"{OURS}: ECE-2, as a share of that of {NAIVE}",
            ours["second_order_ece"] / methods[NAIVE]["second_order_ece"],
            1 / 3,
        ),
        Claim.at_most(
            f"{OURS}: ECE-2, as a share of that of {PROMPTED}",
            few[OURS]["second_order_ece"] / few[PROMPTED]["second_order_ece"],
            1 / 3,
        ),
        Claim.at_most(
            f"{OURS}: distance of the mean variance from the grouping error, as a share of it",
            abs(ours["mean_variance"] / ours["grouping_error"] - 1),
            0.15,
        ),
    ]
