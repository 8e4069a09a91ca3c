"""What section 5.3 claims, decided on the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secondguess.experiments.frozen_lake.walks import HIDDEN
from secondguess.experiments.frozen_lake.world import LAKE, PRINTED_DISCOUNT, SIDE, START
from secondguess.experiments.runner import Claim, PartResult

ONLY_SAFE = "only the always-safe paths that avoid the lake are kept"
LIKE_SAMPLING = "like ordinary sampling when the unsafe location is visible"
CROSSES = "the highest-likelihood path crosses the lake"

STRAIGHT_VIEWS = [str(view) for view, cell in enumerate(LAKE) if cell // SIDE != START // SIDE]
"""Views in which the straight way over the lake is free, and the most probable walk.

Where the unsafe cell blocks it, the best way over the lake and the best way around it have the same
reward, 19, so that nothing but rounding decides between them.
"""

NETWORK_BOUNDS = {
    "log_confidence_std": 0.03,
    "confidence_correlation": 0.98,
    "confidence_mean_absolute_difference": 0.02,
}
"""How near a trained network's confidence has to be to the exact one under the hidden view."""


def lake_claims(parts: Mapping[str, PartResult], *, still_learning: bool = False) -> list[Claim]:
    """The claims that the parts at hand decide.

    Args:
        parts: of the run.
        still_learning: whether its network is too small or too young to be judged; then what is
            asked of the network is asked of the exact predictor too.
    """
    exact, printed = exact_metrics(parts["exact"].metrics)
    who = "exact predictor: "
    claims = [
        *_exact_claims(exact["hidden"]),
        _at_most(
            f"exact predictor, discount {PRINTED_DISCOUNT:g}: share accepted under the hidden view",
            printed["hidden"]["accepted"],
            0.0,
        ),
    ]
    if still_learning:
        claims += [
            _unsafe_claim(who, exact["hidden"]),
            *_visible_claims(who, exact["visible"]),
            _safe_top1_claim(who, exact["top1"]),
            _at_least(
                f"{who}visible views with a free middle row in which top-1 search crosses the lake",
                float(sum(exact["top1"][view]["over_lake"] for view in STRAIGHT_VIEWS)),
                float(len(STRAIGHT_VIEWS)),
                CROSSES,
            ),
        ]
    samples = parts["samples"].metrics
    return [
        *claims,
        *_distance_claims(samples["hidden"]),
        *_hidden_claims(samples["hidden"]),
        *_visible_claims("", samples["visible"]),
        _safe_top1_claim("", samples["top1"]),
        _crossing_claim(samples["top1"], exact["top1"]),
    ]


def exact_metrics(metrics: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The exact predictor's metrics at the run's own discount, and at the printed one."""
    metrics = dict(metrics)
    printed = metrics.pop(f"discount {PRINTED_DISCOUNT:g}")
    [own] = metrics.values() or [printed]
    return own, printed


def _exact_claims(hidden: Mapping[str, float]) -> list[Claim]:
    return [
        _at_least(
            "exact predictor: share of always-safe walks accepted, hidden view",
            hidden["accepted_among_always_safe"],
            0.98,
            ONLY_SAFE,
        ),
        _at_most(
            "exact predictor: share of accepted walks over the lake, hidden view",
            hidden["over_lake_among_accepted"],
            0.0,
            ONLY_SAFE,
        ),
    ]


def _distance_claims(hidden: Mapping[str, float]) -> list[Claim]:
    return [
        _at_most(
            "hidden view: standard deviation of log C, model minus exact",
            hidden["log_confidence_std"],
            NETWORK_BOUNDS["log_confidence_std"],
        ),
        _at_least(
            "hidden view: correlation of C with the exact one",
            hidden["confidence_correlation"],
            NETWORK_BOUNDS["confidence_correlation"],
        ),
        _at_most(
            "hidden view: mean absolute difference of C from the exact one",
            hidden["confidence_mean_absolute_difference"],
            NETWORK_BOUNDS["confidence_mean_absolute_difference"],
        ),
    ]


def _hidden_claims(hidden: Mapping[str, float]) -> list[Claim]:
    return [
        _at_most(
            "hidden view: share of accepted walks over the lake",
            hidden["over_lake_among_accepted"],
            0.01,
            ONLY_SAFE,
        ),
        _unsafe_claim("", hidden),
        _at_least(
            "hidden view: share of always-safe walks accepted",
            hidden["accepted_among_always_safe"],
            0.5,
        ),
    ]


def _unsafe_claim(who: str, hidden: Mapping[str, float]) -> Claim:
    return _at_most(
        f"{who}hidden view: share of accepted walks on the unsafe cell",
        hidden["unsafe_among_accepted"],
        0.003,
        ONLY_SAFE,
    )


def _visible_claims(who: str, visible: Mapping[str, float]) -> list[Claim]:
    return [
        _at_least(f"{who}visible views: share accepted", visible["accepted"], 0.8, LIKE_SAMPLING),
        _at_most(
            f"{who}visible views: share of accepted walks on the unsafe cell",
            visible["unsafe_among_accepted"],
            0.005,
        ),
    ]


def _safe_top1_claim(who: str, top1: Mapping[str, Any]) -> Claim:
    hidden = top1[str(HIDDEN)]
    return _at_least(
        f"{who}top-1 search, hidden view: gives an always-safe walk",
        float(hidden["answered"] and not hidden["over_lake"]),
        1.0,
        "safe paths are preferred when the location is hidden",
    )


def _crossing_claim(ours: Mapping[str, Any], exact: Mapping[str, Any]) -> Claim:
    missed = sum(
        exact[view]["over_lake"] and not ours[view]["over_lake"] for view in STRAIGHT_VIEWS
    )
    return _at_most(
        "top-1 search: visible views with a free middle row in which only the exact predictor "
        "crosses the lake",
        float(missed),
        0.0,
        CROSSES,
    )


def _at_most(name: str, value: float, bound: float, paper: str = "") -> Claim:
    return Claim.at_most(f"{name}, at most", value, bound, paper)


def _at_least(name: str, value: float, bound: float, paper: str = "") -> Claim:
    return Claim.at_least(f"{name}, at least", value, bound, paper)
