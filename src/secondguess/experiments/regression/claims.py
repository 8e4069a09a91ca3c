"""What section 4.2 claims, decided on the parts of a run.

Calibration is compared by ECE-2 over the grouping error: the share of its error that a method
misjudges. ECE-2 alone rewards a small error as much as a known one. Rivals are all methods with all
settings that the run has, so also the one that each would choose by its own evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secondguess.experiments.runner import Claim, PartResult

_OURS = "cheat_corrected"
_CLOSE = 0.1


def regression_claims(parts: Mapping[str, PartResult]) -> list[Claim]:
    """The claims that the parts at hand decide."""
    claims: list[Claim] = []
    rivals = rival_metrics(parts)
    if _OURS in parts:
        ours = parts[_OURS].metrics
        if rivals:
            claims += _calibration_claims(ours, rivals)
        claims.append(_mean_variance_claim("its mean variance", ours))
    if "recalibration" in parts:
        found = parts["recalibration"].metrics
        size = max(found, key=int)
        words = f"its mean variance, recalibrated on {int(size):,} fresh pairs,"
        claims.append(_mean_variance_claim(words, found[size]))
    if "ensemble" in parts:
        metrics = parts["ensemble"].metrics
        ratio = metrics["mean_variance"] / metrics["grouping_error"]
        claims.append(
            Claim.at_most(
                "the ensemble's variance is below half of its squared error",
                ratio,
                0.5,
                "ensembles report low uncertainty where they are wrong",
            )
        )
    if "intervals" in parts:
        claims += _interval_claims(parts["intervals"])
    return claims


def rival_metrics(parts: Mapping[str, PartResult]) -> dict[str, Mapping[str, Any]]:
    """The metrics of all methods and settings but pair networks, the naive network among them.

    >>> found = rival_metrics({"ensemble": PartResult({"naive": {}, "second_order_ece": 0.1})})
    >>> list(found)
    ['ensemble', 'naive']
    """
    rivals: dict[str, Mapping[str, Any]] = {
        name: part.metrics
        for name, part in parts.items()
        if not name.startswith(_OURS) and "second_order_ece" in part.metrics
    }
    if "naive" in rivals.get("ensemble", {}):
        rivals["naive"] = rivals["ensemble"]["naive"]
    return rivals


def relative_ece(metrics: Mapping[str, Any], key: str = "second_order_ece") -> float:
    """ECE-2 over the grouping error.

    >>> relative_ece({"second_order_ece": 0.01, "grouping_error": 0.04})
    0.25
    """
    return metrics[key] / metrics["grouping_error"]


def _calibration_claims(
    ours: Mapping[str, Any], rivals: Mapping[str, Mapping[str, Any]]
) -> list[Claim]:
    claims = []
    for bins, key in (
        ("100 bins", "second_order_ece"),
        ("20 bins, as in the paper's diagrams", "second_order_ece_20_bins"),
    ):
        next_best = min(relative_ece(rival, key) for rival in rivals.values())
        for statement, share in (
            ("is the lowest, of all methods and settings", 1.0),
            ("is at most half of the next best", 0.5),
        ):
            claims.append(
                Claim.at_most(
                    f"ECE-2 over the grouping error of the cheat-corrected network {statement} "
                    f"({bins})",
                    relative_ece(ours, key),
                    share * next_best,
                    "the best second-order calibration, in a reliability diagram",
                )
            )
    ece = ours["second_order_ece"]
    lower = [rival for rival in rivals.values() if rival["second_order_ece"] < ece]
    claims.append(
        Claim.at_most(
            "what has a lower ECE-2 than the cheat-corrected network is less wrong: the largest "
            "such grouping error over its own",
            max((rival["grouping_error"] / ours["grouping_error"] for rival in lower), default=0.0),
            1.0,
        )
    )
    return claims


def _mean_variance_claim(words: str, metrics: Mapping[str, Any]) -> Claim:
    return Claim.at_most(
        f"{words} is within 10 % of its grouping error",
        abs(metrics["mean_variance"] / metrics["grouping_error"] - 1),
        _CLOSE,
        "the reported uncertainty matches the true gap",
    )


def _interval_claims(part: PartResult) -> list[Claim]:
    worst = min(
        covered - (1 - float(rate))
        for rates in part.metrics["coverage"].values()
        for rate, covered in rates.items()
    )
    return [
        Claim.at_least(
            "coverage minus (1 - miss rate), the worst over min_variance and miss rates",
            worst,
            0.0,
            "Theorem 4.6",
        ),
        Claim.at_least(
            "Hoeffding's inflation minus that by betting, the least over all sizes",
            part.metrics["least_lead_of_betting"],
            0.0,
            "betting is considerably tighter",
        ),
    ]
