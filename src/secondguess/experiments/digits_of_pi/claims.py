"""What section 5.2 claims, decided on the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from secondguess.experiments.digits_of_pi.rankings import CONFIDENCE, RIVALS
from secondguess.experiments.runner import Claim, PartResult

KNOWN_DIGITS = 250
"""Digits that a model should know when it is asked about 3,000; a twelfth of those it is asked."""


def pi_claims(parts: Mapping[str, PartResult]) -> list[Claim]:
    """The claims that the parts at hand decide."""
    samples = parts["samples"].metrics
    expected = min(KNOWN_DIGITS, len(parts["samples"].arrays["offsets"]) // 12)
    return [
        Claim.at_least(
            "digits known: the largest N with 95 % true statements about the first N",
            samples["known_digits"],
            expected,
            "early digits are known",
        ),
        *_calibration_claims("samples", samples),
        *_calibration_claims("all sentences", parts["exact"].metrics),
        *_recalibration_claims(parts["recalibration"].metrics),
        *_ranking_claims(samples),
        *_decoder_claims(parts["decoders"].metrics),
    ]


def _calibration_claims(which: str, metrics: Mapping) -> list[Claim]:
    confidence = np.array(metrics["decile_confidence"])
    rate = np.array(metrics["decile_hallucination_rate"])
    judged = confidence < 0.95
    worst = float(np.abs(rate - (1 - confidence))[judged].max()) if judged.any() else 0.0
    overall = metrics["overall"]
    limit = overall["promised_rate"] + 3 * overall["standard_error"]
    return [
        Claim.at_most(
            f"{which}: largest |hallucination rate - (1 - C)| of a decile with C below 0.95",
            worst,
            0.04,
            "1 - C is a good estimate of the hallucination rate",
        ),
        Claim.at_most(
            f"{which}: hallucination rate, at most 1 - mean C and three standard errors",
            overall["hallucination_rate"],
            limit,
            "Theorem 4.5",
        ),
    ]


def _recalibration_claims(recalibration: Mapping) -> list[Claim]:
    """All deciles after the recalibration, those too in which decoders answer."""
    claims = []
    for which, part in (("samples", "samples"), ("all sentences", "exact")):
        after = recalibration[part]["after"]
        confidence = np.array(after["decile_confidence"])
        rate = np.array(after["decile_hallucination_rate"])
        claims.append(
            Claim.at_most(
                f"recalibrated, {which}: largest |hallucination rate - (1 - C)| of any decile",
                float(np.abs(rate - (1 - confidence)).max()),
                0.04,
            )
        )
    return claims


def _ranking_claims(samples: Mapping) -> list[Claim]:
    rates = samples["rate_and_standard_error"]
    claims = []
    for response_rate, (ours, our_error) in rates[CONFIDENCE].items():
        best, error = min(tuple(rates[name][response_rate]) for name in RIVALS)
        limit = best + 2 * float(np.hypot(error, our_error))
        claims.append(
            Claim.at_most(
                f"hallucination rate of the confidence ranking at response rate "
                f"{response_rate}, at most the best rival's and two standard errors",
                ours,
                limit,
                "similar or lower than other common filtering strategies",
            )
        )
    at_tenth = rates[CONFIDENCE]["0.1"][0]
    claims.append(
        Claim.at_most(
            "hallucination rate of the confidence ranking at response rate 0.1",
            at_tenth,
            0.005,
        )
    )
    return claims


def _decoder_claims(decoders: Mapping) -> list[Claim]:
    return [
        Claim(
            name=f"{name}: measured hallucination rate, at most the promised one and three "
            f"standard errors",
            holds=each["hallucination_rate"] <= each["promised_rate"] + 3 * each["standard_error"],
            value=each["hallucination_rate"],
            bound=each["promised_rate"],
            paper="Theorem 4.5",
        )
        for name, each in decoders.items()
    ]
