"""secondguess: models that say what they don't know.

The front door: every name below is loaded on first use, so that `import secondguess` loads none of
its dependencies. Names of `theory` need NumPy and SciPy only; `PairClassifier` and its kin need
the extra `classification`, `PairLanguageModel` and its kin the extra `language`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secondguess.classification.cross_validation import cross_predict
    from secondguess.classification.estimators import PairClassifier
    from secondguess.classification.meta import PairMetaClassifier
    from secondguess.classification.pairs import PairData
    from secondguess.classification.triage import Triage, triage
    from secondguess.displays.curves import HallucinationCurveDisplay, RiskCoverageDisplay
    from secondguess.displays.reliability import ConfidenceReliabilityDisplay, ReliabilityDisplay
    from secondguess.language.answering import answer
    from secondguess.language.formatting import PairFormat
    from secondguess.language.generation import Sampling
    from secondguess.language.meanings import score_meanings
    from secondguess.language.model import PairLanguageModel
    from secondguess.language.scoring import score
    from secondguess.theory.annotations import Annotations
    from secondguess.theory.bounds import (
        cantelli_lower_bound,
        chebyshev_interval,
        hallucination_bound,
    )
    from secondguess.theory.calibration.count_stream import CountIntervals, CountStream
    from secondguess.theory.calibration.cutoff import calibrate, select_min_variance
    from secondguess.theory.calibration.families import (
        BinInflations,
        ClassInflations,
        fit_inflation_by_bin,
        fit_inflation_by_class,
    )
    from secondguess.theory.calibration.fit_inflation import fit_variance_inflation
    from secondguess.theory.calibration.fit_intervals import fit_intervals
    from secondguess.theory.calibration.fitted_intervals import FittedIntervals
    from secondguess.theory.calibration.inflation import InflationStream, VarianceInflation
    from secondguess.theory.calibration.means import (
        BoundedMean,
        mean_interval,
        mean_lower_bound,
        mean_upper_bound,
    )
    from secondguess.theory.calibration.nested import NestedFamily
    from secondguess.theory.calibration.one_sided import (
        CalibratedLowerBound,
        fit_calibrated_lower_bound,
    )
    from secondguess.theory.calibration.planning import plan_width
    from secondguess.theory.calibration.thresholds import GuaranteedThreshold, guaranteed_threshold
    from secondguess.theory.decoding import decode_rejection, decode_selective, decode_top1
    from secondguess.theory.distribution import PredictedDistribution
    from secondguess.theory.entropy import aleatoric_bounds, entropy_split
    from secondguess.theory.floors import EceFloor, second_order_ece_floor
    from secondguess.theory.higher_order import higher_order_ece, higher_order_ece_floor
    from secondguess.theory.joints import (
        JointReport,
        binary_joint,
        binary_moments,
        check_joint,
        joint_from_moments,
        joint_marginal,
        joint_scores,
        pair_covariance,
    )
    from secondguess.theory.metrics import (
        HallucinationCurve,
        RiskCoverageCurve,
        accuracy,
        annotator_kl,
        grouping_error,
        hallucination_curve,
        interval_coverage,
        mean_variance,
        risk_coverage_curve,
        squared_error_estimate,
    )
    from secondguess.theory.records import (
        Bound,
        Decision,
        GapKind,
        Interval,
        Prediction,
        RestsOn,
        SelfCheatScores,
    )
    from secondguess.theory.reliability import (
        ReliabilityBins,
        first_order_ece,
        first_order_ece_standard_error,
        reliability_bins,
        second_order_ece,
        second_order_ece_standard_error,
        top_label_event,
    )

_HOMES = {
    "classification.cross_validation": ("cross_predict",),
    "classification.estimators": ("PairClassifier",),
    "classification.meta": ("PairMetaClassifier",),
    "classification.pairs": ("PairData",),
    "classification.triage": ("Triage", "triage"),
    "displays.curves": ("HallucinationCurveDisplay", "RiskCoverageDisplay"),
    "displays.reliability": ("ConfidenceReliabilityDisplay", "ReliabilityDisplay"),
    "language.formatting": ("PairFormat",),
    "language.answering": ("answer",),
    "language.generation": ("Sampling",),
    "language.meanings": ("score_meanings",),
    "language.model": ("PairLanguageModel",),
    "language.scoring": ("score",),
    "theory.annotations": ("Annotations",),
    "theory.bounds": ("cantelli_lower_bound", "chebyshev_interval", "hallucination_bound"),
    "theory.calibration.count_stream": ("CountIntervals", "CountStream"),
    "theory.calibration.cutoff": ("calibrate", "select_min_variance"),
    "theory.calibration.families": (
        "BinInflations",
        "ClassInflations",
        "fit_inflation_by_bin",
        "fit_inflation_by_class",
    ),
    "theory.calibration.fit_inflation": ("fit_variance_inflation",),
    "theory.calibration.fit_intervals": ("fit_intervals",),
    "theory.calibration.fitted_intervals": ("FittedIntervals",),
    "theory.calibration.inflation": ("InflationStream", "VarianceInflation"),
    "theory.calibration.means": (
        "BoundedMean",
        "mean_interval",
        "mean_lower_bound",
        "mean_upper_bound",
    ),
    "theory.calibration.nested": ("NestedFamily",),
    "theory.calibration.one_sided": ("CalibratedLowerBound", "fit_calibrated_lower_bound"),
    "theory.calibration.planning": ("plan_width",),
    "theory.calibration.thresholds": ("GuaranteedThreshold", "guaranteed_threshold"),
    "theory.decoding": ("decode_rejection", "decode_selective", "decode_top1"),
    "theory.distribution": ("PredictedDistribution",),
    "theory.entropy": ("aleatoric_bounds", "entropy_split"),
    "theory.floors": ("EceFloor", "second_order_ece_floor"),
    "theory.higher_order": ("higher_order_ece", "higher_order_ece_floor"),
    "theory.joints": (
        "JointReport",
        "binary_joint",
        "binary_moments",
        "check_joint",
        "joint_from_moments",
        "joint_marginal",
        "joint_scores",
        "pair_covariance",
    ),
    "theory.metrics": (
        "HallucinationCurve",
        "RiskCoverageCurve",
        "accuracy",
        "annotator_kl",
        "grouping_error",
        "hallucination_curve",
        "interval_coverage",
        "mean_variance",
        "risk_coverage_curve",
        "squared_error_estimate",
    ),
    "theory.records": (
        "Bound",
        "Decision",
        "GapKind",
        "Interval",
        "Prediction",
        "RestsOn",
        "SelfCheatScores",
    ),
    "theory.reliability": (
        "ReliabilityBins",
        "first_order_ece",
        "first_order_ece_standard_error",
        "reliability_bins",
        "second_order_ece",
        "second_order_ece_standard_error",
        "top_label_event",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Annotations",
    "BinInflations",
    "Bound",
    "BoundedMean",
    "CalibratedLowerBound",
    "ClassInflations",
    "ConfidenceReliabilityDisplay",
    "CountIntervals",
    "CountStream",
    "Decision",
    "EceFloor",
    "FittedIntervals",
    "GapKind",
    "GuaranteedThreshold",
    "HallucinationCurve",
    "HallucinationCurveDisplay",
    "InflationStream",
    "Interval",
    "JointReport",
    "NestedFamily",
    "PairClassifier",
    "PairData",
    "PairFormat",
    "PairLanguageModel",
    "PairMetaClassifier",
    "PredictedDistribution",
    "Prediction",
    "ReliabilityBins",
    "ReliabilityDisplay",
    "RestsOn",
    "RiskCoverageCurve",
    "RiskCoverageDisplay",
    "Sampling",
    "SelfCheatScores",
    "Triage",
    "VarianceInflation",
    "accuracy",
    "aleatoric_bounds",
    "annotator_kl",
    "answer",
    "binary_joint",
    "binary_moments",
    "calibrate",
    "cantelli_lower_bound",
    "chebyshev_interval",
    "check_joint",
    "cross_predict",
    "decode_rejection",
    "decode_selective",
    "decode_top1",
    "entropy_split",
    "first_order_ece",
    "first_order_ece_standard_error",
    "fit_calibrated_lower_bound",
    "fit_inflation_by_bin",
    "fit_inflation_by_class",
    "fit_intervals",
    "fit_variance_inflation",
    "grouping_error",
    "guaranteed_threshold",
    "hallucination_bound",
    "hallucination_curve",
    "higher_order_ece",
    "higher_order_ece_floor",
    "interval_coverage",
    "joint_from_moments",
    "joint_marginal",
    "joint_scores",
    "mean_interval",
    "mean_lower_bound",
    "mean_upper_bound",
    "mean_variance",
    "pair_covariance",
    "plan_width",
    "reliability_bins",
    "risk_coverage_curve",
    "score",
    "score_meanings",
    "second_order_ece",
    "second_order_ece_floor",
    "second_order_ece_standard_error",
    "select_min_variance",
    "squared_error_estimate",
    "top_label_event",
    "triage",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("secondguess")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'secondguess' has no attribute {name!r}")
    home = _HOME_OF[name]
    try:
        value = getattr(import_module(f"secondguess.{home}"), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in ("", "secondguess"):
            raise
        extra = home.split(".")[0]
        raise ModuleNotFoundError(
            f"{name} needs {missing}; install it with\n    pip install 'secondguess[{extra}]'",
            name=error.name,
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
