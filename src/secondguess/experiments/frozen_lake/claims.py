"""What section 5.3 claims, decided on the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secondguess.experiments.frozen_lake.walks import HIDDEN
from secondguess.experiments.frozen_lake.world import PRINTED_DISCOUNT
from secondguess.experiments.runner import Claim, PartResult


def lake_claims(parts: Mapping[str, PartResult]) -> list[Claim]:
    """The claims that the parts at hand decide."""
    exact = dict(parts["exact"].metrics)
    printed = exact.pop(f"discount {PRINTED_DISCOUNT:g}")
    claims = []
    for name, metrics in exact.items():
        claims += _exact_claims(name, metrics["hidden"])
    claims.append(
        _at_most(
            f"exact predictor, discount {PRINTED_DISCOUNT:g}: share accepted under the hidden view",
            printed["hidden"]["accepted"],
            0.0,
        )
    )
    samples = parts["samples"].metrics
    [reference] = exact.values()
    return [*claims, *_model_claims(samples), *_top1_claims(samples["top1"], reference["top1"])]


def _exact_claims(name: str, hidden: Mapping[str, float]) -> list[Claim]:
    return [
        _at_least(
            f"exact predictor, {name}: share of always-safe walks accepted, hidden view",
            hidden["accepted_among_always_safe"],
            0.98,
        ),
        _at_most(
            f"exact predictor, {name}: share of accepted walks over the lake, hidden view",
            hidden["over_lake_among_accepted"],
            0.0,
        ),
    ]


def _model_claims(samples: Mapping[str, Any]) -> list[Claim]:
    hidden, visible = samples["hidden"], samples["visible"]
    only_safe = "only the always-safe paths that avoid the lake are kept"
    like_sampling = "like ordinary sampling when the unsafe location is visible"
    return [
        _at_most(
            "hidden view: standard deviation of log C, model minus exact",
            hidden["log_confidence_std"],
            0.03,
        ),
        _at_least(
            "hidden view: correlation of C with the exact one",
            hidden["confidence_correlation"],
            0.98,
        ),
        _at_most(
            "hidden view: mean absolute difference of C from the exact one",
            hidden["confidence_mean_absolute_difference"],
            0.02,
        ),
        _at_most(
            "hidden view: share of accepted walks over the lake",
            hidden["over_lake_among_accepted"],
            0.01,
            only_safe,
        ),
        _at_most(
            "hidden view: share of accepted walks on the unsafe cell",
            hidden["unsafe_among_accepted"],
            0.003,
            only_safe,
        ),
        _at_least(
            "hidden view: share of always-safe walks accepted",
            hidden["accepted_among_always_safe"],
            0.5,
        ),
        _at_least("visible views: share accepted", visible["accepted"], 0.8, like_sampling),
        _at_most(
            "visible views: share of accepted walks on the unsafe cell",
            visible["unsafe_among_accepted"],
            0.005,
        ),
    ]


def _top1_claims(ours: Mapping[str, Any], exact: Mapping[str, Any]) -> list[Claim]:
    hidden = ours[str(HIDDEN)]
    safe = hidden["answered"] and not hidden["over_lake"]
    missed = sum(
        exact[view]["over_lake"] and not ours[view]["over_lake"]
        for view in exact
        if view != str(HIDDEN)
    )
    return [
        _at_least(
            "top-1 search, hidden view: gives an always-safe walk",
            float(safe),
            1.0,
            "safe paths are preferred when the location is hidden",
        ),
        _at_most(
            "top-1 search: visible views in which only the exact predictor crosses the lake",
            float(missed),
            0.0,
            "the highest-likelihood path crosses the lake",
        ),
    ]


def _at_most(name: str, value: float, bound: float, paper: str = "") -> Claim:
    return Claim(
        name=f"{name}, at most", holds=value <= bound, value=value, bound=bound, paper=paper
    )


def _at_least(name: str, value: float, bound: float, paper: str = "") -> Claim:
    return Claim(
        name=f"{name}, at least", holds=value >= bound, value=value, bound=bound, paper=paper
    )
