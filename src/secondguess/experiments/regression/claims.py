"""What section 4.2 claims, decided on the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from secondguess.experiments.runner import Claim, PartResult

RIVALS = ("ensemble", "evidential", "gaussian_process")


def regression_claims(parts: Mapping[str, PartResult]) -> list[Claim]:
    """The claims that the parts at hand decide."""
    claims: list[Claim] = []
    if "cheat_corrected" in parts:
        ours = parts["cheat_corrected"].metrics
        rivals = [parts[name].metrics for name in RIVALS if name in parts]
        if rivals:
            claims += _calibration_claims(ours, rivals)
        ratio = abs(ours["mean_variance"] / ours["grouping_error"] - 1)
        claims.append(
            Claim.at_most(
                "its mean variance is within 10 % of its grouping error",
                ratio,
                0.1,
                "the reported uncertainty matches the true gap",
            )
        )
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


def _calibration_claims(
    ours: Mapping[str, float], rivals: Sequence[Mapping[str, float]]
) -> list[Claim]:
    claims = []
    for bins, key in (
        ("100 bins", "second_order_ece"),
        ("20 bins, as in the paper's diagrams", "second_order_ece_20_bins"),
    ):
        next_best = min(rival[key] for rival in rivals)
        for statement, share in (
            ("is the lowest", 1.0),
            ("is at most half of the next best", 0.5),
        ):
            claims.append(
                Claim.at_most(
                    f"ECE-2 of the cheat-corrected network {statement} ({bins})",
                    ours[key],
                    share * next_best,
                    "the best second-order calibration, in a reliability diagram",
                )
            )
    return claims


def _interval_claims(part: PartResult) -> list[Claim]:
    worst = min(
        covered - (1 - float(rate))
        for rates in part.metrics["coverage"].values()
        for rate, covered in rates.items()
    )
    slack = (part.arrays["hoeffding"] - part.arrays["betting"]).min()
    return [
        Claim.at_least(
            "coverage minus (1 - miss rate), the worst over min_variance and miss rates",
            worst,
            0.0,
            "Theorem 4.6",
        ),
        Claim.at_least(
            "Hoeffding's inflation minus that by betting, the least over all sizes",
            float(slack),
            0.0,
            "betting is considerably tighter",
        ),
    ]
